"""Things as messages: pickled, with their large arrays in files of the shared directory.

An array's file is named by its hash, so that many things share it and a file that is there need not
be written again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from onebasin._core.files import FileError, check_own_folder, open_regular, replacing
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
        _own_inputs(directory).mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(save({"array": raw}))
    return digest, array.dtype.name, array.shape, on_device


def _loaded(place: Any, directory: Path) -> Any:
    digest, dtype, shape, on_device = place
    path = _own_inputs(directory) / f"{digest}.safetensors"
    try:
        with open_regular(path):
            raw = load_file(path)["array"]
    except (OSError, FileError) as error:
        why = getattr(error, "strerror", None) or error
        raise EngineError(
            f"the file {path} cannot be read ({why}): every worker must see the shared directory"
        ) from error
    except (SafetensorError, KeyError) as error:
        raise EngineError(f"the file {path} is damaged ({error}): remove it") from error
    if hashlib.sha256(raw.data).hexdigest() != digest:
        raise EngineError(f"the file {path} has changed since it was written: remove it")
    if on_device:
        import jax.numpy as jnp

        return jnp.asarray(raw.view(jnp.dtype(dtype)).reshape(shape))
    return raw.view(np.dtype(dtype)).reshape(shape)


def _own_inputs(directory: Path) -> Path:
    """Where arrays lie, once it is seen that this is no link out of the shared directory."""
    try:
        return check_own_folder(directory / FOLDER)
    except FileError as error:
        raise EngineError(f"{error}: remove it, or name another shared directory") from error
