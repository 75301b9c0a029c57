"""Things as messages: pickled, with their large arrays in files of the shared directory.

An array's file is named by its hash, so that many things share it and a file that is there need not
be written again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import pickle
import secrets
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from onebasin.engine.errors import EngineError

LARGE = 2**16
FOLDER = "inputs"


@dataclasses.dataclass(frozen=True)
class Packed:
    """A thing, pickled, and where its arrays are."""

    content: bytes
    digest: str
    directory: str


def pack(pickler: type[Any], value: Any, directory: Path) -> Packed:
    """Pickles a thing; arrays from 64 KiB on become files.

    Args:
        pickler: A class like `pickle.Pickler` that also takes functions by value.
        value: The thing.
        directory: The shared directory.

    Raises:
        OSError: If a file cannot be written.
    """

    class Pickler(pickler):
        def persistent_id(self, thing: Any) -> Any:
            return _stored(thing, directory)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    content = buffer.getvalue()
    return Packed(content, hashlib.sha256(content).hexdigest(), str(directory))


def unpack(packed: Packed) -> Any:
    """The thing again, with its arrays where they were: on the device, or in memory.

    Raises:
        EngineError: If a file is not there, or is not what its name says.
    """

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, place: Any) -> Any:
            return _loaded(place, Path(packed.directory))

    return Unpickler(io.BytesIO(packed.content)).load()


def _stored(thing: Any, directory: Path) -> Any:
    jax = sys.modules.get("jax")
    on_device = jax is not None and isinstance(thing, jax.Array)
    if on_device and jax is not None and jax.dtypes.issubdtype(thing.dtype, jax.dtypes.prng_key):
        return None
    if not (on_device or isinstance(thing, np.ndarray)) or thing.nbytes < LARGE:
        return None
    array = np.asarray(thing)
    if array.dtype.hasobject:
        return None
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    digest = hashlib.sha256(raw.data).hexdigest()
    path = directory / FOLDER / f"{digest}.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{digest}.{os.getpid()}-{secrets.token_hex(4)}.partial")
        try:
            with open(temporary, "xb") as file:
                file.write(save({"array": raw}))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return digest, array.dtype.name, array.shape, on_device


def _loaded(place: Any, directory: Path) -> Any:
    digest, dtype, shape, on_device = place
    path = directory / FOLDER / f"{digest}.safetensors"
    try:
        raw = load_file(path)["array"]
    except OSError as error:
        raise EngineError(
            f"the file {path} cannot be read ({error.strerror or error}): every worker must see "
            "the shared directory"
        ) from error
    if hashlib.sha256(raw.data).hexdigest() != digest:
        raise EngineError(f"the file {path} has changed since it was written: remove it")
    if on_device:
        import jax.numpy as jnp

        return jnp.asarray(raw.view(jnp.dtype(dtype)).reshape(shape))
    return raw.view(np.dtype(dtype)).reshape(shape)
