"""One try of a task, the same wherever it runs: what it returned, or what went wrong and where."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onebasin._core.files import FileError, check_own_folder, write_text
from onebasin.engine.reports import within

LARGEST = 2**16
# What no other try would mend.
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# These too, where they are about the shared directory and not some file that a task reads.
FORBIDDEN = (errno.EACCES, errno.EPERM)

Outcome = dict[str, Any]
"""value, seconds and worker; or error, log and errno in place of the value."""


def attempt(
    key: str, number: int, function: Callable[..., Any], arguments: Any, directory: str
) -> Outcome:
    """Calls a task's function; whatever it raises is told and not raised.

    Args:
        key: The task's.
        number: Which try this is.
        function: What to call.
        arguments: With what.
        directory: Where logs go.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    start = time.perf_counter()
    try:
        with within(key):
            value = json.dumps(function(*arguments))
        if len(value) > LARGEST:
            raise ValueError(
                f"the task returned {len(value):,} bytes, expected at most {LARGEST:,}: write "
                "arrays to a file and return its name"
            )
    except Exception as error:
        return {
            "error": " ".join(f"{type(error).__name__}: {error}".split()),
            "log": write_log(directory, key, number, f"worker {worker}\n{traceback.format_exc()}"),
            "errno": disk_error(error, directory),
            "seconds": time.perf_counter() - start,
            "worker": worker,
        }
    return {"value": value, "seconds": time.perf_counter() - start, "worker": worker}


def disk_error(error: BaseException | None, directory: str) -> int | None:
    """The number of the disk's refusal among an error and its causes, if that is what it was."""
    forbidden = not os.access(directory, os.W_OK)
    while error is not None:
        if isinstance(error, OSError) and (
            error.errno in DISK or (forbidden and error.errno in FORBIDDEN)
        ):
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def write_log(directory: str, key: str, number: int, text: str) -> str | None:
    """Keeps what is known of a failed try; a full disk keeps nothing."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", key)[-120:]
    path = Path(directory) / "logs" / f"{name}.{number}.log"
    try:
        check_own_folder(path.parent).mkdir(parents=True, exist_ok=True)
        write_text(path, f"task {key}, try {number}\n{text}", durable=False)
    except (OSError, FileError):
        return None
    return str(path)
