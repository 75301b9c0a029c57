"""Unknowns as one vector: samplers then do one operation where a tree would need one per leaf."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def to_vector(tree: Any) -> jax.Array:
    """All leaves, one after the other."""
    return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)])


def default_float() -> Any:
    """The type that plain Python floats get: double precision where that is switched on."""
    return jnp.result_type(float)


def to_sampled_vector(tree: Any) -> jax.Array:
    """All leaves, one after the other, as a sampler's kernel computes with them.

    The kernels' own numbers are of single precision, or double where that is switched on: what
    they move has to be so as well, whatever the type of the weights.
    """
    vector = to_vector(tree)
    return vector.astype(jnp.promote_types(vector.dtype, default_float()))


def from_vector(vector: jax.Array, shapes: Any) -> Any:
    """The tree of given shapes and types whose leaves lie in a vector."""
    leaves, structure = jax.tree.flatten(shapes)
    ends = np.cumsum([int(np.prod(s.shape)) for s in leaves])
    parts = jnp.split(vector, ends[:-1])
    return jax.tree.unflatten(
        structure,
        [p.reshape(s.shape).astype(s.dtype) for p, s in zip(parts, leaves, strict=True)],
    )
