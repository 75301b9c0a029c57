"""Which state of the sources a result was made with."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

# Where the sources are no checkout, whoever took them from one can say from which.
VARIABLE = "ONEBASIN_COMMIT"
SECONDS = 10


@functools.lru_cache(maxsize=1)
def find_commit() -> str | None:
    """The commit of the checkout that onebasin runs from, `+changes` if files were edited since.

    None where it runs from no checkout and `ONEBASIN_COMMIT` does not say.
    """
    package = Path(__file__).resolve().parents[1]
    # A checkout of somebody else may hold the environment that onebasin is installed in.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return os.environ.get(VARIABLE) or None
    commit = _git(package, "rev-parse", "HEAD")
    if not commit:
        return os.environ.get(VARIABLE) or None
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return commit + ("+changes" if changed else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None where it has nothing to say."""
    try:
        done = subprocess.run(
            ["git", "-C", os.fspath(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
