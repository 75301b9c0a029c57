"""Arrays in the memory of this computer, where NumPy does at once what XLA would compile first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ALIGNMENT = 64


def on_host(*trees: Any) -> bool:
    """Whether all leaves have values, and NumPy can read them where they are."""
    return all(map(_readable, jax.tree.leaves(trees)))


def _readable(leaf: Any) -> bool:
    if isinstance(leaf, jax.core.Tracer):
        return False
    if not isinstance(leaf, jax.Array):
        return True
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return False
    return leaf.is_fully_addressable and all(d.platform == "cpu" for d in leaf.devices())


def to_host(tree: Any) -> Any:
    """The leaves as NumPy arrays."""
    return jax.tree.map(as_numpy, tree)


def as_numpy(leaf: Any) -> np.ndarray:
    """An array in NumPy; zeros for random keys, which some states carry and nothing moves."""
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.zeros(leaf.shape, np.uint32)
    return np.asarray(leaf)


def widened(array: Any) -> Any:
    """Floats shorter than single precision as single, which sums are right in; others as is."""
    if not jax.dtypes.issubdtype(array.dtype, np.floating) or array.dtype.itemsize >= 4:
        return array
    return array.astype(np.float32)


def from_host(tree: Any) -> Any:
    """The leaves as JAX arrays."""
    return jax.tree.map(jnp.asarray, tree)


def handed_over(tree: Any) -> Any:
    """The leaves as JAX arrays, without a copy where they are `aligned`; nobody may write to them.

    For arrays that were made to be handed over: memory that is new is dear, and a copy doubles it.
    """
    return jax.tree.map(lambda leaf: jax.device_put(leaf, may_alias=True), tree)


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array without values, at an address that XLA can use as it is."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)


def each(function: Callable[..., Any], xp: Any) -> Callable[..., Any]:
    """A function of one draw, for stacked ones."""
    if xp is not np:
        return jax.vmap(function)

    def mapped(*trees: Any) -> Any:
        count = len(jax.tree.leaves(trees)[0])
        first = function(*jax.tree.map(lambda x: x[0], trees))
        found = jax.tree.map(lambda x: aligned((count, *x.shape), x.dtype), first)
        for i in range(count):
            one = function(*jax.tree.map(lambda x, i=i: x[i], trees)) if i else first
            for many, part in zip(jax.tree.leaves(found), jax.tree.leaves(one), strict=True):
                many[i] = part
        return found

    return mapped
