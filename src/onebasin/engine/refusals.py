"""Nodes that joined later and cannot take part: which, and why, for all queues of an engine."""

from __future__ import annotations

import contextlib
from pathlib import Path

from onebasin._core.files import check_name, check_own_folder, read_bytes, remove, write_text

FOLDER = "refused"
# Longer ones were not written here.
LARGEST = 2**16


def refuse(directory: str, node: str, why: str) -> None:
    """Writes down that a node is to be left out."""
    folder = check_own_folder(Path(directory) / FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{check_name(node, folder)}.txt", why)


def refused(directory: str) -> dict[str, str]:
    """Why nodes are left out, by node."""
    found = {}
    for path in sorted((Path(directory) / FOLDER).glob("*.txt")):
        with contextlib.suppress(OSError, ValueError):
            found[path.stem] = read_bytes(path, largest=LARGEST).decode("utf-8")
    return found


def forget(directory: Path) -> None:
    """Lets all nodes take part again: they are asked anew."""
    with contextlib.suppress(OSError):
        remove(directory / FOLDER)
