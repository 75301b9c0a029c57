"""Who does a task, where several processes share a folder: locks that end with their process."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from onebasin._core.files import read_bytes

# Longer ones were not written here.
LARGEST = 2**12


@contextlib.contextmanager
def claimed(path: Path | None) -> Iterator[bool]:
    """Holds a claim while a task is done; tells whether no other process has it.

    Where no claim can be made the task is ours: it will say itself what is wrong with the folder.

    Args:
        path: The file that carries the claim, which stays; None for a task that nobody shares.
    """
    file = None if path is None else _opened(path)
    if file is None:
        yield True
        return
    import fcntl

    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:
            # A file system without locks.
            yield True
            return
        with contextlib.suppress(OSError):
            _sign(file)
        yield True
    finally:
        os.close(file)


def claim_on(file: str | Path) -> Path:
    """Where the claim on a file that a task writes lies: beside it."""
    path = Path(file)
    return path.with_name(f".{path.name}.claim")


def holder(path: Path) -> str:
    """The process that has a claim, as it wrote into the file."""
    try:
        return read_bytes(path, largest=LARGEST).decode("utf-8") or "another process"
    except (OSError, ValueError):
        return "another process"


def _opened(path: Path) -> int | None:
    """The file of a claim; none where it is a link, a pipe or anything else that is not ours."""
    if sys.platform == "win32":
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def _sign(file: int) -> None:
    """Says who has the claim, unless the file has another name elsewhere, or other content."""
    state = os.fstat(file)
    if state.st_nlink == 1 and state.st_size <= LARGEST:
        os.truncate(file, 0)
        os.write(file, f"{socket.gethostname()}:{os.getpid()}".encode())
