"""Tensors as arrays and back, bit for bit, and what their types are called on the other side."""

from __future__ import annotations

import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.torch.errors import ConversionError

NAMES = {
    "bool": np.dtype(bool),
    "uint8": np.dtype(np.uint8),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(jnp.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}


def pytorch() -> types.ModuleType:
    """The package torch, imported when it is needed."""
    try:
        import torch
    except ImportError as error:
        raise ConversionError(
            "PyTorch is not installed: install the extra with `pip install 'onebasin[torch]'`"
        ) from error
    return torch


def numpy_dtype(dtype: Any, what: str) -> np.dtype:
    """The type of arrays for a type of tensors.

    Args:
        dtype: As torch has it.
        what: Whose type it is, for the error.

    Raises:
        ConversionError: If it is quantised, complex, or otherwise without a counterpart.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in NAMES:
        kind = "complex" if "complex" in name else "quantised" if name.startswith("q") else name
        raise ConversionError(
            f"{what} is of type {dtype}, and {kind} tensors have no rules: convert the module with "
            "real floating-point weights, before it is quantised"
        )
    return NAMES[name]


def to_numpy(tensor: Any, what: str = "a tensor", *, copy: bool = True) -> np.ndarray:
    """The entries of a tensor, in memory of their own unless told otherwise."""
    torch = pytorch()
    wanted = numpy_dtype(tensor.dtype, what)
    # PyTorch's memory is aligned as JAX wants it, so that JAX need not copy it again.
    tensor = tensor.detach().clone() if copy else tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(wanted)
    return tensor.numpy()


def to_tensor(array: Any) -> Any:
    """A tensor with the entries of an array, in memory of its own."""
    torch = pytorch()
    if isinstance(array, torch.Tensor):
        return array.detach().clone()
    array = np.asarray(array)
    if array.dtype == NAMES["bfloat16"]:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    if array.dtype not in NAMES.values():
        raise ConversionError(
            f"got an array of type {array.dtype}, expected numbers of a type that tensors have"
        )
    return torch.from_numpy(np.array(array))


def canonical(dtype: Any) -> np.dtype:
    """A type as JAX has it: 64 bits only where they are switched on."""
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def is_float(dtype: Any) -> bool:
    """Whether a type of arrays is floating point, half precision included."""
    return bool(jnp.issubdtype(dtype, jnp.floating))
