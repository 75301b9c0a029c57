"""What goes wrong with files, each as one sentence for people."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class StoreError(ValueError):
    """A run or a file could not be written, read or trusted; the message names the file."""


class CheckpointError(StoreError):
    """A file could not be written, or does not hold the model; the message is one sentence."""


class ManifestError(StoreError):
    """The manifest of a run is lost or damaged; the message names the file."""


class DamageWarning(UserWarning):
    """Part of a run cannot be trusted and was left out; the message names the files."""


def checked_path(path: str | os.PathLike[str], error: type[StoreError] = StoreError) -> Path:
    """A path that the system can have.

    Raises:
        StoreError: If it is too long, or holds a character that no name has; of the type `error`.
    """
    text = os.fspath(path)
    try:
        os.lstat(text)
    except OSError as found:
        if found.errno == errno.ENAMETOOLONG:
            raise error(f"got the path {text!r:.200}, which is longer than paths may be.") from None
    except ValueError:
        raise error(f"got the path {text!r:.200}, which has characters that no name has.") from None
    return Path(text)
