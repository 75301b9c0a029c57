"""What the library asks of an engine, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from onebasin.engine.task import Receipt, Task

T = TypeVar("T", covariant=True)


class Shared(Protocol, Generic[T]):
    """A thing that many tasks read: sent once, unpacked once in every process."""

    def get(self) -> T:
        """The thing itself."""
        ...


class Queue(Protocol):
    """Tasks of one piece of work."""

    def submit(self, task: Task) -> None:
        """Adds a task; it may be run at once, or when `completed` comes to it."""
        ...

    def completed(self) -> Iterator[Receipt]:
        """Receipts in the order in which tasks end, until none is left; more may be submitted."""
        ...

    def close(self) -> None:
        """Forgets what has not ended."""
        ...


class Engine(Protocol):
    """A place where tasks run.

    Attributes:
        name: As the command line calls it.
        directory: A folder that all workers see: results are files in it.
        slots: How many tasks run at a time.
        window: How many tasks are worth submitting before the first has ended.
        networks_per_task: Networks, chains or draws of a task; None leaves it to each method. What
            is computed depends on this number, and on nothing else about an engine.
        nested: Whether this is the engine as a task on a worker has it.
    """

    @property
    def name(self) -> str: ...
    @property
    def directory(self) -> Path: ...
    @property
    def slots(self) -> int: ...
    @property
    def window(self) -> int: ...
    @property
    def networks_per_task(self) -> int | None: ...
    @property
    def nested(self) -> bool: ...

    def queue(self) -> Queue:
        """A queue of its own for one piece of work; a task may open one too."""
        ...

    def share(self, value: Any) -> Shared[Any]:
        """A thing as tasks can take it among their arguments."""
        ...

    def close(self) -> None:
        """Ends what the engine has started."""
        ...

    def __enter__(self) -> Engine: ...
    def __exit__(self, *_: object) -> None: ...
