"""One network, or stacked draws of it, in one safetensors file.

Tensors are keyed by their path in the parameter tree, as `Dense_0/kernel`. The metadata of the
header say `format`, `version`, a checksum and, for stacked draws, how many: `draws`. Files that
other programs wrote, without these metadata, are read by the same rules.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from onebasin._core.files import FileError, replacing
from onebasin.posterior import Draws
from onebasin.store.errors import CheckpointError, StoreError, checked_path
from onebasin.store.leaves import is_key, named
from onebasin.store.reading import TensorFile, why
from onebasin.store.tensors import NAMES, SEAL, Checksum, write_sealed
from onebasin.store.values import as_parameter, check_type, warn_unless_finite

FORMAT = "onebasin-params"
VERSION = 2
# Files of the first version have no checksum.
UNSEALED = 1


def save_params(path: str | os.PathLike[str], params: Any) -> None:
    """Writes a network, or stacked draws, to a safetensors file.

    The file appears under its name when it is complete, with the sha256 of what it holds, by which
    `load_params` notices damage: a run that is cut off leaves what was there before. A link of that
    name is replaced, and what it leads to is left alone.

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
    path = checked_path(path, CheckpointError)
    metadata = {"format": FORMAT, "version": str(VERSION)}
    if isinstance(params, Draws):
        metadata["draws"] = str(len(params))
        params = params.params
    _write(path, {name: _tensor(path, name, x) for name, x in _named(params).items()}, metadata)


def load_params(path: str | os.PathLike[str], like: Any) -> Any:
    """Reads a network, or stacked draws, of a known model.

    The file holds draws if every tensor has one axis more than the model's; that axis is the draw.
    Names may also be written with dots (`Dense_0.kernel`). Half precision is read as float32, and
    float64 stays so only where JAX has 64-bit types switched on; values that float32 cannot hold
    are refused then. Values in files of others that are NaN or infinite come with a warning.

    Args:
        path: The file.
        like: Parameters of one network of the model, or their shapes; the values do not matter.

    Returns:
        Parameters in the structure of `like`, or `Draws` of them.

    Raises:
        CheckpointError: If the file cannot be read, has changed since it was written, or is not of
            this model; it names the first tensor that is missing, is unexpected, or has another
            shape.
    """
    path = checked_path(path, CheckpointError)
    expected = _named(like)
    with _opened(path) as file:
        keys = _matched(path, file.header.shapes, list(expected))
        shapes = {name: file.header.shapes[key] for name, key in keys.items()}
        lead = _check_shapes(path, shapes, {name: np.shape(x) for name, x in expected.items()})
        for name, key in keys.items():
            check_type(path, name, file.header.dtypes[key], expected[name])
        found = _read(file)
    tree = jax.tree.unflatten(jax.tree.structure(like), [found[key] for key in keys.values()])
    return Draws(tree) if lead else tree


def is_sealed(metadata: Mapping[str, str]) -> bool:
    """Whether a file with these metadata has a checksum, or should have."""
    ours = metadata.get("format") == FORMAT and metadata.get("version") != str(UNSEALED)
    return ours or SEAL in metadata


def _read(file: TensorFile) -> dict[str, jax.Array]:
    """All tensors of a file, each read once, and what the checksum says of them."""
    said = file.header.metadata
    checksum = Checksum({name: value for name, value in said.items() if name != SEAL})
    sealed = is_sealed(said)
    found, unfit = {}, None
    for key in sorted(file.header.shapes):
        array = file.tensor(key)
        if sealed:
            checksum.add(key, array)
        try:
            found[key] = as_parameter(file.path, key, array)
        except CheckpointError as error:
            # That the file is damaged is the better reason.
            unfit = unfit or error
    if sealed and checksum.hexdigest() != said.get(SEAL):
        raise CheckpointError(
            f"the file {file.path} has changed since it was written, its sha256 says: take "
            "another copy."
        )
    if unfit is not None:
        raise unfit
    if not sealed:
        warn_unless_finite(file.path, found)
    return found


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
    if not os.path.isdir(path.parent):
        raise CheckpointError(
            f"the file {path} cannot be written: there is no folder {path.parent}."
        )
    try:
        with replacing(path) as file:
            write_sealed(file, tensors, metadata)
    except OSError as error:
        raise CheckpointError(
            f"the file {path} cannot be written ({error.strerror or error}): name another file."
        ) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[TensorFile]:
    if os.path.isdir(path):
        raise CheckpointError(f"{str(path)!r} is a folder, expected a safetensors file.")
    try:
        opened = TensorFile(path, follow=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"there is no file {path}: check the path.") from error
    except (OSError, FileError) as error:
        raise CheckpointError(f"the file {path} {why(error)}.") from error
    except StoreError as error:
        raise CheckpointError(f"{error}: save it again with onebasin.store.save_params.") from error
    with opened as file:
        metadata = file.header.metadata
        version = metadata.get("version", "")
        if metadata.get("format") == FORMAT and version not in (str(UNSEALED), str(VERSION)):
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
