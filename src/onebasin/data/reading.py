"""Files of data sets, read as if a stranger had made them: bounded, and no error but ours."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from onebasin._core.files import FileError, open_regular
from onebasin.data.errors import DataError

# What small files may unpack to, and how many times their size larger ones: pictures and tables
# take a tenth of their room when they are compressed, bombs a thousandth.
FREE = 2**26
RATIO = 16


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[IO[bytes]]:
    """A regular file, open; whatever goes wrong with it ends in an error that names it.

    A link is followed: the folder is the user's own.

    Args:
        path: The file.
        what: What it should be, as "a gzip file".

    Raises:
        DataError: If it is something else.
    """
    try:
        with open_regular(path, follow=True) as file:
            yield file
    except DataError:
        raise
    except FileError as error:
        raise DataError(f"{error}: put {what} there.") from error
    # Decoders of pictures, archives and numbers raise what they like.
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"the file {path} is not {what}, or was cut off ({said}).") from error


def size_of(file: IO[bytes]) -> int:
    """The bytes of an open file."""
    return os.fstat(file.fileno()).st_size


def largest(size: int) -> int:
    """How many bytes a file of some size may unpack to."""
    return max(FREE, RATIO * size)


def check_unpacked(size: int, packed: int, where: str) -> None:
    """Refuses what unpacks to more than data of its size would.

    Args:
        size: The bytes that it says it unpacks to.
        packed: The bytes of the file.
        where: What says so, for the message.
    """
    if size > largest(packed):
        raise DataError(
            f"{where} unpacks to {size:,} bytes, expected at most {largest(packed):,} from a file "
            f"of {packed:,} bytes: do not trust it."
        )


class Unpacked:
    """What a gzip file holds, in order, and never more than data of its size would.

    Args:
        path: The file, for the message.
        file: The file, open.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._packed, self._given = path, size_of(file), 0
        self._stream = gzip.GzipFile(fileobj=file)

    def read(self, size: int) -> bytes:
        """The next bytes: fewer at the end."""
        check_unpacked(self._given + size, self._packed, f"the file {self._path}")
        content = self._stream.read(size)
        self._given += len(content)
        return content


def member(archive: zipfile.ZipFile, name: str, path: Path, packed: int) -> bytes:
    """One file of a zip file.

    Args:
        archive: The zip file.
        name: The name in it.
        path: The zip file's own name, for the message.
        packed: The bytes of the zip file.

    Raises:
        KeyError: If there is none of this name.
        DataError: If it is larger than it may be, or packed in an unusual way.
    """
    info = archive.getinfo(name)
    where = f"{name!r:.100} in the file {path}"
    # The other methods cannot be told where to stop.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise DataError(
            f"{where} is packed in another way than deflate, expected a plain zip file."
        )
    check_unpacked(info.file_size, packed, where)
    with archive.open(info) as opened:
        # What the entry says of its size need not be so.
        content = opened.read(info.file_size)
        if len(content) < info.file_size or opened.read(1):
            raise DataError(f"{where} has not the {info.file_size:,} bytes that its header says.")
    return content


def npz(path: Path, *names: str) -> tuple[np.ndarray, ...]:
    """Arrays of numbers from an npz file.

    Args:
        path: The file.
        names: What they are called in it.

    Raises:
        DataError: If it is no such file, lacks one, or holds something else than numbers.
    """
    said = " and ".join(names)
    with reading(path, f"an npz file with {said}") as file, zipfile.ZipFile(file) as archive:
        packed = size_of(file)
        return tuple(_npy(member(archive, f"{name}.npy", path, packed), name) for name in names)


def _npy(content: bytes, name: str) -> np.ndarray:
    if content[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{name} is not an array")
    start = 10 + int.from_bytes(content[8:10], "little")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(io.BytesIO(content[8:start]))
    if dtype.kind not in "biuf" or any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"{name} holds {dtype}, expected numbers")
    found = np.frombuffer(content, dtype, offset=start)
    return found.reshape(shape, order="F" if fortran else "C")
