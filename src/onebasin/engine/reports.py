"""How far tasks of tasks have come: workers write it down, the driver adds it up for its bar."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onebasin._core.files import FileError, check_own_folder, read_json, write_text
from onebasin.engine.progress import Bar

FOLDER = "progress"
SECONDS = 0.5
# Longer ones were not written here.
LARGEST = 2**10

current_task: contextvars.ContextVar[tuple[str, Iterator[int]] | None] = contextvars.ContextVar(
    "current_task", default=None
)
"""The task that runs here, and a counter of the pieces of work that it has opened."""


@contextlib.contextmanager
def within(key: str) -> Iterator[None]:
    """Says which task runs, for the names of its reports: made again, it writes the same ones."""
    token = current_task.set((key, itertools.count()))
    try:
        yield
    finally:
        current_task.reset(token)


class Report:
    """The state of one piece of work of a task, as a small file."""

    def __init__(self, directory: Path):
        key, counter = current_task.get() or (f"process-{os.getpid()}", itertools.count())
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", key)
        self._path = directory / FOLDER / f"{name}.{next(counter)}.json"
        self._written = 0.0

    def write(self, total: int, done: int, running: int, failed: int) -> None:
        """Replaces what was reported before; not more often than anybody would look."""
        now = time.monotonic()
        if running and now - self._written < SECONDS:
            return
        self._written = now
        # No work stops for want of a bar.
        with contextlib.suppress(OSError, FileError):
            check_own_folder(self._path.parent).mkdir(parents=True, exist_ok=True)
            write_text(self._path, json.dumps([total, done, running, failed]), durable=False)


def added_up(directory: Path) -> tuple[int, int, int, int]:
    """Total, done, running and failed of all reports."""
    sums = [0, 0, 0, 0]
    for path in (directory / FOLDER).glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            counts = read_json(path, largest=LARGEST)
            if _is_count(counts):
                sums = [a + b for a, b in zip(sums, counts, strict=True)]
    return sums[0], sums[1], sums[2], sums[3]


def _is_count(counts: Any) -> bool:
    return isinstance(counts, list) and len(counts) == 4 and all(type(n) is int for n in counts)


@contextlib.contextmanager
def watched(
    directory: Path, title: str, *, enabled: bool, bar: Bar | None = None
) -> Iterator[None]:
    """One bar for what all workers report, as long as the block lasts."""
    if not enabled:
        yield
        return
    ended = threading.Event()
    shown = Bar(title, None, 0, enabled=True) if bar is None else bar

    def look() -> None:
        while not ended.wait(SECONDS):
            total, done, running, failed = added_up(directory)
            shown.update(done, running, failed, total)

    with shown:
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            total, done, running, failed = added_up(directory)
            shown.update(done, running, failed, total)
