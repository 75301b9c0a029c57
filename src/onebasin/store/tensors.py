"""Named arrays as safetensors files: written whole, and hashed on the way."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import IO, Any

import jax.numpy as jnp
import numpy as np

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
            write(_bytes_of(array))
    return Written(size, digest.hexdigest())


class Checksum:
    """The hash of named arrays and of what is said of them, for a file to carry itself.

    Arrays are added in the order of their names.

    Args:
        metadata: What is said of them.
    """

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self._digest = hashlib.sha256(repr(sorted(metadata.items())).encode())

    def name(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Takes what the next array is called and is."""
        self._digest.update(f"{name} {dtype.name} {shape}".encode())

    def update(self, part: Any) -> None:
        """Takes bytes of the array that was named last."""
        self._digest.update(part)

    def add(self, name: str, array: np.ndarray) -> None:
        """Takes an array."""
        self.name(name, array.dtype, array.shape)
        if array.nbytes:
            self.update(_bytes_of(array))

    def hexdigest(self) -> str:
        """The hash of what was added."""
        return self._digest.hexdigest()


def checksum_of(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> str:
    """The checksum of arrays that are all there."""
    checksum = Checksum(metadata)
    for name in sorted(arrays):
        checksum.add(name, arrays[name])
    return checksum.hexdigest()


def write_sealed(file: Any, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Writes tensors with the hash of all that the file holds."""
    write_tensors(file, arrays, {**metadata, SEAL: checksum_of(arrays, metadata)})


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
