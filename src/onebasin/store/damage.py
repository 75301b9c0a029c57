"""What may have happened to the files of a run, and which of them are still good."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from onebasin._core.files import FileError, inside
from onebasin.store.errors import StoreError
from onebasin.store.hashes import sha256_known
from onebasin.store.manifest_file import NAME
from onebasin.store.reading import Header, TensorFile, why
from onebasin.store.records import Entry, Manifest, Stream

SHARD = "onebasin-shard"
OTHER_RUN = "is not of this run"

Hash = Callable[[TensorFile], str]


def shard_metadata(run: str, name: str, index: int) -> dict[str, str]:
    """What every file of a run says of itself, so that it is known in another place."""
    return {"format": SHARD, "version": "1", "run": run, "name": name, "index": str(index)}


def faults(
    folder: Path, manifest: Manifest, *, only: str | None = None, hashed: Hash | None = None
) -> dict[str, str]:
    """What is wrong with the files of a run, as a clause for each that is bad.

    Args:
        folder: The folder of the run.
        manifest: What should be there.
        only: Look at the shards of this stream alone.
        hashed: How hashes are found, where they are to be compared: `sha256_known`, or
            `sha256_anew` to read every file; else only sizes and headers are.
    """
    found = {}
    for name, stream in manifest.streams.items():
        for entry in stream.shards if only in (None, name) else ():
            found[entry.file] = fault(folder, manifest.run, name, entry, stream, hashed)
    for name, entry in manifest.states.items() if only is None else ():
        found[entry.file] = fault(folder, manifest.run, name, entry, None, hashed)
    return {file: clause for file, clause in found.items() if clause}


def fault(
    folder: Path,
    run: str,
    name: str,
    entry: Entry,
    stream: Stream | None = None,
    hashed: Hash | None = None,
) -> str:
    """What is wrong with one file, as a clause that begins with a verb; empty if nothing is."""
    try:
        with TensorFile(inside(folder, entry.file)) as file:
            return fault_of(file, run, name, entry, stream, hashed)
    except (OSError, ValueError) as error:
        return unread(folder, entry, error)


def unread(folder: Path, entry: Entry, error: Exception) -> str:
    """Why a file could not even be opened, as a clause."""
    if isinstance(error, FileNotFoundError):
        return "is missing"
    if isinstance(error, FileError):
        return _of_another_kind(folder, entry) or why(error)
    if not isinstance(error, StoreError):
        return why(error)
    size = os.path.getsize(folder / entry.file)
    how = "truncated" if size < entry.bytes else "damaged"
    return f"is {how}: it has {size:,} bytes, expected {entry.bytes:,}, and no valid header"


def fault_of(
    file: TensorFile,
    run: str,
    name: str,
    entry: Entry,
    stream: Stream | None,
    hashed: Hash | None = sha256_known,
) -> str:
    """What is wrong with an open file, as a clause; empty if nothing is."""
    clause = _identity(file.header, run, name, entry) or _layout(file.header, entry, stream)
    if clause:
        return clause
    if file.size != entry.bytes:
        return f"has {file.size:,} bytes, expected {entry.bytes:,}"
    got = hashed(file) if hashed and entry.sha256 else entry.sha256
    if got != entry.sha256:
        return f"was edited, or its bytes have changed: sha256 {got}, expected {entry.sha256}"
    return ""


def sentence(folder: Path, found: dict[str, str]) -> str:
    """All faults as one sentence that names every file."""
    clauses = "; ".join(f"{folder / file} {clause}" for file, clause in found.items())
    several = f"{len(found)} files of the run are bad: " if len(found) > 1 else "the file "
    return f"{several}{clauses}"


def way_back(folder: Path) -> str:
    """What to do about a bad file, in an error."""
    return (
        f"restore what is bad, go back to the transaction before with `onebasin recover {folder}`"
    )


def _of_another_kind(folder: Path, entry: Entry) -> str:
    for path in (folder / entry.file).parent, folder / entry.file:
        if path.is_symlink():
            what = "is" if path.name in entry.file.rpartition("/")[2] else "lies behind"
            return f"{what} a link, and links in a run are not followed"
    try:
        mode = os.lstat(folder / entry.file).st_mode
    except OSError:
        return ""
    return "" if stat.S_ISREG(mode) else "is no regular file"


def _identity(header: Header, run: str, name: str, entry: Entry) -> str:
    wanted = shard_metadata(run, name, entry.index)
    said = header.metadata
    if said.get("format") != SHARD:
        return "is not a file that onebasin wrote for a run"
    if said.get("run") != wanted["run"]:
        return (
            f"{OTHER_RUN}: it says run {said.get('run')}, and {NAME} says {run} (either may have "
            "come from another folder)"
        )
    if (said.get("name"), said.get("index")) != (name, wanted["index"]):
        return (
            f"was swapped with another: it says that it is number {said.get('index')} of "
            f"{said.get('name')!r}, expected number {entry.index} of {name!r}"
        )
    return ""


def _layout(header: Header, entry: Entry, stream: Stream | None) -> str:
    if stream is None:
        return ""
    for leaf in [*stream.leaves, *header.dtypes]:
        dtype, shape = stream.leaves.get(leaf, ("none", ()))
        got = (header.dtypes.get(leaf, "none"), header.shapes.get(leaf, ()))
        if got != (dtype, (entry.draws, *shape)):
            return (
                f"has the tensor {leaf!r} of type {got[0]} and shape {got[1]}, expected {dtype} "
                f"and {(entry.draws, *shape)}"
            )
    return ""
