"""Tasks one after the other in this process: each has all cores, and no start costs anything.

Several processes may work in one folder, each by itself: a task that another has begun is passed
over and looked at again later, when its result is there or its process is gone.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onebasin.engine.attempt import attempt
from onebasin.engine.claims import claimed, holder
from onebasin.engine.directory import check_directory, disk_sentence
from onebasin.engine.errors import EngineError, Superseded
from onebasin.engine.task import Receipt, Task

PAUSE = 0.2
PATIENCE = 30.0


@dataclasses.dataclass(frozen=True, eq=False)
class LocalShared:
    """A thing that stays where it is."""

    value: Any

    def get(self) -> Any:
        """The thing itself."""
        return self.value


class LocalQueue:
    """Tasks that run when their receipts are asked for."""

    def __init__(self, engine: LocalEngine):
        self._engine = engine
        self._waiting: collections.deque[Task] = collections.deque()

    def submit(self, task: Task) -> None:
        """Adds a task."""
        self._waiting.append(task)

    def completed(self) -> Iterator[Receipt]:
        """Runs tasks in the order in which they came, those that others have begun at the end."""
        done = passed = 0
        since = time.monotonic()
        while self._waiting:
            if self._engine.superseded():
                raise Superseded
            task = self._waiting.popleft()
            with claimed(task.claim) as mine:
                receipt = self._run(task, done) if mine else None
            if receipt is not None:
                done += receipt.error is None
                self._engine.done += receipt.error is None and not _was_there(receipt.value)
                passed, since = 0, time.monotonic()
                yield receipt
                continue
            self._waiting.append(task)
            passed += 1
            if passed >= len(self._waiting):
                time.sleep(PAUSE)
                passed = 0
                if time.monotonic() - since > PATIENCE and task.claim is not None:
                    since = float("inf")
                    warnings.warn(
                        f"waiting for {task.key!r}, which {holder(task.claim)} has begun: if that "
                        "process was stopped, continue or end it",
                        stacklevel=2,
                    )

    def close(self) -> None:
        """Forgets what has not been run."""
        self._waiting.clear()

    def _run(self, task: Task, done: int) -> Receipt:
        directory = self._engine.directory
        for number in range(1, self._engine.retries + 2):
            found = attempt(task.key, number, task.function, task.arguments, str(directory))
            if "value" in found:
                value = json.loads(found["value"])
                return Receipt(task.key, value, found["seconds"], found["worker"], number)
            if found["errno"] is not None:
                raise EngineError(disk_sentence(directory, found["errno"], done))
        return Receipt(
            task.key, None, found["seconds"], found["worker"], number, found["error"], found["log"]
        )


def _was_there(value: Any) -> bool:
    """Whether a task had been done before, as its value may say."""
    return isinstance(value, dict) and bool(value.get("kept"))


class LocalEngine:
    """This process.

    Args:
        directory: Where results are kept; a temporary folder if left out.
        networks_per_task: Networks, chains or draws of a task.
        retries: How often a failed task is tried again.
        superseded: Asked before each task: whether others have done what the tasks are for.

    Attributes:
        done: How many tasks were done here, without those whose results were there already.
    """

    name = "local"
    slots = 1
    # Enough to find one that no other process has begun.
    window = 16
    nested = False

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        networks_per_task: int | None = None,
        retries: int = 2,
        superseded: Callable[[], bool] = lambda: False,
    ):
        self.superseded = superseded
        self.done = 0
        self.networks_per_task = networks_per_task
        self.retries = retries
        self._temporary = None
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="onebasin-")
            directory = self._temporary.name
        self.directory = Path(directory)
        check_directory(self.directory)

    def queue(self) -> LocalQueue:
        """A queue of its own for one piece of work."""
        return LocalQueue(self)

    def share(self, value: Any) -> LocalShared:
        """A thing as tasks can take it."""
        return LocalShared(value)

    def close(self) -> None:
        """Removes the temporary folder, if it was one."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
