"""State dicts in files: safetensors, and pickles as long as they hold nothing but tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.torch.errors import ConversionError
from onebasin.torch.state import entries, owners
from onebasin.torch.tensors import is_float, numpy_dtype, pytorch, to_numpy

PICKLES = (".pt", ".pth", ".bin", ".ckpt")
# What training scripts wrap around the names, and around the state dict itself.
PREFIXES = ("module.", "model.", "net.", "_orig_mod.")
WRAPPERS = ("state_dict", "model_state_dict", "model")


def read_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a state dict in a file, as they are.

    Args:
        path: A safetensors file, or one that `torch.save` wrote (.pt, .pth, .bin, .ckpt), which
            is opened with `weights_only=True`: a file that would run code is refused.

    Returns:
        Arrays by name.

    Raises:
        ConversionError: If it cannot be read, or holds something else.
    """
    path = Path(path)
    if not path.is_file():
        raise ConversionError(f"there is no file {path}: check the path")
    found = _unpickled(path) if path.suffix in PICKLES else _safetensors(path)
    for wrapper in WRAPPERS:
        inside = found.get(wrapper) if isinstance(found, Mapping) else None
        if isinstance(inside, Mapping):
            found = inside
    torch = pytorch()
    if not isinstance(found, Mapping) or not all(
        isinstance(x, torch.Tensor) for x in found.values()
    ):
        raise ConversionError(
            f"the file {path} holds something else than tensors by name: save "
            "module.state_dict() alone"
        )
    return {name: to_numpy(x.cpu(), f"{name!r} in {path}") for name, x in found.items()}


def load_checkpoint(path: str | os.PathLike[str], module: Any) -> dict[str, jax.Array]:
    """Reads a state dict from a file as parameters of a module, which stays as it is.

    Half precision becomes the precision of the module. Prefixes that wrappers add (`module.`,
    `model.`, `net.`, `_orig_mod.`) and integer buffers are passed over.

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
    path = Path(path)
    tensors = {_bare(name): x for name, x in read_tensors(path).items()}
    expected = {_bare(name): name for name in entries(module)}
    owner = owners(module)
    targets = entries(module)
    for bare in [*expected, *tensors]:
        needed = bare not in expected or targets[expected[bare]].is_floating_point()
        tied = bare in expected and owner[expected[bare]] != expected[bare]
        if (bare in tensors and bare in expected) or not needed or tied:
            continue
        if bare in tensors and bare.endswith("num_batches_tracked"):
            continue
        has, other = ("has no", "has one") if bare in expected else ("has a", "has none")
        raise ConversionError(
            f"the file {path} {has} tensor {bare!r}, and the module {other}: it is the file of "
            "another module"
        )
    params = {}
    for bare, name in expected.items():
        kind = numpy_dtype(targets[name].dtype, repr(name))
        if owner[name] != name or not is_float(kind):
            continue
        array = tensors[bare]
        if array.shape != tuple(targets[name].shape):
            raise ConversionError(
                f"the file {path} has the tensor {bare!r} of shape {array.shape}, and the module "
                f"expects {tuple(targets[name].shape)}: it is the file of another module"
            )
        params[name] = jnp.array(array.astype(kind))
    return params


def save_pickle(path: Path, state: Mapping[str, Any]) -> None:
    """Writes a state dict with `torch.save`; the file appears when it is complete.

    Raises:
        ConversionError: If it cannot be written.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        pytorch().save(dict(state), partial)
        partial.replace(path)
    except (OSError, RuntimeError) as error:
        partial.unlink(missing_ok=True)
        raise ConversionError(
            f"the file {path} cannot be written: check its folder, and the space that is left"
        ) from error


def _bare(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _unpickled(path: Path) -> Any:
    torch = pytorch()
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ConversionError(
            f"the file {path} cannot be opened with weights_only=True, so that it holds more than "
            "tensors or is damaged: save module.state_dict() alone, best as safetensors"
        ) from error


def _safetensors(path: Path) -> Any:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:
        raise ConversionError(
            f"the file {path} ({path.stat().st_size:,} bytes) is not a safetensors file: files of "
            f"torch.save are known by the endings {', '.join(PICKLES)}"
        ) from error
