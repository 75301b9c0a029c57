"""A task, and what comes back of it: little enough for a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Task:
    """Work with a name of its own.

    Attributes:
        key: Its name; no other task of the same queue has it.
        function: What is called; it may be called more than once, here or elsewhere.
        arguments: What it is called with: small things, and paths of what is large.
        claim: A file that is locked while the task is done in a process that others may be helping;
            None for a task that nobody shares.
        waits: Whether it mostly waits for tasks of its own; it is then given little of a node, so
            that they find room.
    """

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    claim: Path | None = None
    waits: bool = False


@dataclasses.dataclass(frozen=True)
class Receipt:
    """What is known of a task that ended.

    Attributes:
        key: The task's.
        value: What its function returned, as JSON keeps it; None if it failed.
        seconds: How long the last try took.
        worker: Where that was, "host:process".
        attempts: How many tries there were.
        error: Why it failed, on one line; None if it did not.
        log: The file with the traceback of a failure.
    """

    key: str
    value: Any
    seconds: float
    worker: str
    attempts: int = 1
    error: str | None = None
    log: str | None = None
