"""One writer at a time: a lock of the operating system, which ends with the process."""

from __future__ import annotations

import os
import stat
import sys
import weakref
from pathlib import Path

from onebasin.store.errors import StoreError

NAME = ".lock"
# A link would be followed out of the folder, and a pipe waited for.
SAFE = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))

_held: weakref.WeakValueDictionary[str, Lock] = weakref.WeakValueDictionary()


class Lock:
    """The right to write to a folder.

    It is held until `release`, until nothing refers to it, or until the process ends, however it
    ends. Asked for again in the same process it passes on to the newer holder.

    Args:
        folder: The folder; a file in it carries the lock.

    Raises:
        OSError: If that file cannot be made.
        StoreError: If another process holds it, or the file is a link or no regular one.
    """

    def __init__(self, folder: Path) -> None:
        place = os.path.realpath(folder)
        before = _held.get(place)
        if before is not None:
            before.release()
        file = _opened(folder, os.O_RDWR | os.O_CREAT)
        self._close = weakref.finalize(self, os.close, file)
        if not _try_lock(file):
            self.release()
            raise StoreError(
                f"the run in {folder} is being written by another process: wait for it, stop it, "
                "or name another folder."
            )
        _held[place] = self

    @property
    def held(self) -> bool:
        """Whether it still is."""
        return self._close.alive

    def release(self) -> None:
        """Lets others write."""
        self._close()


def is_held(folder: Path) -> bool:
    """Whether some process may write to a folder; whoever it is keeps the lock."""
    try:
        file = _opened(folder, os.O_RDONLY)
    except (OSError, StoreError):
        return False
    try:
        return not _try_lock(file, shared=True)
    finally:
        os.close(file)


def _opened(folder: Path, how: int) -> int:
    """The file of a lock, if it is a regular one."""
    path = folder / NAME
    unfit = StoreError(f"the file {path} is a link, or no regular file: remove it.")
    if path.is_symlink():
        raise unfit
    file = os.open(path, how | SAFE, 0o666)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise unfit
    return file


def _try_lock(file: int, *, shared: bool = False) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
