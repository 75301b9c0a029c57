"""A tree of files that nobody may touch, and what became of it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

SECRET = "CANARY-3f9c1d77a2"
Make = Callable[[Path], None]


def plant(outside: Path, run: Path) -> None:
    """Files of all kinds that hostile folders point at.

    Args:
        outside: Where to; the folder is made.
        run: A whole run, of which a copy is put there.
    """
    outside.mkdir()
    for name in ("victim.txt", "victim.json", "victim.html", "victim.csv", "victim"):
        (outside / name).write_text(f'{{"secret": "{SECRET}"}}\n')
    shutil.copytree(run, outside / "other")
    # Names as onebasin gives them, which it would remove if they were in a folder of its own.
    for kind in ("streams", "states"):
        (outside / kind).mkdir()
        for number in (0, 9):
            path = outside / kind / f"draws-{number:06d}.safetensors"
            path.write_text(f"{SECRET} {number}")
    for name in ("stages/one/section.json", "stages/one/stage.json", "tables/a.csv", "times/b.csv"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_text(f'{{"title": "{SECRET}"}}')
    (outside / ".left").mkdir()
    (outside / ".left" / "file").write_text(SECRET)


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a folder: kind, mode, size, time and hash; links are not followed."""
    found: dict[str, tuple[object, ...]] = {}
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(base) / name
            state = path.lstat()
            told: object = ""
            if path.is_symlink():
                told = os.readlink(path)
            elif path.is_file():
                told = hashlib.sha256(path.read_bytes()).hexdigest()
            size = 0 if path.is_dir() else state.st_size
            # The time of a folder changes with what is in it.
            found[str(path.relative_to(folder))] = (state.st_mode, size, state.st_mtime_ns, told)
    return found


def differences(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> str:
    """What was created, removed or changed, in a line; empty if nothing."""
    made = [f"made {name}" for name in after if name not in before]
    gone = [f"removed {name}" for name in before if name not in after]
    other = [f"changed {n}" for n in before if n in after and before[n] != after[n]]
    return ", ".join((made + gone + other)[:4])


def leaked(folder: Path) -> str:
    """The first regular file below a folder that holds what only files outside hold."""
    for base, _, files in os.walk(folder):
        for name in files:
            path = Path(base) / name
            if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes():
                return str(path.relative_to(folder))
    return ""
