"""Numbers from files of others, as parameters have them: what would change them is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.posterior.trees import is_float
from onebasin.store.errors import CheckpointError
from onebasin.store.leaves import widened

FLOATS = ("F64", "F32", "F16", "BF16")
INTEGERS = ("I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8")


def check_type(path: Path, name: str, kind: str, leaf: Any) -> None:
    """Refuses a tensor that is not of the kind of numbers that the model has there.

    Args:
        path: The file.
        name: The tensor.
        kind: Its type, as safetensors writes it.
        leaf: The leaf of the model that it is for.
    """
    good: tuple[str, ...]
    if is_float(leaf):
        good, wanted = FLOATS, "floating point"
    elif jnp.result_type(leaf).kind == "b":
        good, wanted = ("BOOL",), "truth values, as the model has"
    else:
        good, wanted = INTEGERS, "integers, as the model has"
    if kind not in good:
        raise CheckpointError(
            f"the file {path} has the tensor {name!r} of type {kind}, expected {wanted}: "
            "convert it."
        )


def as_parameter(path: Path, name: str, array: np.ndarray) -> jax.Array:
    """An array as JAX has it, in memory of its own; half precision becomes float32.

    Args:
        path: The file.
        name: The tensor.
        array: Its numbers.

    Raises:
        CheckpointError: If JAX has no type that its numbers fit into.
    """
    ours = jax.dtypes.canonicalize_dtype(array.dtype)
    if ours == array.dtype:
        return widened(array)
    with np.errstate(over="ignore"):
        narrowed = array.astype(ours)
    lost = (narrowed != array) if array.dtype.kind != "f" else np.isinf(narrowed) & ~np.isinf(array)
    if lost.any():
        example = array[lost].flat[0]
        raise CheckpointError(
            f"the file {path} has the tensor {name!r} of type {array.dtype} with the value "
            f"{example!s}, which does not fit into {ours}: switch on jax_enable_x64, or mend the "
            "file."
        )
    return jnp.array(narrowed)


def warn_unless_finite(path: Path, leaves: dict[str, jax.Array]) -> None:
    """Says so where numbers of a file without a checksum are no numbers."""
    counts = {
        name: int((~np.isfinite(x)).sum()) for name, x in leaves.items() if x.dtype.kind in "fV"
    }
    name = next((name for name, count in counts.items() if count), None)
    if name is not None:
        warnings.warn(
            f"the file {path} has {counts[name]:,} values that are NaN or infinite in the tensor "
            f"{name!r}{' and others' if sum(map(bool, counts.values())) > 1 else ''}: the network "
            "diverged, or the file is damaged.",
            stacklevel=4,
        )
