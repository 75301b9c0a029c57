"""What the group must be, found from numbers alone: slow, general, for tiny networks."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from .case import as_float64

Apply = Callable[[Any, Any], Any]


def scaling_dimension_bound(
    apply_fn: Apply, params: Any, inputs: Any, key: jax.Array, tolerance: float = 1e-9
) -> int:
    """Bound the dimension of the scaling group from above.

    A direction v of log-scales leaves f alone iff J(p) diag(p) v = 0 for all parameters p and
    inputs, where J is the Jacobian of f: so it lies in the null space of these matrices, stacked
    over random p and inputs. Parameters whose columns vanish do not count: f does not see them.

    Args:
        apply_fn: the model.
        params: its parameters; a leaf without negative entries is kept so.
        inputs: its inputs; floating ones are drawn anew each time.
        key: for the draws.
        tolerance: singular values below this fraction of the largest count as zero.

    Returns:
        The dimension of the null space.
    """
    with jax.enable_x64(True):
        flat, unravel = ravel_pytree(as_float64(params))
        positive = _per_leaf(params, lambda leaf: jnp.all(leaf >= 0)) > 0
        size = _per_leaf(params, lambda leaf: jnp.sqrt(jnp.mean(jnp.square(leaf))))
        inputs = as_float64(inputs)

        def outputs(log_scales: jax.Array, flat: jax.Array, inputs: Any) -> jax.Array:
            moved = unravel(flat * (1 + log_scales))
            return ravel_pytree(apply_fn(moved, inputs))[0]

        @jax.jit
        def rows(key: jax.Array) -> jax.Array:
            scale_key, sign_key, inputs_key = jax.random.split(key, 3)
            draw = size * jnp.exp(0.5 * jax.random.normal(scale_key, flat.shape))
            flip = jax.random.bernoulli(sign_key, 0.5, flat.shape) & ~positive
            draw = jnp.where(flip, -draw, draw)
            return jax.jacrev(outputs)(jnp.zeros_like(flat), draw, _redraw(inputs, inputs_key))

        stacked = np.zeros((0, flat.size))
        num_draws = num_rows = 0
        while num_draws < 40 or num_rows < 3 * flat.size:
            key, draw_key = jax.random.split(key)
            block = np.asarray(rows(draw_key))
            num_draws, num_rows = num_draws + 1, num_rows + len(block)
            stacked = np.concatenate([stacked, block])
            if len(stacked) > 3 * flat.size:
                stacked = np.linalg.qr(stacked, mode="r")
    norms = np.linalg.norm(stacked, axis=0)
    seen = norms > 1e-12 * norms.max()
    singular = np.linalg.svd(stacked[:, seen] / norms[seen], compute_uv=False)
    return int(seen.sum() - np.sum(singular > tolerance * singular[0]))


def sign_flips_bruteforce(
    apply_fn: Apply, params: Any, inputs: Any, by_leaf: bool = False, tolerance: float = 1e-9
) -> int:
    """Count the sign vectors that leave the outputs alone, the identity among them.

    Args:
        apply_fn: the model.
        params: its parameters, in general position, at most 18 of them.
        inputs: its inputs.
        by_leaf: try only signs that are the same all over a leaf (at most 18 leaves): the
            subgroup that acts on whole arrays. A leaf that the outputs do not see doubles it.
        tolerance: the largest relative change of the outputs.

    Returns:
        Their number, a power of two.
    """
    with jax.enable_x64(True):
        params, inputs = as_float64(params), as_float64(inputs)
        flat, unravel = ravel_pytree(params)
        leaf_sizes = [leaf.size for leaf in jax.tree.leaves(params)]
        of_leaf = np.repeat(np.arange(len(leaf_sizes)), leaf_sizes)
        owner = of_leaf if by_leaf else np.arange(flat.size)
        count = len(leaf_sizes) if by_leaf else flat.size
        if count > 18:
            raise ValueError(f"Got {count} signs to try, expected at most 18: 2^{count} are many.")

        def outputs(signs: jax.Array) -> jax.Array:
            return ravel_pytree(apply_fn(unravel(flat * signs[owner]), inputs))[0]

        reference = outputs(jnp.ones(count))
        largest = jnp.max(jnp.abs(reference))
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=count)))
        run = jax.jit(jax.vmap(outputs))
        found = 0
        for block in np.array_split(signs, math.ceil(len(signs) / 1024)):
            change = jnp.max(jnp.abs(run(block) - reference), axis=-1)
            found += int(jnp.sum(change <= tolerance * largest))
    return found


def _per_leaf(params: Any, statistic: Callable[[jax.Array], jax.Array]) -> jax.Array:
    return ravel_pytree(
        jax.tree.map(lambda leaf: jnp.full(leaf.shape, statistic(leaf), jnp.float64), params)
    )[0]


def _redraw(inputs: Any, key: jax.Array) -> Any:
    leaves, structure = jax.tree.flatten(inputs)
    keys = jax.random.split(key, len(leaves))
    drawn = [
        jax.random.normal(k, leaf.shape, leaf.dtype)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
        else leaf
        for k, leaf in zip(keys, leaves, strict=True)
    ]
    return structure.unflatten(drawn)
