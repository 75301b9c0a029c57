"""A Ray of several nodes on this machine, started once for all tests."""

import atexit
import importlib.util
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]

# The rest of the tests must run where Ray is not installed.
collect_ignore_glob: list[str] = []
if importlib.util.find_spec("ray") is None:
    collect_ignore_glob.append("*.py")
else:
    from onebasin.engine import cluster as settings

    # Before Ray is imported, and for the nodes and drivers that tests start.
    os.environ.update({**settings.KEEPALIVE, **settings.QUIET, **settings.LOOPBACK})
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    # What one worker has compiled, no other compiles again.
    compiled = tempfile.mkdtemp(prefix="ob-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
    # Ray notes where its cluster is in a folder that it expects to be there.
    notes = tempfile.mkdtemp(prefix="ob-ray-")
    atexit.register(shutil.rmtree, notes, ignore_errors=True)
    os.makedirs(os.path.join(notes, "ray"))
    os.environ["RAY_TMPDIR"] = notes
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *([before] if before else [])])


def pytest_configure(config: pytest.Config) -> None:
    """Ray leaves files and processes to the end of the process; nodes are added after JAX began."""
    for warning in (
        "ignore::ResourceWarning",
        "ignore::pytest.PytestUnraisableExceptionWarning",
        "ignore:os.fork:RuntimeWarning",
    ):
        config.addinivalue_line("filterwarnings", warning)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose name leaves room for those of Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="ob-", ignore_cleanup_errors=True) as place:
        yield Path(place)


@pytest.fixture(scope="session")
def nodes() -> Iterator[Any]:
    """A cluster with one node of one core; tests may add others."""
    from ray.cluster_utils import Cluster

    place = tempfile.mkdtemp(prefix="ob-ray-")
    arguments = {"num_cpus": 1, "include_dashboard": False, "temp_dir": place}
    found = Cluster(initialize_head=True, head_node_args=arguments)
    yield found
    found.shutdown()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], float]:
    """The files of a study in one process, and the seconds from its first word to its last."""
    from . import processes, toy

    folder = tmp_path_factory.mktemp("undisturbed-study")
    running = processes.start("local", "none", folder, module="studying")
    assert running.stdout is not None
    assert running.stdout.readline()
    began = time.monotonic()
    processes.ended(running)
    assert list(folder.glob("times/*.csv"))
    found = toy.checksums(folder)
    assert any(name.startswith("tables/") for name in found)
    return found, time.monotonic() - began


@pytest.fixture(scope="session")
def three_nodes(nodes: Any) -> Any:
    """The same with three nodes."""
    while len(nodes.list_all_nodes()) < 3:
        nodes.add_node(num_cpus=1)
    return nodes
