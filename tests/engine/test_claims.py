"""Several processes in one folder: each task is done once, and what a dead one began is taken."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onebasin.engine import LocalEngine, Superseded, Task, TaskError, local, run_tasks
from onebasin.engine.claims import claimed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no such locks")

HOLD = """
import sys, time
from pathlib import Path
from onebasin.engine.claims import claimed
with claimed(Path(sys.argv[1])) as mine:
    print(mine, flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has a claim."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "True"
        try:
            yield process
        finally:
            process.kill()


def test_a_claim_is_held_by_one_process_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "some" / ".task.claim"
    with holder(path), claimed(path) as mine:
        assert not mine
    with claimed(path) as mine:
        assert mine


def test_what_another_process_has_begun_comes_last(tmp_path: Path) -> None:
    order: list[int] = []
    claims = [tmp_path / f".{i}.claim" for i in range(4)]
    with holder(claims[1]) as other:

        def do(number: int) -> int:
            order.append(number)
            if len(order) == 3:
                other.kill()
            return number

        tasks = [Task(str(i), do, (i,), claims[i]) for i in range(4)]
        engine = LocalEngine(tmp_path)
        assert [receipt.value for receipt in run_tasks(engine, tasks)] == [0, 2, 3, 1]
    assert order == [0, 2, 3, 1]
    assert engine.done == 4


def test_waiting_for_another_process_does_not_spin(tmp_path: Path) -> None:
    asked, began = 0, time.monotonic()

    def superseded() -> bool:
        nonlocal asked
        asked += 1
        return time.monotonic() - began > 1

    engine = LocalEngine(tmp_path, superseded=superseded)
    with holder(tmp_path / ".claim"):
        began = time.monotonic()
        with pytest.raises(Superseded):
            list(run_tasks(engine, [Task("held", int, ("1",), tmp_path / ".claim")]))
    assert asked < 10
    assert engine.done == 0


def test_a_run_says_whom_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PATIENCE", 0.5)
    began = time.monotonic()
    engine = LocalEngine(tmp_path, superseded=lambda: time.monotonic() - began > 2)
    with holder(tmp_path / ".claim") as other:
        began = time.monotonic()
        with pytest.warns(UserWarning, match=f":{other.pid} has begun"), pytest.raises(Superseded):
            list(run_tasks(engine, [Task("held", int, ("1",), tmp_path / ".claim")]))


def test_where_no_claim_can_be_made_the_task_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    def write() -> None:
        (tmp_path / "file" / "result").write_text("")

    task = Task("write", write, (), tmp_path / "file" / ".claim")
    with pytest.raises(TaskError, match="NotADirectoryError"):
        list(run_tasks(LocalEngine(tmp_path / "logs", retries=0), [task]))


def test_what_was_there_before_was_not_done_here(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path)
    tasks = [Task(str(kept), dict, ({"kept": kept},)) for kept in (True, False)]
    assert len(list(run_tasks(engine, tasks))) == 2
    assert engine.done == 1
