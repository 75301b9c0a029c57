"""A stream of draws on disk, read in part."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onebasin.store.errors import StoreError
from onebasin.store.leaves import arranged, decode, nested
from onebasin.store.tensors import DTYPES, map_tensors


class StoredStream:
    """Draws that lie in shards; only what is asked for is read, by memory map.

    `stream[10:20]` is a tree of NumPy arrays with a leading axis of draws, `stream[3]` a tree
    without it; a nested dictionary by the paths of the leaves, or in the structure of `like`. An
    array from within one shard is a read-only view of the file.

    Args:
        folder: The folder of the run.
        name: The name of the stream.
        files: The shards in order, each with its number of draws.
        leaves: Type and shape of one draw of every leaf.
        keys: Which leaves are random keys, and of which kind.
        like: A tree in whose structure draws are returned.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        files: Sequence[tuple[str, int]],
        leaves: dict[str, tuple[str, tuple[int, ...]]],
        keys: dict[str, str],
        like: Any = None,
    ) -> None:
        self.name = name
        self._folder = folder
        self._files = [file for file, _ in files]
        self._starts = np.cumsum([0, *(draws for _, draws in files)]).tolist()
        self._leaves = leaves
        self._keys = keys
        self._like = like
        self._mapped: dict[int, dict[str, np.ndarray]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what is mapped: another process maps the files itself."""
        return {**self.__dict__, "_folder": self._folder.resolve(), "_mapped": {}}

    def files(self) -> list[tuple[str, int, int]]:
        """The shards: path, bytes and time of their last change."""
        places = [(self._folder / file).resolve() for file in self._files]
        return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in places]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the leaves."""
        return tuple(self._leaves)

    @property
    def num_shards(self) -> int:
        """Number of files that the draws lie in."""
        return len(self._files)

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
        if path not in self._leaves:
            raise StoreError(
                f"the stream {self.name!r} has no leaf {path!r}; it has {', '.join(self.paths)}."
            )
        return decode(self._read(path, index), self._keys.get(path))

    def __repr__(self) -> str:
        shards = f"{self.num_shards} shard{'s' * (self.num_shards != 1)}"
        first = ", ".join(self.paths[:3]) + ", ..." * (len(self.paths) > 3)
        return f"StoredStream({self.name!r}: {len(self):,} draws in {shards}, leaves {first})"

    def _read(self, path: str, index: Any) -> np.ndarray:
        if isinstance(index, int | np.integer):
            if not -len(self) <= index < len(self):
                raise IndexError(f"there is no draw {index}: there are {len(self)}")
            return self._read(path, slice(index % len(self), index % len(self) + 1))[0]
        pieces = [self._shard(shard)[path][rows] for shard, rows in self._pieces(index)]
        if not pieces:
            dtype, shape = self._leaves[path]
            return np.empty((0, *shape), DTYPES[dtype])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

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

    def _shard(self, shard: int) -> dict[str, np.ndarray]:
        if shard not in self._mapped:
            try:
                self._mapped[shard] = map_tensors(self._folder / self._files[shard])
            except OSError as error:
                raise StoreError(
                    f"the file {self._folder / self._files[shard]} cannot be read "
                    f"({error.strerror or error}); read what is left with damaged='skip'."
                ) from error
        return self._mapped[shard]
