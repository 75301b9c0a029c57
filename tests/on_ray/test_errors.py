"""What cannot work is refused with one sentence, and soon."""

import contextlib
import os
import shutil
import site
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onebasin.engine import EngineError, Receipt, Task, TaskError, open_engine, run_tasks

HERE = Path(__file__).parent


def refused(seconds: float = 10.0, **arguments: Any) -> str:
    began = time.monotonic()
    with pytest.raises(EngineError) as caught, open_engine("ray", **arguments):
        pass
    assert time.monotonic() - began < seconds
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_an_address_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        assert "does not answer" in refused(address=address, directory=tmp_path)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert "does not answer" in refused(address=address, directory=tmp_path)
    assert "ray job submit" in refused(address="ray://127.0.0.1:1", directory=tmp_path)


@contextlib.contextmanager
def node(python: str, nodes: Any, name: str, **environment: str) -> Iterator[None]:
    process = subprocess.Popen(
        [python, str(HERE / "node.py"), nodes.address, name],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "up\n"
        deadline = time.monotonic() + 60
        while not any(
            n["NodeName"] == name and n["Alive"] for n in nodes.global_state.node_table()
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def test_a_node_with_another_version(nodes: Any, tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "onebasin-9.9.9.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: onebasin\nVersion: 9.9.9\n")
    path = os.pathsep.join([str(fake.parent), os.environ["PYTHONPATH"]])
    with node(sys.executable, nodes, "other", PYTHONPATH=path):
        message = refused(60, address=nodes.address, directory=tmp_path / "shared")
    assert f"({socket.gethostname()}) has onebasin 9.9.9, and the driver has" in message


def test_a_node_without_the_package(nodes: Any, tmp_path: Path) -> None:
    """Its Python has all that ours has, but for this package."""
    venv.create(tmp_path / "bare", with_pip=False)
    packages = next((tmp_path / "bare" / "lib").glob("python*/site-packages"))
    for entry in Path(site.getsitepackages()[0]).iterdir():
        if "onebasin" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    python = tmp_path / "bare" / "bin" / "python"
    with node(str(python), nodes, "bare", PYTHONPATH=""):
        message = refused(60, address=nodes.address, directory=tmp_path / "shared")
    assert "has no onebasin, and the driver has" in message
    assert "install onebasin==" in message


def test_a_failed_task_is_reported_with_its_log(nodes: Any, tmp_path: Path) -> None:
    from .failing import fail_or_not

    tasks = [Task(f"task/{i}", fail_or_not, (i,)) for i in range(4)]
    done: list[Receipt] = []
    with (
        open_engine("ray", address=nodes.address, directory=tmp_path) as engine,
        pytest.raises(TaskError) as caught,
    ):
        done.extend(run_tasks(engine, tasks))
    assert sorted(receipt.key for receipt in done) == ["task/0", "task/1", "task/3"]
    (failure,) = caught.value.failures
    assert failure.attempts == 3
    assert "ValueError: number 2 is bad" in str(caught.value)
    assert "in fail_or_not" in Path(str(failure.log)).read_text()


FULL = """
import sys
from on_ray import driver
from onebasin.engine import EngineError
sys.argv = ["driver", "ray", "none", "/mnt/shared", "200", "0"]
try:
    driver.main()
except EngineError as error:
    print("error:", error)
"""


def test_a_shared_directory_that_is_full(tmp_path: Path) -> None:
    """On a file system of one megabyte, in a name space of its own."""
    mounted = "mount -t tmpfs -o size=1m tmpfs /mnt && exec"
    inside = ["unshare", "-rm", "sh", "-c", f'{mounted} "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("needs the right to make a file system in a name space")
    done = subprocess.run(
        [*inside, sys.executable, "-c", FULL], capture_output=True, text=True, timeout=120
    )
    error = done.stdout.splitlines()[-1]
    assert error.startswith("error: the shared directory /mnt/shared cannot be written (No space")
    assert "give the same command again" in error
