"""A stream of draws on disk, read in part."""

from __future__ import annotations

import bisect
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onebasin.store.damage import faults, sentence
from onebasin.store.errors import DamageWarning, StoreError
from onebasin.store.hashes import sha256_known
from onebasin.store.leaves import arranged, decode, nested
from onebasin.store.reading import bytes_of
from onebasin.store.records import Entry, Manifest, Stream
from onebasin.store.shards import Shards
from onebasin.store.states import read_keys
from onebasin.store.tensors import DTYPES


class StoredStream:
    """Draws that lie in shards; only what is asked for is read.

    `stream[10:20]` is a tree of NumPy arrays with a leading axis of draws, `stream[3]` a tree
    without it; a nested dictionary by the paths of the leaves, or in the structure of `like`. A
    shard is compared with its hash before the first of its draws is believed, and again when
    somebody has touched the file since. What is read is a copy.

    Args:
        folder: The folder of the run.
        run: The name that all files of the run carry.
        name: The name of the stream.
        shards: The shards in order.
        leaves: Type and shape of one draw of every leaf.
        keys: Which leaves are random keys, and of which kind.
        like: A tree in whose structure draws are returned.
        mapped: Whether an array from within one shard is a read-only map of the file, which
            follows what happens to it.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        name: str,
        shards: Sequence[Entry],
        leaves: dict[str, tuple[str, tuple[int, ...]]],
        keys: dict[str, str],
        like: Any = None,
        mapped: bool = False,
    ) -> None:
        self.name = name
        self._folder = folder
        self._entries = tuple(shards)
        self._starts = np.cumsum([0, *(entry.draws for entry in shards)]).tolist()
        self._leaves = leaves
        self._keys = keys
        self._like = like
        self._mapped = mapped
        self._shards = Shards(folder, run, name, Stream(leaves, self._entries))

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which may stand in another folder."""
        folder = self._folder.resolve()
        return {**self.__dict__, "_folder": folder, "_shards": self._shards.placed(folder)}

    def files(self) -> list[tuple[str, int, int]]:
        """The shards: path, bytes and time of their last change."""
        found = []
        for place in [(self._folder / entry.file).resolve() for entry in self._entries]:
            try:
                state = place.stat()
            except OSError as error:
                raise StoreError(
                    f"the file {place} cannot be read ({error.strerror or error}): restore it."
                ) from error
            found.append((str(place), state.st_size, state.st_mtime_ns))
        return found

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the leaves."""
        return tuple(self._leaves)

    @property
    def num_shards(self) -> int:
        """Number of files that the draws lie in."""
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes that all draws take in memory."""
        return len(self) * sum(
            math.prod(shape) * DTYPES[dtype].itemsize for dtype, shape in self._leaves.values()
        )

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: Any) -> Any:
        leaves = {path: self.leaf(path, index) for path in self._leaves}
        if self._like is None:
            return nested(leaves)
        return arranged(leaves, self._like, f"the stream {self.name!r}")

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def leaf(self, path: str, index: Any = slice(None)) -> Any:
        """One leaf of some draws, without reading the others.

        Args:
            path: The path of the leaf, one of `paths`.
            index: Which draws: a number, a slice, or an array of numbers or truth values.
        """
        self._check_path(path)
        return decode(self._read(path, index), self._keys.get(path))

    def fill(self, out: np.ndarray, path: str, first: int = 0, draw: int = 0) -> None:
        """Reads some weights of one leaf, and no others, into a table (draw, weight).

        Args:
            out: The table; it says how many draws and weights.
            path: The path of the leaf, one of `paths`.
            first: The first of the weights, counted along the leaf laid out flat.
            draw: The first of the draws.
        """
        self._check_path(path)
        for shard, rows in self._pieces(slice(draw, draw + len(out))):
            place = self._starts[shard] + rows.start - draw
            part = out[place : place + rows.stop - rows.start]
            self._shards.read_columns(shard, path, part, rows.start, first)

    def __repr__(self) -> str:
        shards = f"{self.num_shards} shard{'s' * (self.num_shards != 1)}"
        first = ", ".join(self.paths[:3]) + ", ..." * (len(self.paths) > 3)
        return f"StoredStream({self.name!r}: {len(self):,} draws in {shards}, leaves {first})"

    def _check_path(self, path: str) -> None:
        if path not in self._leaves:
            raise StoreError(
                f"the stream {self.name!r} has no leaf {path!r}; it has {', '.join(self.paths)}."
            )

    def _read(self, path: str, index: Any) -> np.ndarray:
        if isinstance(index, int | np.integer):
            if not -len(self) <= index < len(self):
                raise IndexError(f"there is no draw {index}: there are {len(self)}")
            return self._read(path, slice(index % len(self), index % len(self) + 1))[0]
        pieces = list(self._pieces(index))
        if self._mapped and len(pieces) == 1:
            shard, rows = pieces[0]
            return self._shards.mapped(shard)[path][rows]
        dtype, shape = self._leaves[path]
        counts = [_length(rows) for _, rows in pieces]
        out = np.empty((sum(counts), *shape), DTYPES[dtype])
        start = 0
        for (shard, rows), count in zip(pieces, counts, strict=True):
            self._copy(out[start : start + count], shard, path, rows)
            start += count
        return out

    def _copy(self, out: np.ndarray, shard: int, path: str, rows: Any) -> None:
        """Rows of one shard, those that lie side by side at once."""
        if isinstance(rows, slice):
            self._shards.read_rows(shard, path, bytes_of(out), rows.start)
            return
        cuts = np.flatnonzero(np.diff(rows) != 1) + 1
        for part in np.split(np.arange(len(rows)), cuts):
            piece = bytes_of(out[part[0] : part[-1] + 1])
            self._shards.read_rows(shard, path, piece, int(rows[part[0]]))

    def _pieces(self, index: Any) -> Iterator[tuple[int, Any]]:
        """Which rows of which shards make up some draws, in order."""
        if isinstance(index, slice) and (index.step or 1) == 1:
            start, stop, _ = index.indices(len(self))
            shard = bisect.bisect_right(self._starts, start) - 1
            while start < stop:
                first, last = self._starts[shard], min(self._starts[shard + 1], stop)
                yield shard, slice(start - first, last - first)
                start, shard = last, shard + 1
            return
        rows = np.arange(len(self))[index]
        shards = np.searchsorted(self._starts, rows, side="right") - 1
        for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(shards)) + 1):
            if len(part):
                yield int(shards[part[0]]), rows[part] - self._starts[shards[part[0]]]


def open_stream(
    folder: Path, manifest: Manifest, name: str, like: Any, *, skip: bool, mapped: bool
) -> StoredStream:
    """A stream of a run; with `skip` bad shards are left out, with a warning that names them.

    Raises:
        StoreError: If its first shard is not what the manifest says.
    """
    stream = manifest.streams[name]
    bad = faults(folder, manifest, only=name, hashed=sha256_known) if skip else {}
    good = [entry for entry in stream.shards if entry.file not in bad]
    if bad:
        kept, total = (sum(x.draws for x in part) for part in (good, stream.shards))
        warnings.warn(
            f"{sentence(folder, bad)}: {total - kept:,} of {total:,} draws of {name!r} are left "
            "out.",
            DamageWarning,
            stacklevel=3,
        )
    keys = read_keys(folder, manifest.run, name, good[0], stream) if good else {}
    return StoredStream(folder, manifest.run, name, good, stream.leaves, keys, like, mapped)


def _length(rows: Any) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)
