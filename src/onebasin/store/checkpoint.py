"""One network, or stacked draws of it, in one safetensors file.

Tensors are keyed by their path in the parameter tree, as `Dense_0/kernel`. The metadata of the
header say `format`, `version` and, for stacked draws, how many: `draws`. Files that other programs
wrote, without these metadata, are read by the same rules.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open

from onebasin.posterior import Draws
from onebasin.posterior.trees import is_float
from onebasin.store.errors import CheckpointError, StoreError
from onebasin.store.leaves import is_key, named, widened
from onebasin.store.tensors import NAMES, replacing, write_tensors

FORMAT = "onebasin-params"
VERSION = 1
FLOATS = ("F64", "F32", "F16", "BF16")
WHOLE = ("I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")


def save_params(path: str | os.PathLike[str], params: Any) -> None:
    """Writes a network, or stacked draws, to a safetensors file.

    The file appears under its name when it is complete: a run that is cut off leaves what was
    there before.

    Args:
        path: The file. Its folder must exist.
        params: Parameters, any pytree of arrays; or `Draws`, of which the parameters are kept, in
            their order, and not what else is known of each draw.

    Raises:
        CheckpointError: If a leaf is not an array of numbers, or the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> import jax.numpy as jnp
        >>> from onebasin.store import load_params, save_params
        >>> params = {"Dense_0": {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_params(os.path.join(folder, "a.safetensors"), params)
        ...     load_params(os.path.join(folder, "a.safetensors"), like=params)["Dense_0"]["bias"]
        Array([0., 0.], dtype=float32)
    """
    path = Path(path)
    metadata = {"format": FORMAT, "version": str(VERSION)}
    if isinstance(params, Draws):
        metadata["draws"] = str(len(params))
        params = params.params
    _write(path, {name: _tensor(path, name, x) for name, x in _named(params).items()}, metadata)


def load_params(path: str | os.PathLike[str], like: Any) -> Any:
    """Reads a network, or stacked draws, of a known model.

    The file holds draws if every tensor has one axis more than the model's; that axis is the draw.
    Names may also be written with dots (`Dense_0.kernel`). Half precision is read as float32, and
    float64 stays so only where JAX has 64-bit types switched on.

    Args:
        path: The file.
        like: Parameters of one network of the model, or their shapes; the values do not matter.

    Returns:
        Parameters in the structure of `like`, or `Draws` of them.

    Raises:
        CheckpointError: If the file cannot be read, or is not of this model; it names the first
            tensor that is missing, is unexpected, or has another shape.
    """
    path = Path(path)
    expected = _named(like)
    with _opened(path) as file:
        keys = _matched(path, file.keys(), list(expected))
        parts = {name: file.get_slice(key) for name, key in keys.items()}
        shapes = {name: tuple(part.get_shape()) for name, part in parts.items()}
        types = {name: part.get_dtype() for name, part in parts.items()}
        lead = _check_shapes(path, shapes, {name: np.shape(x) for name, x in expected.items()})
        _check_types(path, types, expected)
        leaves = [widened(file.get_tensor(key)) for key in keys.values()]
    tree = jax.tree.unflatten(jax.tree.structure(like), leaves)
    return Draws(tree) if lead else tree


def _named(tree: Any) -> dict[str, Any]:
    try:
        return named(tree, "the parameters")
    except StoreError as error:
        raise CheckpointError(str(error)) from None


def _tensor(path: Path, name: str, leaf: Any) -> np.ndarray:
    array = np.asarray(0j if is_key(leaf) else leaf)
    if array.dtype not in NAMES or array.dtype.kind == "c":
        what = "a random key" if is_key(leaf) else f"of type {array.dtype}"
        raise CheckpointError(
            f"the file {path} cannot hold the leaf {name!r}, which is {what}: keep everything "
            "but real numbers out of the parameters."
        )
    return array


def _write(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    if not path.parent.is_dir():
        raise CheckpointError(
            f"the file {path} cannot be written: there is no folder {path.parent}."
        )
    try:
        with replacing(path) as file:
            write_tensors(file, tensors, metadata)
    except OSError as error:
        raise CheckpointError(
            f"the file {path} cannot be written ({error.strerror or error}): name another file."
        ) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if path.is_dir():
        raise CheckpointError(f"{str(path)!r} is a folder, expected a safetensors file.")
    if not path.exists():
        raise CheckpointError(f"there is no file {path}: check the path.")
    try:
        opened = safe_open(path, framework="np")
    except OSError as error:
        raise CheckpointError(
            f"the file {path} cannot be read ({error.strerror or error})."
        ) from error
    except SafetensorError as error:
        raise CheckpointError(
            f"the file {path} ({path.stat().st_size:,} bytes) is not a safetensors file, or was "
            "cut off while it was written: save it again with onebasin.store.save_params."
        ) from error
    with opened as file:
        metadata = file.metadata() or {}
        version = metadata.get("version", "")
        if metadata.get("format") == FORMAT and version != str(VERSION):
            raise CheckpointError(
                f"the file {path} has version {version!r} of its format, and this onebasin "
                f"reads {VERSION}: update onebasin."
            )
        yield file


def _matched(path: Path, keys: Iterable[str], names: list[str]) -> dict[str, str]:
    """Which key of the file is which leaf, in the order of the leaves."""
    left = dict.fromkeys(keys)
    found = {name: name for name in names if name in left}
    for name in found:
        del left[name]
    slashed = {key.replace(".", "/"): key for key in left}
    for name in names:
        key = slashed.get(name.replace(".", "/"))
        if name not in found and key in left:
            found[name] = key
            del left[key]
    other = next(iter(left), None)
    missing = next((name for name in names if name not in found), None)
    if missing is not None:
        instead = f", but has {other!r}, which the model has not" if other is not None else ""
        raise CheckpointError(
            f"the file {path} has no tensor {missing!r}{instead}: it is the file of another "
            "model, or its tensors are named in another way."
        )
    if other is not None:
        raise CheckpointError(
            f"the file {path} has a tensor {other!r}, which the model has not: it is the file of "
            "another model."
        )
    return {name: found[name] for name in names}


def _check_shapes(
    path: Path, shapes: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """The leading axis that every tensor has in front: (draws,) or none."""
    stacked = all(len(shape) == len(expected[name]) + 1 for name, shape in shapes.items())
    lead = next(iter(shapes.values()))[:1] if stacked else ()
    for name, shape in shapes.items():
        wanted = (*lead, *expected[name])
        if shape != wanted:
            raise CheckpointError(
                f"the file {path} has the tensor {name!r} of shape {shape}, and the model "
                f"expects {wanted}: it is the file of another model."
            )
    if lead == (0,):
        raise CheckpointError(
            f"the file {path} holds an empty population: its tensors have 0 draws."
        )
    return lead


def _check_types(path: Path, types: dict[str, str], expected: dict[str, Any]) -> None:
    for name, kind in types.items():
        if kind not in (FLOATS if is_float(expected[name]) else WHOLE):
            wanted = "floating point" if is_float(expected[name]) else "integers, as the model has"
            raise CheckpointError(
                f"the file {path} has the tensor {name!r} of type {kind}, expected {wanted}: "
                "convert it."
            )
