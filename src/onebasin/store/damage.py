"""What may have happened to the files of a run, and which of them are still good."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

from onebasin.store.errors import StoreError
from onebasin.store.manifest import NAME, Entry, Manifest, Stream, now
from onebasin.store.tensors import Header, read_header, sha256_of

SHARD = "onebasin-shard"
OTHER_RUN = "is not of this run"
FOLDERS = ("streams", "states")


def shard_metadata(run: str, name: str, index: int) -> dict[str, str]:
    """What every file of a run says of itself, so that it is known in another place."""
    return {"format": SHARD, "version": "1", "run": run, "name": name, "index": str(index)}


def faults(
    folder: Path, manifest: Manifest, *, only: str | None = None, hashes: bool = False
) -> dict[str, str]:
    """What is wrong with the files of a run, as a clause for each that is bad.

    Args:
        folder: The folder of the run.
        manifest: What should be there.
        only: Look at the shards of this stream alone.
        hashes: Read the files whole and compare their hashes; else only sizes and headers.
    """
    found = {}
    for name, stream in manifest.streams.items():
        for entry in stream.shards if only in (None, name) else ():
            found[entry.file] = fault(folder, manifest, name, entry, stream, hashes=hashes)
    for name, entry in manifest.states.items() if only is None else ():
        found[entry.file] = fault(folder, manifest, name, entry, hashes=hashes)
    return {file: clause for file, clause in found.items() if clause}


def fault(
    folder: Path,
    manifest: Manifest,
    name: str,
    entry: Entry,
    stream: Stream | None = None,
    *,
    hashes: bool = False,
) -> str:
    """What is wrong with one file, as a clause that begins with a verb; empty if nothing is."""
    path, size = folder / entry.file, 0
    try:
        size = path.stat().st_size
        header = read_header(path)
        got = sha256_of(path) if hashes and entry.sha256 else entry.sha256
    except FileNotFoundError:
        return "is missing"
    except StoreError:
        how = "truncated" if size < entry.bytes else "damaged"
        return f"is {how}: it has {size:,} bytes, expected {entry.bytes:,}, and no valid header"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    clause = _identity(header, manifest, name, entry) or _layout(header, entry, stream)
    if clause:
        return clause
    if size != entry.bytes:
        return f"has {size:,} bytes, expected {entry.bytes:,}"
    if got != entry.sha256:
        return f"was edited, or its bytes have changed: sha256 {got}, expected {entry.sha256}"
    return ""


def sentence(folder: Path, found: dict[str, str]) -> str:
    """All faults as one sentence that names every file."""
    clauses = "; ".join(f"{folder / file} {clause}" for file, clause in found.items())
    several = f"{len(found)} files of the run are bad: " if len(found) > 1 else "the file "
    return f"{several}{clauses}"


def rebuild(folder: Path) -> Manifest:
    """A manifest from what the files say of themselves, where the real one cannot be trusted.

    Of files of several runs the larger part is taken. Hashes, config and notes are lost.

    Raises:
        StoreError: If no file speaks for itself.
    """
    headers = {}
    for path in sorted(path for kind in FOLDERS for path in (folder / kind).glob("*.safetensors")):
        try:
            header = read_header(path)
        except (StoreError, OSError):
            continue
        if header.metadata.get("format") == SHARD:
            headers[path] = header
    if not headers:
        raise StoreError(f"there is no run in {folder}: no file in it can be read as part of one.")
    runs = Counter(header.metadata["run"] for header in headers.values())
    manifest = Manifest(runs.most_common(1)[0][0], {}, {}, (), "", now())
    for path, header in headers.items():
        if header.metadata["run"] == manifest.run:
            manifest = _with_file(manifest, folder, path, header)
    return manifest


def _identity(header: Header, manifest: Manifest, name: str, entry: Entry) -> str:
    wanted = shard_metadata(manifest.run, name, entry.index)
    said = header.metadata
    if said.get("format") != SHARD:
        return "is not a file that onebasin wrote for a run"
    if said.get("run") != wanted["run"]:
        return (
            f"{OTHER_RUN}: it says run {said.get('run')}, and {NAME} says {manifest.run} (either "
            "may have come from another folder)"
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


def _with_file(manifest: Manifest, folder: Path, path: Path, header: Header) -> Manifest:
    name, index = header.metadata["name"], int(header.metadata["index"])
    file = path.relative_to(folder).as_posix()
    entry = Entry(file, path.stat().st_size, "", index)
    if path.parent.name == "states":
        return dataclasses.replace(manifest, states={**manifest.states, name: entry})
    leaves = {leaf: (header.dtypes[leaf], shape[1:]) for leaf, shape in header.shapes.items()}
    draws = next(iter(header.shapes.values()))[0]
    before = manifest.streams.get(name, Stream(leaves))
    shards = (*before.shards, dataclasses.replace(entry, draws=draws))
    return dataclasses.replace(
        manifest, streams={**manifest.streams, name: Stream(before.leaves, shards)}
    )
