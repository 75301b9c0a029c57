"""Many tasks on an engine: as many at a time as it takes, one bar, and failures at the end."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator

from onebasin.engine.errors import TaskError
from onebasin.engine.interface import Engine
from onebasin.engine.progress import Bar
from onebasin.engine.reports import Report
from onebasin.engine.task import Receipt, Task


def run_tasks(
    engine: Engine,
    tasks: Iterable[Task],
    *,
    title: str = "tasks",
    total: int | None = None,
    kept: int = 0,
    progress: bool = False,
) -> Iterator[Receipt]:
    """Runs tasks and hands on their receipts as they end.

    Tasks are taken from the iterable as others end, so that there may be any number of them.

    Args:
        engine: Where they run.
        tasks: The tasks, which need not be a list.
        title: What the bar says.
        total: How many there are, with those that were done before, if that is known.
        kept: How many were done before.
        progress: Whether to draw a bar.

    Raises:
        TaskError: When all others are done, if some failed after all tries.
        EngineError: If the shared directory is full or read-only.

    Example:
        >>> from onebasin.engine import Task, open_engine, run_tasks
        >>> with open_engine("local") as engine:
        ...     tasks = (Task(f"square-{i}", lambda i: i * i, (i,)) for i in range(3))
        ...     [receipt.value for receipt in run_tasks(engine, tasks)]
        [0, 1, 4]
    """
    waiting = iter(tasks)
    failures: list[Receipt] = []
    done = submitted = 0
    report = Report(engine.directory) if engine.nested else None
    with (
        contextlib.closing(engine.queue()) as queue,
        Bar(title, total, kept, enabled=progress) as bar,
    ):

        def submit(count: int) -> None:
            nonlocal submitted
            for task in itertools.islice(waiting, count):
                queue.submit(task)
                submitted += 1
            running = min(engine.slots, submitted - done - len(failures))
            bar.update(kept + done, running, len(failures), total)
            if report is not None:
                known = total if total is not None else kept + submitted
                report.write(known, kept + done, running, len(failures))

        submit(engine.window)
        for receipt in queue.completed():
            if receipt.error is None:
                done += 1
            else:
                failures.append(receipt)
            submit(1)
            if receipt.error is None:
                yield receipt
    if failures:
        raise TaskError(failures, done)
