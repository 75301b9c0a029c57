"""Tasks in this process: keys, receipts, failures, and the folder that holds results."""

import errno
import io
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from onebasin.engine import (
    EngineError,
    Receipt,
    Task,
    TaskError,
    open_engine,
    reports,
    run_tasks,
)
from onebasin.engine.cluster import check_answer
from onebasin.engine.joining import task_options
from onebasin.engine.nodes import gpu_share
from onebasin.engine.progress import Bar


def squares(count: int) -> list[Task]:
    return [Task(f"square/{i}", lambda i: {"square": i * i}, (i,)) for i in range(count)]


def test_every_task_has_one_receipt(tmp_path: Path) -> None:
    with open_engine("local", directory=tmp_path / "shared") as engine:
        receipts = list(run_tasks(engine, squares(20)))
    assert [r.key for r in receipts] == [f"square/{i}" for i in range(20)]
    assert [r.value for r in receipts] == [{"square": i * i} for i in range(20)]
    assert all(r.attempts == 1 and r.worker.endswith(f":{os.getpid()}") for r in receipts)


def test_tasks_are_taken_as_others_end(tmp_path: Path) -> None:
    taken: list[int] = []

    def endless():
        for number, task in enumerate(squares(1000)):
            taken.append(number)
            yield task

    with open_engine("local", directory=tmp_path) as engine:
        receipts = run_tasks(engine, endless())
        next(receipts)
        next(receipts)
        receipts.close()  # type: ignore[attr-defined]
    assert len(taken) <= 2 + 1 + engine.window


def test_a_failed_task_is_tried_again(tmp_path: Path) -> None:
    tries: list[int] = []

    def at_last() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return "done"

    with open_engine("local", directory=tmp_path) as engine:
        (receipt,) = run_tasks(engine, [Task("at last", at_last)])
    assert (receipt.value, receipt.attempts) == ("done", 3)


def test_failures_are_reported_when_the_rest_is_done(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("no\nway")

    done: list[Receipt] = []
    tasks = [*squares(3), Task("bad one", fail), *squares(6)[3:]]
    with open_engine("local", directory=tmp_path, retries=1) as engine:
        with pytest.raises(TaskError) as caught:
            done.extend(run_tasks(engine, tasks))
        assert len(done) == 6
        (failure,) = caught.value.failures
        assert failure.key == "bad one"
        assert failure.attempts == 2
        assert failure.error == "RuntimeError: no way"
        assert failure.log is not None
        assert "in fail" in Path(failure.log).read_text()
        message = str(caught.value)
        assert "'bad one'" in message
        assert failure.log in message
        assert "\n" not in message


def test_receipts_are_small(tmp_path: Path) -> None:
    with (
        open_engine("local", directory=tmp_path) as engine,
        pytest.raises(TaskError, match="write arrays to a file"),
    ):
        list(run_tasks(engine, [Task("large", lambda: "x" * 100_000)]))


def test_tasks_may_have_tasks(tmp_path: Path) -> None:
    with open_engine("local", directory=tmp_path) as engine:

        def outer(count: int) -> int:
            return sum(r.value["square"] for r in run_tasks(engine, squares(count)))

        tasks = [Task(f"outer/{n}", outer, (n,)) for n in (2, 3)]
        assert [r.value for r in run_tasks(engine, tasks)] == [1, 5]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_nothing_ends_all_at_once(tmp_path: Path, number: int) -> None:
    tries: list[int] = []

    def write() -> None:
        tries.append(1)
        try:
            raise OSError(number, os.strerror(number))
        except OSError as error:
            raise ValueError("the file cannot be written") from error

    with open_engine("local", directory=tmp_path) as engine:
        with pytest.raises(EngineError, match=os.strerror(number)) as caught:
            list(run_tasks(engine, [*squares(2), Task("write", write), *squares(9)[2:]]))
        assert str(tmp_path) in str(caught.value)
        assert "2 tasks are done" in str(caught.value)
    assert len(tries) == 1


FORBIDDEN = """
import os, sys
from pathlib import Path
from onebasin.engine import EngineError, Task, TaskError, open_engine, run_tasks

shared = Path(sys.argv[1])
tries = []

def write(number):
    tries.append(number)
    if number == 2:
        shared.chmod(0o555)
    (shared / str(number)).write_text("done")

def read():
    raise PermissionError(13, "Permission denied", "/elsewhere")

if os.geteuid() == 0:
    os.chown(shared, 65534, 65534)
    os.setuid(65534)
tasks = [Task(f"write/{i}", write, (i,)) for i in range(9)]
with open_engine("local", directory=shared) as engine:
    for some in ([Task("read", read)], tasks):
        try:
            list(run_tasks(engine, some))
        except EngineError as error:
            print(type(error).__name__, error)
print(tries)
try:
    open_engine("local", directory=shared)
except EngineError as error:
    print(error)
"""


def test_a_folder_that_may_no_longer_be_written_ends_all_at_once() -> None:
    """In a process that is not the superuser's, whom nothing is forbidden."""
    with tempfile.TemporaryDirectory() as shared:
        done = subprocess.run(
            [sys.executable, "-c", FORBIDDEN, shared], capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    reading, writing, tries, opening = done.stdout.splitlines()
    assert reading.startswith("TaskError 1 task failed: 'read' after 3 tries")
    said = f"the shared directory {shared} cannot be written (Permission denied)"
    assert writing.startswith(f"EngineError {said}")
    assert "2 tasks are done" in writing
    assert tries == "[0, 1, 2]"
    assert opening.startswith(said)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"shared directory .*file/inside cannot be written"):
        open_engine("local", directory=tmp_path / "file" / "inside")


def test_a_temporary_folder_goes_with_its_engine() -> None:
    with open_engine("local") as engine:
        assert engine.directory.is_dir()
    assert not engine.directory.exists()


def test_bad_requests_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="expected one of local, ray"):
        open_engine("slurm")
    with pytest.raises(EngineError, match="expected it with 'ray'"):
        open_engine("local", address="auto")
    with pytest.raises(EngineError, match="at least one"):
        open_engine("local", networks_per_task=0)
    with pytest.raises(EngineError, match="needs a directory that all of its nodes see"):
        open_engine("ray", address="auto")


def test_nothing_answers_there() -> None:
    with pytest.raises(EngineError, match=r"'127.0.0.1:9' does not answer .*`ray start --head`"):
        check_answer("127.0.0.1:9")


def test_tasks_share_a_gpu_by_their_memory() -> None:
    assert gpu_share(10, 30) == 0.3333
    assert 3 * gpu_share(10, 30) <= 1
    assert gpu_share(16, 30) == 1.0
    with pytest.raises(EngineError, match="31 bytes, and the smallest GPU has 30"):
        gpu_share(31, 30)


def test_what_a_task_asks_of_its_node() -> None:
    plain, waiting = task_options({"CPU": 4}, None, None, 100)
    assert plain == waiting == {"num_cpus": 1, "max_retries": 0}
    limited, waiting = task_options({"CPU": 4}, 60, None, 100)
    assert limited == {**plain, "memory": 60}
    assert waiting == plain
    with pytest.raises(EngineError, match="101 bytes, and no node has more than 100"):
        task_options({"CPU": 4}, 101, None, 100)


@pytest.mark.parametrize(("memory", "together"), [(None, 1), (51, 1), (50, 2), (33, 3), (7, 14)])
def test_what_a_task_asks_of_a_gpu(memory: int | None, together: int) -> None:
    """As many whole tasks as fit, beside two that wait; and no more memory than there is."""
    tasks, waiting = task_options({"CPU": 64, "GPU": 2}, memory, 100, 0)
    free = 1 - 2 * waiting["num_gpus"]
    assert int(free / tasks["num_gpus"] + 1e-9) == together
    fractions = [
        float(kind["runtime_env"]["env_vars"]["XLA_PYTHON_CLIENT_MEM_FRACTION"])
        for kind in (tasks, waiting)
    ]
    assert together * fractions[0] + 2 * fractions[1] <= 1
    assert "memory" not in tasks


def test_the_bar_counts_what_is_done_running_and_failed() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120, color_system=None)
    with Bar("networks", 8, 2, enabled=True, console=console) as bar:
        bar.update(5, 0, 1)
    last = output.getvalue().rpartition("networks")[2]
    assert "5/8 0 running, 1 failed" in last


def test_reports_of_workers_are_added_up_in_one_bar(tmp_path: Path) -> None:
    """Two tasks on workers, one of which was begun twice: its reports are counted once."""
    for key, done in (("stage/a", 1), ("stage/a", 3), ("stage/b", 2)):
        with reports.within(key):
            reports.Report(tmp_path).write(4, done, 0, 0)
            reports.Report(tmp_path).write(10, 0, 1, 1)
    assert reports.added_up(tmp_path) == (28, 5, 2, 2)
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120, color_system=None)
    bar = Bar("all workers", None, 0, enabled=True, console=console)
    with (
        reports.watched(tmp_path, "all workers", enabled=True, bar=bar),
        reports.within("stage/b"),
    ):
        reports.Report(tmp_path).write(4, 4, 0, 0)
        reports.Report(tmp_path).write(10, 10, 0, 0)
    assert "17/28 1 running, 1 failed" in output.getvalue().rpartition("all workers")[2]


def test_without_ray_its_engine_is_a_sentence() -> None:
    """In a process that cannot find Ray, installed or not."""
    program = """
import sys
sys.modules["ray"] = None
from onebasin.engine import EngineError, open_engine
try:
    open_engine("ray")
except EngineError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip().endswith("pip install 'onebasin[ray]'"), done.stderr


def test_what_failed_crosses_processes() -> None:
    failed = Receipt("a", None, 1.0, "here:1", 2, "ValueError: no", "a.log")
    error = TaskError([failed], 3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is TaskError
    assert (str(again), again.failures, again.done) == (str(error), (failed,), 3)
