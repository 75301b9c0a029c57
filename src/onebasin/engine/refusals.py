"""Nodes that joined later and cannot take part: which, and why, for all queues of an engine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

FOLDER = "refused"


def refuse(directory: str, node: str, why: str) -> None:
    """Writes down that a node is to be left out."""
    path = Path(directory) / FOLDER / f"{node}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.partial")
    temporary.write_text(why, encoding="utf-8")
    os.replace(temporary, path)


def refused(directory: str) -> dict[str, str]:
    """Why nodes are left out, by node."""
    found = sorted((Path(directory) / FOLDER).glob("*.txt"))
    return {path.stem: path.read_text(encoding="utf-8") for path in found}


def forget(directory: Path) -> None:
    """Lets all nodes take part again: they are asked anew."""
    shutil.rmtree(directory / FOLDER, ignore_errors=True)
