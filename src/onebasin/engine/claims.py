"""Who does a task, where several processes share a folder: locks that end with their process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def claimed(path: Path | None) -> Iterator[bool]:
    """Holds a claim while a task is done; tells whether no other process has it.

    Args:
        path: The file that carries the claim, which stays; None for a task that nobody shares.
    """
    if path is None or sys.platform == "win32":
        yield True
        return
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)
