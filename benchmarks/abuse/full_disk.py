"""The disk is full at the n-th write of a run, for every n, and stays so until room is made."""

from __future__ import annotations

import argparse
import builtins
import contextlib
import errno
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from abuse import outcomes, problems
from abuse.table import show

KINDS = ("hmc", "sghmc", "ensemble", "mean_field")
SAME, OTHER, SILENT = "same end", "OTHER END", "NOT SAID"


class Disk:
    """Counts what is written below a folder, and from a number on has no room for it.

    Args:
        folder: Where it is.
        room: How many writes, new names and folders it has room for; None for all.
    """

    def __init__(self, folder: Path, room: int | None) -> None:
        self._folder, self._room, self.writes = str(folder), room, 0

    def full(self) -> bool:
        """Counts one more change."""
        self.writes += 1
        return self._room is not None and self.writes > self._room

    def holds(self, path: Any) -> bool:
        """Whether a path is on it."""
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._folder)


class _File:
    """A file on the disk that may be full: half of what is written still fits."""

    def __init__(self, disk: Disk, file: Any) -> None:
        self._disk, self._file = disk, file

    def write(self, content: Any) -> int:
        if self._disk.full():
            with contextlib.suppress(OSError):
                self._file.write(content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(self._file.write(content))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._file.__exit__(*error)


@contextlib.contextmanager
def filling(disk: Disk) -> Iterator[None]:
    """Every write below the disk's folder goes through it."""
    real, saved = builtins.open, {name: getattr(os, name) for name in ("replace", "mkdir", "fsync")}

    def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        found = real(file, mode, *args, **options)
        return _File(disk, found) if set(mode) & set("wxa+") and disk.holds(file) else found

    def guarded(name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if (name == "fsync" or disk.holds(args[0])) and disk.full():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return saved[name](*args, **options)

        return call

    try:
        builtins.open = io.open = opened
        for name in saved:
            setattr(os, name, guarded(name))
        yield
    finally:
        builtins.open = io.open = real
        for name, function in saved.items():
            setattr(os, name, function)


def run(given: argparse.Namespace) -> int:
    """Each kind of run, with the disk full at each of its writes; prints how it ended then."""
    rows: dict[str, dict[str, int]] = {}
    failures: list[str] = []
    for kind in given.kinds or KINDS:
        with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
            counts, said = _kind(kind, Path(folder), given.every)
        rows[kind] = dict(counts)
        failures += said
        print(f"  {kind}: {rows[kind]}", flush=True)
    print(show(rows, (SAME, OTHER, SILENT, outcomes.RAW), "run"))
    print(*failures, sep="\n")
    if given.out is not None:
        given.out.write_text(json.dumps({"runs": rows, "failures": failures}, indent=1) + "\n")
    return int(bool(failures))


def _kind(kind: str, root: Path, every: int) -> tuple[Counter[str], list[str]]:
    work, counts, failures = problems.METHODS[kind], Counter[str](), list[str]()
    whole = Disk(root / "whole", None)
    with filling(whole):
        expected = outcomes.digest(work(root / "whole"))
    for room in range(0, whole.writes, every):
        folder = root / str(room)
        said = _full(work, folder, room)
        if not said:
            said = SAME if outcomes.digest(work(folder)) == expected else OTHER
        counts[said.partition(":")[0]] += 1
        if said != SAME:
            failures.append(f"{kind}, room for {room} of {whole.writes} writes: {said}")
    return counts, failures


def _full(work: Any, folder: Path, room: int) -> str:
    """What was wrong with a run on a disk that became full; nothing, if it ended as it should."""
    from onebasin.store import Run

    try:
        with filling(Disk(folder, room)):
            work(folder)
        return SILENT
    except Exception as error:
        if not outcomes.is_ours(error):
            return f"{outcomes.RAW}: {outcomes.where(error)}"
    try:
        if (folder / "manifest.json").exists():
            Run.open(folder).check()
    except Exception as error:
        return f"{outcomes.RAW}: it does not open: {outcomes.where(error)}"
    return ""
