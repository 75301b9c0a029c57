"""Safetensors files, whoever wrote them: the header is checked before anything is believed of it.

Only regular files are read. What is read is copied, so that it stays what it was when the file is
edited or cut; a map of the file is made where it is asked for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onebasin._core.files import FileError, open_regular
from onebasin.store.errors import StoreError
from onebasin.store.tensors import DTYPES, SEAL, Checksum, checksum_of

# More than any header of a file of ours; safetensors itself has the same bound.
LARGEST_HEADER = 100_000_000
MOST_AXES = 32
SLICE = 2**24

State = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Header:
    """What a file says of itself: its metadata; type, shape and place of every tensor."""

    metadata: dict[str, str]
    dtypes: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    starts: dict[str, int]


class TensorFile:
    """A safetensors file that is open for reading, in part or as a whole.

    What was opened stays the same file when another takes its name.

    Args:
        path: The file.
        follow: Whether a link is followed, as it is where the user named the file.

    Raises:
        OSError: If it cannot be opened.
        FileError: If it is no regular file.
        StoreError: If it is not a safetensors file, or was cut off.
    """

    def __init__(self, path: str | os.PathLike[str], *, follow: bool = False) -> None:
        self.path = Path(path)
        with open_regular(path, follow=follow) as file:
            self._file = io.FileIO(os.dup(file.fileno()))
        self.close = weakref.finalize(self, self._file.close)
        self._seeking = threading.Lock()
        self.size = os.fstat(self._file.fileno()).st_size
        try:
            self.header = _parsed(self._text(), self.size)
        except ValueError as error:
            raise StoreError(
                f"the file {path} ({self.size:,} bytes) is not a safetensors file, or was "
                "cut off while it was written"
            ) from error

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state(self) -> State:
        """What changes whenever somebody writes to the file."""
        found = os.fstat(self._file.fileno())
        times = (found.st_mtime_ns, found.st_ctime_ns)
        return (found.st_dev, found.st_ino, found.st_size, *times)

    def sha256(self) -> str:
        """The hash of the file, which is read for it in slices."""
        digest = hashlib.sha256()
        for part in self._slices(0, self.size):
            digest.update(part)
        return digest.hexdigest()

    def is_whole(self) -> bool:
        """Whether the file is what its own checksum says, for which it is read in slices."""
        said = self.header.metadata
        checksum = Checksum({name: value for name, value in said.items() if name != SEAL})
        for name in sorted(self.header.shapes):
            shape, dtype = self.header.shapes[name], self.dtype(name)
            checksum.name(name, dtype, shape)
            start = self.header.starts[name]
            for part in self._slices(start, start + math.prod(shape) * dtype.itemsize):
                checksum.update(part)
        return checksum.hexdigest() == said.get(SEAL)

    def dtype(self, name: str) -> np.dtype:
        """The type of a tensor.

        Raises:
            StoreError: If NumPy has it not.
        """
        kind = self.header.dtypes[name]
        if kind not in DTYPES:
            raise StoreError(
                f"the file {self.path} has the tensor {name!r} of type {kind}, which NumPy has not"
            )
        return DTYPES[kind]

    def tensor(self, name: str, first: int = 0, last: int | None = None) -> np.ndarray:
        """A tensor, or its rows from `first` to before `last`, in memory of its own."""
        shape = self.header.shapes[name]
        if last is not None:
            shape = (last - first, *shape[1:])
        out = np.empty(shape, self.dtype(name))
        row = _row_bytes(self, name) if last is not None else 0
        self.read_into(bytes_of(out), self.header.starts[name] + first * row)
        return out

    def read_into(self, part: memoryview, start: int) -> None:
        """Fills a piece of memory with what lies from a place on.

        Raises:
            StoreError: If the file ends before.
        """
        done = 0
        with self._seeking:
            self._file.seek(start)
            while done < len(part):
                count = self._file.readinto(part[done:])
                if not count:
                    raise StoreError(f"the file {self.path} was cut off while it was read")
                done += count

    def arrays(self, *, mapped: bool = False) -> dict[str, np.ndarray]:
        """All tensors, read-only: a copy, or a map, which follows what happens to the file."""
        for name in self.header.dtypes:
            self.dtype(name)
        if mapped:
            content = np.asarray(np.memmap(self._file, np.uint8, "r"))
        else:
            content = np.empty(self.size, np.uint8)
            self.read_into(content.data, 0)
            content.flags.writeable = False
        return {name: self._view(content, name) for name in self.header.dtypes}

    def _slices(self, start: int, stop: int) -> Iterator[memoryview]:
        """What lies between two places; each slice takes the memory of the one before."""
        piece = memoryview(bytearray(min(stop - start, SLICE)))
        for place in range(start, stop, SLICE):
            part = piece[: min(SLICE, stop - place)]
            self.read_into(part, place)
            yield part

    def _view(self, content: np.ndarray, name: str) -> np.ndarray:
        dtype, shape = self.dtype(name), self.header.shapes[name]
        start = self.header.starts[name]
        stop = start + math.prod(shape) * dtype.itemsize
        return content[start:stop].view(dtype).reshape(shape)

    def _text(self) -> bytes:
        start = bytearray(8)
        if self.size < len(start):
            raise ValueError("too short")
        self.read_into(memoryview(start), 0)
        length = int.from_bytes(start, "little")
        if length > min(self.size - len(start), LARGEST_HEADER):
            raise ValueError("the header is longer than the file")
        text = bytearray(length)
        self.read_into(memoryview(text), len(start))
        return bytes(text)


def read_tensors(
    path: str | os.PathLike[str], *, mapped: bool = False, follow: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a file, as `TensorFile` has them."""
    with TensorFile(path, follow=follow) as file:
        return file.arrays(mapped=mapped), dict(file.header.metadata)


def is_whole(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bool:
    """Whether arrays are those that the checksum in the metadata with them is of."""
    rest = {name: value for name, value in metadata.items() if name != SEAL}
    return checksum_of(arrays, rest) == metadata.get(SEAL)


def bytes_of(array: np.ndarray) -> memoryview:
    """The memory of an array that lies in one piece."""
    return array.reshape(-1).view(np.uint8).data


def why(error: Exception) -> str:
    """Why a file could not be read, as a clause that begins with a verb."""
    if isinstance(error, PermissionError):
        return f"may not be read ({error.strerror})"
    if isinstance(error, FileError):
        return f"cannot be read ({error})"
    return f"cannot be read ({getattr(error, 'strerror', None) or error})"


def _row_bytes(file: TensorFile, name: str) -> int:
    return math.prod(file.header.shapes[name][1:]) * file.dtype(name).itemsize


def _parsed(text: bytes, size: int) -> Header:
    """A header, after the same checks that safetensors makes."""
    try:
        # Nothing in it may be nested, as what follows finds.
        content = json.loads(text.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("the header is nested") from error
    if not isinstance(content, dict):
        raise ValueError("the header is no object")
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or any(type(x) is not str for x in metadata.values()):
        raise ValueError("the metadata are not strings")
    body = 8 + len(text)
    dtypes, shapes, starts, places = {}, {}, {}, []
    for text_of_file in (*content, *metadata, *metadata.values()):
        # Half a character, which JSON can hold and no file can: an error of this kind.
        text_of_file.encode("utf-8")
    for name, entry in content.items():
        dtypes[name], shapes[name], place = _entry(entry)
        starts[name] = body + place[0]
        places.append(place)
    end = 0
    for start, stop in sorted(places):
        if start != end:
            raise ValueError("the tensors do not lie side by side")
        end = stop
    if body + end != size:
        raise ValueError("the tensors do not fill the file")
    return Header(metadata, dtypes, shapes, starts)


def _entry(entry: Any) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """Type, shape and place of a tensor."""
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError) as error:
        raise ValueError("a tensor is not described by type, shape and place") from error
    if type(dtype) is not str or type(shape) is not list:
        raise ValueError("type or shape of a tensor are none")
    if len(entry) != 3 or len(shape) > MOST_AXES:
        raise ValueError("a tensor has other parts, or too many axes")
    for count in (*shape, start, stop):
        if type(count) is not int or not 0 <= count < 2**62:
            raise ValueError("shape or place of a tensor cannot be")
    # NumPy counts the bytes of an empty array as if it had one element along each axis.
    if 0 in shape and math.prod(n for n in shape if n) >= 2**58:
        raise ValueError("the shape of a tensor cannot be")
    size = stop - start
    fits = math.prod(shape) * DTYPES[dtype].itemsize == size if dtype in DTYPES else size >= 0
    if not fits:
        raise ValueError("the shape of a tensor does not fit its place")
    return dtype, tuple(shape), (start, stop)
