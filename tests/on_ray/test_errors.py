"""What cannot work is refused with one sentence, and soon."""

import os
import shutil
import site
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest

from onebasin.engine import Engine, EngineError, Receipt, Task, TaskError, open_engine, run_tasks

from . import failing, processes


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


def goes_on_without_it(engine: Engine, said: str) -> None:
    """A node that came after the engine was opened is refused by name, once, at its first task."""
    tasks = (Task(f"tiny/{i}", failing.tiny, (i, 0.05)) for i in range(60))
    with pytest.warns(RuntimeWarning) as caught:
        found = [receipt.value["number"] for receipt in run_tasks(engine, tasks)]
    assert sorted(found) == list(range(60))
    (warning,) = caught
    assert said in str(warning.message)
    assert "the others go on without it" in str(warning.message)


def test_a_node_with_another_version(nodes: Any, tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "onebasin-9.9.9.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: onebasin\nVersion: 9.9.9\n")
    path = os.pathsep.join([str(fake.parent), os.environ["PYTHONPATH"]])
    said = f"({socket.gethostname()}) has onebasin 9.9.9, and the driver has"
    engine = open_engine("ray", address=nodes.address, directory=tmp_path / "shared")
    with engine, processes.node(sys.executable, nodes, "other", PYTHONPATH=path):
        goes_on_without_it(engine, said)
        engine.close()
        assert said in refused(60, address=nodes.address, directory=tmp_path / "shared")


def test_a_node_without_the_package(nodes: Any, tmp_path: Path) -> None:
    """Its Python has all that ours has, but for this package."""
    venv.create(tmp_path / "bare", with_pip=False)
    packages = next((tmp_path / "bare" / "lib").glob("python*/site-packages"))
    for entry in Path(site.getsitepackages()[0]).iterdir():
        if "onebasin" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    python = tmp_path / "bare" / "bin" / "python"
    engine = open_engine("ray", address=nodes.address, directory=tmp_path / "shared")
    with engine, processes.node(str(python), nodes, "bare", PYTHONPATH=""):
        goes_on_without_it(engine, "has no onebasin, and the driver has")
        engine.close()
        message = refused(60, address=nodes.address, directory=tmp_path / "shared")
    assert "has no onebasin, and the driver has" in message
    assert "install onebasin==" in message


def test_a_failed_task_is_reported_with_its_log(nodes: Any, tmp_path: Path) -> None:
    tasks = [Task(f"task/{i}", failing.fail_or_not, (i,)) for i in range(4)]
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


UNWRITABLE = """
import subprocess
from on_ray import driver
from onebasin.engine import EngineError, Task, open_engine, run_tasks

def remount(how):
    # Not while a file is being written.
    while subprocess.run(["mount", "-o", f"remount,{how}", "/mnt"], stderr=-3).returncode:
        pass

def run(engine, *, stop=None):
    try:
        for number, _ in enumerate(run_tasks(engine, tasks)):
            if number == stop:
                remount("ro")
    except EngineError as error:
        print("error:", error)

folder = "/mnt/shared"
with open_engine("ray", directory=folder) as engine:
    tasks = [Task(f"toy/{i}", driver.work, (folder, i, 0.1)) for i in range(400)]
    run(engine, stop=2)
    remount("rw")
    run(engine)
remount("ro")
try:
    open_engine("ray", directory=folder)
except EngineError as error:
    print("error:", error)
"""


def test_a_shared_directory_that_is_read_only_or_full(tmp_path: Path) -> None:
    """On a file system of one megabyte, in a name space of its own."""
    mounted = "mount -t tmpfs -o size=1m tmpfs /mnt && exec"
    inside = ["unshare", "-rm", "sh", "-c", f'{mounted} "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("needs the right to make a file system in a name space")
    done = subprocess.run(
        [*inside, sys.executable, "-c", UNWRITABLE], capture_output=True, text=True, timeout=120
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert len(said) == 3, done.stderr
    why = ("Read-only file system", "No space left on device", "Read-only file system")
    for line, reason in zip(said, why, strict=True):
        assert f"the shared directory /mnt/shared cannot be written ({reason})" in line
    assert all("give the same command again" in line for line in said[:2])
