"""A reader: how its files are made, how they are read, and which carry a checksum."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

Reseal = Callable[[Path, Path, random.Random], bool]


def always(_: str) -> bool:
    """Every file carries a checksum, or another file has one of it."""
    return True


def never(_: str) -> bool:
    """No file does."""
    return False


@dataclasses.dataclass(frozen=True)
class Reader:
    """One way to read files.

    Args:
        name: What it is called.
        make: Writes whole files into a folder.
        read: Reads them; what it gives can be compared, whatever the folder is called.
        sealed: Whether damage of a file, by its path in the folder, can be known.
        files: Which files are damaged, as a pattern.
        reseal: Edits a file in a folder and puts its checksums right; False if it cannot.
        weight: How many cases it gets, beside others.
    """

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    sealed: Callable[[str], bool] = never
    files: str = "**/*"
    reseal: Reseal | None = None
    weight: float = 1.0

    def paths(self, folder: Path) -> list[Path]:
        """The files that are damaged, in an order of their own: never locks, which hold nothing."""
        found = [path for path in folder.glob(self.files) if path.is_file()]
        return sorted(path for path in found if path.stat().st_size and path.name != ".lock")
