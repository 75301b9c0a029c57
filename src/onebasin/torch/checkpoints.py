"""Checkpoints: state dicts in files as parameters of a module, and back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from onebasin._core.files import replacing
from onebasin.torch.errors import ConversionError
from onebasin.torch.files import PICKLES, read_tensors, tensors_in
from onebasin.torch.modules import unwrapped
from onebasin.torch.prefixes import PREFIXES, matched
from onebasin.torch.state import check_width, entries, owners
from onebasin.torch.tensors import is_float, numpy_dtype, pytorch, to_numpy

__all__ = ["PICKLES", "PREFIXES", "load_checkpoint", "read_tensors", "save_pickle"]


def load_checkpoint(path: str | os.PathLike[str], module: Any) -> dict[str, jax.Array]:
    """Reads a state dict from a file as parameters of a module, which stays as it is.

    Half precision becomes the precision of the module. Prefixes that wrappers add (`module.`,
    `model.`, `net.`, `_orig_mod.`) and integer buffers are passed over. A tensor of another shape
    or kind of number, one that the precision of the module cannot hold, and NaN or infinity where
    the module has none, are refused.

    Args:
        path: A safetensors file, or a .pt file with nothing but tensors in it.
        module: The module, or another of the same architecture.

    Returns:
        Parameters as `from_torch` gives them; `to_torch` writes them into a module.

    Raises:
        ConversionError: If the file cannot be read or is not of this module; it names the first
            tensor that differs.

    Example:
        >>> import onebasin as ob
        >>> params = ob.torch.load_checkpoint("weights.safetensors", module)  # doctest: +SKIP
    """
    path, module = Path(path), unwrapped(module)
    tensors, targets, owner = tensors_in(path), entries(module), owners(module)
    keys = matched(f"the file {path}", tensors, targets)
    # Shapes of all before entries of any: what a small file repeats may be large.
    for name, key in keys.items():
        _check_shape(path, key, tensors[key], targets[name])
    source = _sources(path, tensors, keys, owner)
    _check_complete(path, tensors, targets, keys, source)
    return {
        name: _param(path, key, tensors[key], targets[name])
        for name, key in source.items()
        if targets[name].is_floating_point()
    }


def save_pickle(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a state dict with `torch.save`; the file appears when it is complete.

    Raises:
        ConversionError: If it cannot be written.
    """
    try:
        with replacing(path) as file:
            pytorch().save(dict(state), file)
    except (OSError, RuntimeError) as error:
        raise ConversionError(
            f"the file {path} cannot be written: check its folder, and the space that is left"
        ) from error


def _check_shape(path: Path, key: str, tensor: Any, target: Any) -> None:
    if tensor.shape != target.shape:
        raise ConversionError(
            f"the file {path} has the tensor {key!r} of shape {tuple(tensor.shape)}, and the "
            f"module expects {tuple(target.shape)}: it is the file of another module"
        )


def _sources(
    path: Path, tensors: Mapping[str, Any], keys: Mapping[str, str], owner: Mapping[str, str]
) -> dict[str, str]:
    """The tensor of each entry that is no other's: of tied ones any, as all must be the same."""
    source: dict[str, str] = {}
    for name, first in owner.items():
        if name not in keys:
            continue
        key = source.setdefault(first, keys[name])
        if not _same(tensors[key], tensors[keys[name]]):
            raise ConversionError(
                f"the file {path} has other entries in {keys[name]!r} than in {key!r}, which are "
                "one tensor in the module: it is the file of another module"
            )
    return {first: source[first] for first in dict.fromkeys(owner.values()) if first in source}


def _same(one: Any, other: Any) -> bool:
    alike = one.shape == other.shape and one.dtype == other.dtype
    return one is other or bool(alike and pytorch().equal(one, other))


def _check_complete(
    path: Path,
    tensors: Mapping[str, Any],
    targets: Mapping[str, Any],
    keys: Mapping[str, str],
    source: Mapping[str, str],
) -> None:
    own = {id(targets[name]) for name in source}
    for name, target in targets.items():
        if target.is_floating_point() and id(target) not in own:
            raise ConversionError(
                f"the file {path} has no tensor {name!r}, and the module has one: it is the file "
                "of another module"
            )
    used = set(keys.values())
    for key in tensors:
        if key not in used and not key.endswith("num_batches_tracked"):
            raise ConversionError(
                f"the file {path} has a tensor {key!r}, and the module has none: it is the file "
                "of another module"
            )


def _param(path: Path, key: str, tensor: Any, target: Any) -> jax.Array:
    """A tensor as an array of the type that the module has."""
    found, kind = to_numpy(tensor, repr(key), copy=False), numpy_dtype(target.dtype, repr(key))
    if not is_float(found.dtype):
        raise ConversionError(
            f"the file {path} has the tensor {key!r} of type {found.dtype}, and the module expects "
            f"{kind}: it is the file of another module"
        )
    with np.errstate(over="ignore"):
        array = found.astype(kind)
    bad = ~np.isfinite(array)
    if bad.any():
        _refuse_infinite(path, key, found[bad], kind, target)
    param = jax.device_put(array)
    check_width(key, array, param)
    return param


def _refuse_infinite(path: Path, key: str, found: Any, kind: np.dtype, target: Any) -> None:
    """Refuses what is not finite, unless the module has it so itself (masks)."""
    beyond = found[np.isfinite(found)]
    if beyond.size:
        raise ConversionError(
            f"the file {path} has {float(beyond[0]):.3g} in the tensor {key!r} of type "
            f"{found.dtype}, which {kind} of the module cannot hold: call module.to(torch."
            f"{found.dtype}) first"
        )
    if pytorch().isfinite(target).all():
        raise ConversionError(
            f"the file {path} has NaN or infinity in the tensor {key!r}: it is damaged, or of a "
            "training run that diverged"
        )
