"""Arrays in the memory of this computer, where NumPy does at once what XLA would compile first."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


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
    return jax.tree.map(np.asarray, tree)


def from_host(tree: Any) -> Any:
    """The leaves as JAX arrays."""
    return jax.tree.map(jnp.asarray, tree)
