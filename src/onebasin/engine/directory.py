"""The folder that driver and workers share."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from onebasin.engine.errors import EngineError


def check_directory(directory: Path) -> None:
    """Makes the folder, and sees that files can be written there.

    Raises:
        EngineError: If they cannot.
    """
    trial = directory / f".trial-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with open(trial, "xb") as file:
                file.write(bytes(4096))
                file.flush()
                os.fsync(file.fileno())
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        raise EngineError(
            f"the shared directory {directory} cannot be written ({error.strerror or error}): "
            "name one with room that you may write to"
        ) from error


def disk_sentence(directory: Path, number: int, done: int) -> str:
    """What a task's failure to write says of the shared directory."""
    return (
        f"the shared directory {directory} cannot be written ({os.strerror(number)}): make room, "
        f"or name another, and give the same command again; {done:,} tasks are done and kept"
    )
