"""Examples as a problem holds them: on the device, every number as it was, and each of them one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.posterior.trees import is_float, named_leaves


def on_device(tree: Any, what: str) -> Any:
    """Arrays as JAX holds them; whole numbers that it would cut to other ones are refused.

    Args:
        tree: NumPy or JAX arrays, or a tree of them.
        what: What to call them in an error.
    """

    def put(leaf: Any) -> jax.Array:
        _check_width(leaf, what)
        # What overflows is infinite, and refused as such.
        with np.errstate(over="ignore"):
            return jnp.asarray(leaf)

    return jax.tree.map(put, tree)


def _check_width(leaf: Any, what: str) -> None:
    if isinstance(leaf, jax.Array) or not np.issubdtype(np.asarray(leaf).dtype, np.integer):
        return
    array = np.asarray(leaf)
    kept = jax.dtypes.canonicalize_dtype(array.dtype)
    limits = np.iinfo(kept)
    if not array.size or kept == array.dtype:
        return
    bad = (array < limits.min) | (array > limits.max)
    if bad.any():
        place = first_place(bad)
        raise ValueError(
            f"{what} hold {array[place]} at {place_told(place)}, expected whole numbers from "
            f"{limits.min} to {limits.max}, as JAX keeps {limits.bits} bits: number them anew, or "
            "switch on jax_enable_x64"
        )


def check_data(tree: Any, what: str) -> None:
    """Refuses NaN and infinite numbers, naming the first place."""
    for path, leaf in named_leaves(tree):
        if isinstance(leaf, jax.core.Tracer) or not is_float(leaf) or _all_finite(leaf):
            continue
        array = np.asarray(leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)))
        bad = ~np.isfinite(array)
        place = first_place(bad)
        where = what if path == "params" else f"{what} ({path})"
        raise ValueError(
            f"{where} hold {array[place]} at {place_told(place)}, and {int(bad.sum()):,} such "
            f"numbers among {array.size:,}, expected finite ones: leave those examples out, or "
            "fill the numbers in"
        )


@jax.jit
def _all_finite(leaf: jax.Array) -> jax.Array:
    return jnp.all(jnp.isfinite(leaf))


def first_place(bad: np.ndarray) -> tuple[int, ...]:
    """The index of the first true entry."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))


def place_told(place: tuple[int, ...]) -> str:
    """An index as people say it: of a table, row and column."""
    if len(place) == 1:
        return f"example {place[0]}"
    if len(place) == 2:
        return f"example {place[0]}, column {place[1]}"
    return f"example {place[0]}, place {place[1:]}"
