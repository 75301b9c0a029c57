"""Changes to a run that happen together or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onebasin._core.files import replacing
from onebasin.store.damage import shard_metadata
from onebasin.store.errors import StoreError
from onebasin.store.leaves import encode, named
from onebasin.store.manifest import plain
from onebasin.store.manifest_file import file_of, is_plain_name
from onebasin.store.rebuilding import check_folders
from onebasin.store.records import Entry, Manifest, Stream
from onebasin.store.tensors import NAMES, write_tensors


class Transaction:
    """What is to be added to a run; made by `Run.transaction`.

    Files are written at once, under names that no manifest holds yet: they become part of the run
    when the transaction ends, and never if it does not.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._before = manifest
        self._states = dict(manifest.states)
        self._streams = dict(manifest.streams)
        self._notes = dict(manifest.notes)

    def append(self, name: str, tree: Any) -> None:
        """Adds draws to the end of a stream.

        Args:
            name: The stream: letters, digits, `-` and `_`.
            tree: A pytree whose leaves have shape (draw, ...), `Draws` for one; its paths, types
                and shapes stay the same from shard to shard. No draws are no shard.

        Raises:
            StoreError: If the tree does not fit the stream, or the file cannot be written.
        """
        _check_name(name)
        arrays, keys = encode(named(tree, f"the draws for {name!r}"), f"the stream {name!r}")
        count = _count(name, arrays)
        leaves = {leaf: (NAMES[x.dtype], x.shape[1:]) for leaf, x in arrays.items()}
        stream = self._streams.get(name, Stream(leaves))
        _check_leaves(name, leaves, stream.leaves)
        if count:
            index = len(stream.shards)
            entry = self._write(file_of("streams", name, index), name, index, arrays, keys, count)
            self._streams[name] = Stream(stream.leaves, (*stream.shards, entry))

    def put(self, name: str, tree: Any) -> None:
        """Keeps a state, in the place of the one before.

        Args:
            name: The state: letters, digits, `-` and `_`.
            tree: A pytree of arrays, numbers and typed random keys.

        Raises:
            StoreError: If a leaf is of another type, or the file cannot be written.
        """
        _check_name(name)
        arrays, keys = encode(named(tree, f"the parts of {name!r}"), f"the state {name!r}")
        index = self._before.transactions + 1
        file = file_of("states", name, index)
        self._states[name] = self._write(file, name, index, arrays, keys)

    def note(self, **values: Any) -> None:
        """Keeps small values in the manifest, each in the place of the one before.

        Args:
            values: Strings, numbers, lists and dictionaries of them.

        Raises:
            StoreError: If a value has no place in JSON.
        """
        for name, value in values.items():
            self._notes[name] = plain(value, name)

    def result(self) -> Manifest:
        """The manifest of the run with all of this in it."""
        return self._before.followed(notes=self._notes, states=self._states, streams=self._streams)

    def _write(
        self,
        file: str,
        name: str,
        index: int,
        arrays: dict[str, np.ndarray],
        keys: dict[str, str],
        draws: int = 0,
    ) -> Entry:
        metadata = {**shard_metadata(self._before.run, name, index), **keys}
        path = self._folder / file
        check_folders(self._folder)
        try:
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as opened:
                written = write_tensors(opened, arrays, metadata)
        except OSError as error:
            size = sum(array.nbytes for array in arrays.values())
            raise StoreError(
                f"the file {path} ({size:,} bytes) cannot be written ({error.strerror or error}); "
                "what was kept before is whole: make room and continue the run."
            ) from error
        return Entry(file, written.bytes, written.sha256, index, draws)


def _check_name(name: str) -> None:
    if not is_plain_name(name):
        raise StoreError(
            f"got the name {name!r:.300}, expected up to 200 letters, digits, '-' and '_': it "
            "becomes part of the name of a file."
        )


def _count(name: str, arrays: dict[str, np.ndarray]) -> int:
    first = next(iter(arrays))
    for leaf, array in arrays.items():
        if not array.shape:
            raise StoreError(
                f"the leaf {leaf!r} for the stream {name!r} is a scalar, expected a leading axis "
                "of draws."
            )
        if len(array) != len(arrays[first]):
            raise StoreError(
                f"the leaf {leaf!r} for the stream {name!r} has {len(array)} draws, expected "
                f"{len(arrays[first])} as {first!r} has."
            )
    return len(arrays[first])


def _check_leaves(name: str, got: dict[str, Any], expected: dict[str, Any]) -> None:
    for leaf in [*expected, *got]:
        if got.get(leaf) != expected.get(leaf):
            here, there = (
                "is missing" if x is None else f"is {x[0]} of shape {x[1]}"
                for x in (got.get(leaf), expected.get(leaf))
            )
            raise StoreError(
                f"the leaf {leaf!r} for the stream {name!r} {here}, and in the draws before it "
                f"{there}: a stream holds draws of one kind, begin another."
            )
