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
    Where f jumps, J does not see all, and this is no bound.

    Args:
        apply_fn: the model.
        params: its parameters; see `draws`.
        inputs: its inputs; floating ones are drawn anew each time.
        key: for the draws.
        tolerance: singular values below this fraction of the largest count as zero.

    Returns:
        The dimension of the null space.
    """
    with jax.enable_x64(True):
        draw, unravel, size = draws(params, inputs)

        def outputs(log_scales: jax.Array, flat: jax.Array, inputs: Any) -> jax.Array:
            return ravel_pytree(apply_fn(unravel(flat * (1 + log_scales)), inputs))[0]

        @jax.jit
        def rows(key: jax.Array) -> jax.Array:
            return jax.jacrev(outputs)(jnp.zeros(size), *draw(key))

        stacked = np.zeros((0, size))
        num_draws = num_rows = 0
        while num_draws < 40 or num_rows < 3 * size:
            key, draw_key = jax.random.split(key)
            block = np.asarray(rows(draw_key))
            num_draws, num_rows = num_draws + 1, num_rows + len(block)
            stacked = np.concatenate([stacked, block])
            if len(stacked) > 3 * size:
                stacked = np.asarray(np.linalg.qr(stacked, mode="r"))
    norms = np.linalg.norm(stacked, axis=0)
    seen = norms > 1e-12 * norms.max()
    singular = np.linalg.svd(stacked[:, seen] / norms[seen], compute_uv=False)
    return int(seen.sum() - np.sum(singular > tolerance * singular[0]))


def sign_flips_bruteforce(
    apply_fn: Apply, params: Any, inputs: Any, by_leaf: bool = False, tolerance: float = 1e-9
) -> int:
    """Count the sign vectors that leave f alone, for random parameters; the identity is one.

    Args:
        apply_fn: the model.
        params: its parameters, at most 18 of them; see `draws`.
        inputs: its inputs; floating ones are drawn anew each time.
        by_leaf: try only signs that are the same all over a leaf (at most 18 leaves): the
            subgroup that acts on whole arrays. A leaf that the outputs do not see doubles it.
        tolerance: the largest relative change of the outputs.

    Returns:
        Their number, a power of two.
    """
    with jax.enable_x64(True):
        draw, unravel, size = draws(params, inputs)
        leaf_sizes = [leaf.size for leaf in jax.tree.leaves(params)]
        count = len(leaf_sizes) if by_leaf else size
        owner = np.repeat(np.arange(count), leaf_sizes if by_leaf else 1)
        if count > 18:
            raise ValueError(f"Got {count} signs to try, expected at most 18: 2^{count} are many.")

        @jax.jit
        def unchanged(signs: jax.Array, key: jax.Array) -> jax.Array:
            flat, drawn = draw(key)

            def outputs(signs: jax.Array) -> jax.Array:
                return ravel_pytree(apply_fn(unravel(flat * signs[owner]), drawn))[0]

            reference = outputs(jnp.ones(count))
            change = jnp.abs(jax.vmap(outputs)(signs) - reference)
            # Not the largest change: XLA's maximum may lose a NaN on its way.
            return jnp.all(change <= tolerance * jnp.max(jnp.abs(reference)), axis=-1)

        left = np.array(list(itertools.product((1.0, -1.0), repeat=count)))
        block = min(len(left), 1024)
        for key in jax.random.split(jax.random.key(0), 12):
            # Whole blocks, so that one compilation serves all.
            padded = np.resize(left, (math.ceil(len(left) / block) * block, count))
            parts = padded.reshape(-1, block, count)
            kept = [unchanged(part, jax.random.clone(key)) for part in parts]
            left = left[np.concatenate(kept)[: len(left)]]
    return len(left)


def draws(
    params: Any, inputs: Any
) -> tuple[Callable[[jax.Array], tuple[jax.Array, Any]], Callable[[jax.Array], Any], int]:
    """A function that draws flat parameters and inputs, how to unravel them, and their number.

    A leaf keeps its root mean square, and has random signs unless all its entries are positive.
    """
    params, inputs = as_float64(params), as_float64(inputs)
    flat, unravel = ravel_pytree(params)
    positive = _per_leaf(params, lambda leaf: jnp.all(leaf >= 0)) > 0
    size = _per_leaf(params, lambda leaf: jnp.sqrt(jnp.mean(jnp.square(leaf))))
    leaves, structure = jax.tree.flatten(inputs)

    def draw(key: jax.Array) -> tuple[jax.Array, Any]:
        scale_key, sign_key, *inputs_keys = jax.random.split(key, 2 + len(leaves))
        drawn = size * jnp.exp(0.5 * jax.random.normal(scale_key, flat.shape))
        flip = jax.random.bernoulli(sign_key, 0.5, flat.shape) & ~positive
        new = [
            jax.random.normal(inputs_key, leaf.shape, leaf.dtype)
            if jnp.issubdtype(leaf.dtype, jnp.floating)
            else leaf
            for inputs_key, leaf in zip(inputs_keys, leaves, strict=True)
        ]
        return jnp.where(flip, -drawn, drawn), jax.tree.unflatten(structure, new)

    return draw, unravel, flat.size


def _per_leaf(params: Any, statistic: Callable[[jax.Array], jax.Array]) -> jax.Array:
    return ravel_pytree(
        jax.tree.map(lambda leaf: jnp.full(leaf.shape, statistic(leaf), jnp.float64), params)
    )[0]
