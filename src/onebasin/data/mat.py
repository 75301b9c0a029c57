"""Arrays of numbers from MATLAB files of version 5, and nothing else that such files can hold."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from onebasin.data.reading import check_unpacked, largest, reading, size_of

HEADER = 128
COMPRESSED, MATRIX = 15, 14
# By the number of a type on disk, and by the number of a class in MATLAB: the first may be smaller.
STORED = dict(zip((1, 2, 3, 4, 5, 6, 7, 9, 12, 13), "bBhHiIfdqQ", strict=True))
CLASSES = dict(zip(range(6, 16), "dfbBhHiIqQ", strict=True))


def read_mat(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """Arrays of a MATLAB file by name.

    Args:
        path: The file.
        names: The arrays.

    Raises:
        DataError: If it is no such file, or lacks one.
    """
    said = " and ".join(names)
    with reading(path, f"a MATLAB file of version 5 with {said}") as file:
        packed = size_of(file)
        content = memoryview(file.read(packed))
        if bytes(content[124:HEADER]) != b"\0\1IM":
            raise ValueError("it has another header")
        found: dict[str, np.ndarray] = {}
        for kind, element in _elements(content[HEADER:]):
            if kind == COMPRESSED:
                kind, element = _unpacked(element, packed, path)
            if kind == MATRIX:
                found |= _array(element, names)
        return tuple(found[name] for name in names)


def _elements(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and content of one element after the other."""
    while len(content) >= 8:
        kind, size = struct.unpack("<II", content[:8])
        if kind >> 16:
            # Up to four bytes stand where the size would.
            yield kind & 0xFFFF, content[4 : 4 + (kind >> 16)]
            content = content[8:]
            continue
        if size > len(content) - 8:
            raise ValueError(f"an element of {size:,} bytes is cut off")
        yield kind, content[8 : 8 + size]
        # Of what is in an array each part begins at a multiple of eight.
        content = content[8 + (size if kind == COMPRESSED else -(-size // 8) * 8) :]


def _unpacked(element: memoryview, packed: int, path: Path) -> tuple[int, memoryview]:
    stream = zlib.decompressobj()
    start = stream.decompress(element, 8)
    kind, size = struct.unpack("<II", start)
    check_unpacked(size, packed, f"an array in the file {path}")
    content = stream.decompress(stream.unconsumed_tail, min(size, largest(packed)) + 1)
    if len(content) != size or not stream.eof:
        raise ValueError(f"an array has not the {size:,} bytes that its header says")
    return kind, memoryview(content)


def _array(element: memoryview, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The array by its name; nothing if it is not wanted, or holds no real numbers."""
    parts = list(_elements(element))
    (_, flags), (_, shape), (_, name) = parts[:3]
    number, complicated = flags[0], flags[1] & 8
    if bytes(name).decode("ascii") not in names or number not in CLASSES or complicated:
        return {}
    sizes = np.frombuffer(shape, "<i4").tolist()
    stored, data = parts[3]
    values = np.frombuffer(data, "<" + STORED[stored])
    if min(sizes) < 0 or math.prod(sizes) != len(values):
        raise ValueError(f"{len(values):,} numbers stand for the shape {sizes}")
    array = values.reshape(sizes, order="F").astype(CLASSES[number], copy=False)
    return {bytes(name).decode("ascii"): array}
