"""States of a run, and the random keys in its files, each read once and believed when whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onebasin._core.files import inside
from onebasin.store.damage import fault_of, sentence, unread, way_back
from onebasin.store.errors import StoreError
from onebasin.store.hashes import sha256_known
from onebasin.store.leaves import key_names
from onebasin.store.reading import TensorFile
from onebasin.store.records import Entry, Stream

State = tuple[dict[str, np.ndarray], dict[str, str]]


def read_state(folder: Path, run: str, name: str, entry: Entry) -> State:
    """The arrays of a state, and which of them are random keys.

    Raises:
        StoreError: If its file is not what the manifest says.
    """
    return _read(folder, run, name, entry, None, whole=True)


def read_keys(folder: Path, run: str, name: str, entry: Entry, stream: Stream) -> dict[str, str]:
    """Which leaves of a shard are random keys.

    Raises:
        StoreError: If its file is not what the manifest says.
    """
    return _read(folder, run, name, entry, stream, whole=False)[1]


def _read(
    folder: Path, run: str, name: str, entry: Entry, stream: Stream | None, whole: bool
) -> State:
    path = folder / entry.file
    try:
        with TensorFile(inside(folder, entry.file)) as file:
            state = file.state()
            clause = fault_of(file, run, name, entry, stream, sha256_known if whole else None)
            arrays = file.arrays() if whole and not clause else {}
            if not clause and file.state() != state:
                clause = "is being changed while it is read"
            header = file.header
    except (OSError, ValueError) as error:
        clause = unread(folder, entry, error)
    if clause:
        raise StoreError(
            f"{sentence(folder, {entry.file: clause})}: {way_back(folder)}, or begin in another "
            "folder."
        )
    return arrays, key_names(header.metadata, header.dtypes, f"the file {path}")
