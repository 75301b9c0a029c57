"""How many cores the work of this process may take."""

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any

from onebasin._core.imports import side_effects_undone

# Products of fewer multiplications gain little from other cores, and where these have other work
# to do, waiting for them takes many times as long.
SHORT = 2**28

_lock = threading.Lock()
_inside = 0
_limits: Any = None


def num_cores() -> int:
    """What `ONEBASIN_THREADS` says, as a worker of an engine has its share; else all it may use."""
    return int(os.environ.get("ONEBASIN_THREADS") or usable_cores())


def usable_cores() -> int:
    """The cores that this process may run on: in a container or a job fewer than the host has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrix products on one thread each, until the last of all threads in here has left.

    The limit is one for the whole process: were each to put back what it found, the first to enter
    could leave before the last, which would then put back the limit of another.
    """
    global _inside, _limits
    with _lock:
        if not _inside:
            _limits = _controller().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _limits is not None:
                # Newer threadpoolctl lets nobody lift a limit but the thread that set it.
                _free_for_all()
                _limits.restore_original_limits()
                _limits = None
                _free_for_all()


def threads_for_products(multiplications: int) -> contextlib.AbstractContextManager[None]:
    """As many threads as a matrix product of that size is worth: one if it is short, else all."""
    return one_blas_thread() if multiplications < SHORT else contextlib.nullcontext()


@functools.lru_cache(maxsize=1)
def _controller() -> Any:
    """The libraries that are there, looked for once: that takes longer than a small alignment."""
    # threadpoolctl sets a variable that lets two OpenMP libraries be in one process.
    with side_effects_undone():
        import scipy.linalg  # noqa: F401 - brings a library of its own, which would come too late
        import threadpoolctl

    return threadpoolctl.ThreadpoolController()


def _free_for_all() -> None:
    """Lets any thread set the limit."""
    from threadpoolctl import OpenBLASController

    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
