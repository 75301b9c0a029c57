"""One writer at a time: a lock of the operating system, which ends with the process."""

from __future__ import annotations

import os
import sys
import weakref
from pathlib import Path

from onebasin.store.errors import StoreError

NAME = ".lock"

_held: weakref.WeakValueDictionary[str, Lock] = weakref.WeakValueDictionary()


class Lock:
    """The right to write to a folder.

    It is held until `release`, until nothing refers to it, or until the process ends, however it
    ends. Asked for again in the same process it passes on to the newer holder.

    Args:
        folder: The folder; a file in it carries the lock.

    Raises:
        StoreError: If another process holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place = os.path.realpath(folder)
        before = _held.get(self._place)
        if before is not None:
            before.release()
        self._file: int | None = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o666)
        if not _try_lock(self._file):
            self.release()
            raise StoreError(
                f"the run in {folder} is being written by another process: wait for it, stop it, "
                "or name another folder."
            )
        _held[self._place] = self

    @property
    def held(self) -> bool:
        """Whether it still is."""
        return self._file is not None

    def release(self) -> None:
        """Lets others write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.release()


def _try_lock(file: int) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
