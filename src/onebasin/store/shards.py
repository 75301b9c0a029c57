"""The shards of a stream, open for reading; nothing of one is believed before its hash fits."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from onebasin._core.files import inside
from onebasin.store.damage import fault_of, sentence, unread, way_back
from onebasin.store.errors import StoreError
from onebasin.store.hashes import sha256_known
from onebasin.store.reading import State, TensorFile, bytes_of
from onebasin.store.records import Stream
from onebasin.store.tensors import DTYPES

# Systems let a process have about a thousand files open.
MOST_OPEN = 128
TRIES = 3


class Shards:
    """The files of a stream, of which those used last are kept open.

    Args:
        folder: The folder of the run.
        run: The name that its files carry.
        name: The name of the stream.
        stream: What the manifest says of it.
    """

    def __init__(self, folder: Path, run: str, name: str, stream: Stream) -> None:
        self._folder = folder
        self._run = run
        self._name = name
        self._stream = stream
        self._open: dict[int, tuple[TensorFile, State]] = {}
        self._maps: dict[int, dict[str, np.ndarray]] = {}
        self._opening = threading.Lock()

    def __reduce__(self) -> Any:
        """Without what is open."""
        return Shards, (self._folder, self._run, self._name, self._stream)

    def placed(self, folder: Path) -> Shards:
        """The same shards, in a folder by another name."""
        return Shards(folder, self._run, self._name, self._stream)

    def read_rows(self, shard: int, leaf: str, part: memoryview, row: int) -> None:
        """Fills a piece of memory with draws of one leaf, from a row of a shard on."""
        if len(part):
            start = row * self._row_bytes(leaf)
            self._read(shard, lambda file: file.read_into(part, file.header.starts[leaf] + start))

    def read_columns(self, shard: int, leaf: str, out: np.ndarray, row: int, first: int) -> None:
        """Fills a table (draw, weight) from a row of a shard and a weight of a leaf on."""
        dtype, stride = self._dtype(leaf), self._row_bytes(leaf)
        direct = out.dtype == dtype and out.strides[1] == out.itemsize
        line = np.empty(0 if direct else out.shape[1], dtype)

        def read(file: TensorFile) -> None:
            start = file.header.starts[leaf] + row * stride + first * dtype.itemsize
            for number in range(len(out)):
                target = out[number] if direct else line
                file.read_into(bytes_of(target), start + number * stride)
                if not direct:
                    out[number] = line

        if out.size:
            self._read(shard, read)

    def mapped(self, shard: int) -> dict[str, np.ndarray]:
        """The tensors of a shard as a map of its file, which was whole when it was made."""
        if shard not in self._maps:
            file, _ = self._whole(shard)
            self._maps[shard] = file.arrays(mapped=True)
        return self._maps[shard]

    def _read(self, shard: int, read: Callable[[TensorFile], None]) -> None:
        """Reads from a shard that is whole, before and after."""
        for _ in range(TRIES):
            file, state = self._whole(shard)
            try:
                read(file)
            except OSError as error:
                raise self._bad(shard, f"cannot be read ({error.strerror or error})") from error
            if file.state() == state:
                return
        raise self._bad(shard, "is being changed while it is read")

    def _whole(self, shard: int) -> tuple[TensorFile, State]:
        """An open shard that its hash vouches for, and the state in which it does."""
        with self._opening:
            if shard not in self._open:
                self._open[shard] = self._opened(shard)
            # Taken out and put in again, the one used last stands last.
            file, opened = self._open[shard] = self._open.pop(shard)
            if len(self._open) > MOST_OPEN:
                # Whoever still reads from it has it open until that is done.
                self._open.pop(next(iter(self._open)))
        entry, state = self._stream.shards[shard], file.state()
        if not entry.sha256 and state != opened:
            raise self._bad(shard, "has changed since it was opened")
        if entry.sha256 and sha256_known(file) != entry.sha256:
            raise self._bad(shard, "was edited since it was opened, its sha256 says")
        return file, state

    def _opened(self, shard: int) -> tuple[TensorFile, State]:
        entry = self._stream.shards[shard]
        try:
            file = TensorFile(inside(self._folder, entry.file))
        except (OSError, ValueError) as error:
            raise self._bad(shard, unread(self._folder, entry, error)) from error
        state = file.state()
        clause = fault_of(file, self._run, self._name, entry, self._stream)
        if clause:
            raise self._bad(shard, clause)
        return file, state

    def _bad(self, shard: int, clause: str) -> StoreError:
        said = sentence(self._folder, {self._stream.shards[shard].file: clause})
        return StoreError(
            f"{said}: {way_back(self._folder)}, or read what is left with damaged='skip'."
        )

    def _row_bytes(self, leaf: str) -> int:
        dtype, shape = self._stream.leaves[leaf]
        return math.prod(shape) * DTYPES[dtype].itemsize

    def _dtype(self, leaf: str) -> np.dtype:
        return DTYPES[self._stream.leaves[leaf][0]]
