"""Named arrays as safetensors files: written whole and hashed on the way, read by memory map."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open

from onebasin.store.errors import StoreError

DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
    "C64": np.dtype(np.complex64),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNMENT = 8
# The name of a checksum among the metadata of the file that it is of.
SEAL = "sha256"


@dataclasses.dataclass(frozen=True)
class Written:
    """What was written: the size of the file and its hash."""

    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Header:
    """What a file says of itself: its metadata, and type and shape of every tensor."""

    metadata: dict[str, str]
    dtypes: dict[str, str]
    shapes: dict[str, tuple[int, ...]]


def write_tensors(
    file: IO[bytes], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> Written:
    """Writes arrays in the safetensors format and hashes the bytes as they pass.

    Args:
        file: Open for writing, at its start.
        tensors: Arrays by name, of the types in `DTYPES`.
        metadata: Strings by name, for the header.
    """
    # Wide types first keeps every tensor aligned, as safetensors itself does.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in ordered:
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    digest = hashlib.sha256()
    size = 0

    def write(part: Any) -> None:
        nonlocal size
        file.write(part)
        digest.update(part)
        size += len(part)

    write(len(text).to_bytes(8, "little"))
    write(text)
    for _, array in ordered:
        if array.nbytes:
            # safetensors writes the memory as it lies, whatever its order.
            write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return Written(size, digest.hexdigest())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete and on the disk, or not at all."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Brings the names in a folder onto the disk, where the system has a way to."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_header(path: Path) -> Header:
    """The header of a file, after safetensors has checked it against the size of the file.

    Raises:
        OSError: If the file cannot be read.
        StoreError: If it is not a safetensors file, or was cut off.
    """
    try:
        with safe_open(path, framework="np") as file:
            parts = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
            return Header(
                file.metadata() or {},
                {key: part.get_dtype() for key, part in parts.items()},
                {key: tuple(part.get_shape()) for key, part in parts.items()},
            )
    except SafetensorError as error:
        raise StoreError(
            f"the file {path} ({path.stat().st_size:,} bytes) is not a safetensors file, or was "
            "cut off while it was written"
        ) from error


def map_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, read-only and not read before they are used.

    Raises:
        OSError: If the file cannot be read.
        StoreError: If it is not a safetensors file, was cut off, or has a type without a NumPy one.
    """
    for name, dtype in read_header(path).dtypes.items():
        if dtype not in DTYPES:
            raise StoreError(
                f"the file {path} has the tensor {name!r} of type {dtype}, which NumPy has not"
            )
    return parse(np.memmap(path, np.uint8, "r"))


def parse(content: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays in the bytes of a checked safetensors file, without copying them."""
    size = int.from_bytes(content[:8].tobytes(), "little")
    header: dict[str, Any] = json.loads(content[8 : 8 + size].tobytes())
    header.pop("__metadata__", None)
    body = np.asarray(content[8 + size :])
    arrays = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        arrays[name] = body[start:stop].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def sha256_of(path: Path) -> str:
    """The hash of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_of(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    """The hash of named arrays and of what is said of them, for a file to carry itself."""
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.name} {array.shape}".encode())
        if array.nbytes:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write_sealed(file: Any, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Writes tensors with the hash of all that the file holds."""
    write_tensors(file, arrays, {**metadata, SEAL: checksum_of(arrays, metadata)})
