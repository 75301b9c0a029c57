"""A run from what its files say of themselves, where the manifest cannot be trusted."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from onebasin._core.files import FileError, check_own_folder
from onebasin.store.damage import SHARD
from onebasin.store.errors import StoreError
from onebasin.store.manifest import now
from onebasin.store.manifest_file import file_of, is_plain_name
from onebasin.store.reading import TensorFile
from onebasin.store.records import Entry, Manifest, Stream

FOLDERS = ("streams", "states")

_OURS = re.compile(r"[A-Za-z0-9_-]+-\d{6,}\.safetensors")
_PARTIAL = re.compile(r"\.[A-Za-z0-9_.-]+\.\d+-[0-9a-f]+\.partial")


@dataclasses.dataclass(frozen=True)
class Said:
    """What one file says of itself."""

    kind: str
    run: str
    name: str
    entry: Entry
    stream: Stream


def check_folders(folder: Path) -> None:
    """Refuses a run whose own folders lead elsewhere.

    Raises:
        StoreError: If one is a link or no folder.
    """
    for kind in FOLDERS:
        try:
            check_own_folder(folder / kind)
        except FileError as error:
            raise StoreError(
                f"{error}: put a folder with the files of the run in its place."
            ) from None
        except OSError as error:
            raise StoreError(
                f"the folder {folder} cannot be read ({error.strerror}): name another."
            ) from error


def files_of_runs(folder: Path, *, partial: bool = False) -> list[Path]:
    """The files that are named as those of a run are; with those half written, on request."""
    check_folders(folder)
    found = []
    for kind in FOLDERS:
        try:
            names = [path.name for path in (folder / kind).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise StoreError(
                f"the folder {folder / kind} may not be read ({error.strerror}): see to it that "
                "you may."
            ) from error
        ours = [x for x in names if _OURS.fullmatch(x) or (partial and _PARTIAL.fullmatch(x))]
        found += [folder / kind / name for name in sorted(ours)]
    return found


def rebuild(folder: Path) -> Manifest:
    """A manifest from what the files say of themselves.

    Of files of several runs the larger part is taken, and none whose name and words differ.
    Hashes, config and notes are lost.

    Raises:
        StoreError: If no file speaks for itself.
    """
    found = list(_speaking(folder))
    if not found:
        raise StoreError(f"there is no run in {folder}: no file in it can be read as part of one.")
    run = Counter(said.run for said in found).most_common(1)[0][0]
    manifest = Manifest(run, {}, {}, (), "", now())
    for said in sorted(found, key=lambda said: said.entry.index):
        if said.run == run:
            manifest = _with_file(manifest, said)
    return manifest


def _speaking(folder: Path) -> Iterator[Said]:
    for path in files_of_runs(folder):
        try:
            with TensorFile(path) as file:
                said = _said(file, path.parent.name)
        except (OSError, ValueError):
            continue
        if said is not None:
            yield said


def _said(file: TensorFile, kind: str) -> Said | None:
    said = file.header.metadata
    name, index = said.get("name", ""), said.get("index", "")
    if said.get("format") != SHARD or not is_plain_name(name) or not index.isdecimal():
        return None
    place = file_of(kind, name, int(index))
    shapes = file.header.shapes
    counts = {shape[:1] for shape in shapes.values()}
    draws = next(iter(counts), ())
    streamed = kind == "streams"
    whole = len(counts) == 1 and draws and draws[0] > 0
    if place != f"{kind}/{file.path.name}" or (streamed and not whole):
        return None
    leaves = {leaf: (file.header.dtypes[leaf], shape[1:]) for leaf, shape in shapes.items()}
    entry = Entry(place, file.size, "", int(index), draws[0] if streamed else 0)
    return Said(kind, said.get("run", ""), name, entry, Stream(leaves))


def _with_file(manifest: Manifest, said: Said) -> Manifest:
    """With one more file; of a state the last one counts."""
    if said.kind == "states":
        return dataclasses.replace(manifest, states={**manifest.states, said.name: said.entry})
    before = manifest.streams.get(said.name, said.stream)
    stream = Stream(before.leaves, (*before.shards, said.entry))
    return dataclasses.replace(manifest, streams={**manifest.streams, said.name: stream})
