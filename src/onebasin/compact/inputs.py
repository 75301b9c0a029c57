"""Inputs beyond the training set, for distilling: made of training inputs, labelled by the draws.

A network has more weights than there are examples, and on the examples themselves every network
that was trained on them is sure: what tells posteriors apart lies beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

Extra = Callable[[jax.Array, Any], Any]


def mixtures(key: jax.Array, inputs: Any, copies: int = 1) -> Any:
    """Mixtures of two inputs with uniform weights, `copies` times as many as there are inputs."""
    for_pair, for_weight = jax.random.split(key)
    count = jax.tree.leaves(inputs)[0].shape[0]
    pairs = jax.random.split(for_pair, copies)
    other = jax.vmap(lambda k: jax.random.permutation(k, count))(pairs).ravel()
    one = jnp.tile(jnp.arange(count), copies)
    weight = jax.random.uniform(for_weight, (count * copies,))

    def mixed(x: jax.Array) -> jax.Array:
        w = weight.reshape(-1, *[1] * (x.ndim - 1))
        if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
            return jnp.round(w * x[one] + (1 - w) * x[other]).astype(x.dtype)
        w = w.astype(x.dtype)
        return w * x[one] + (1 - w) * x[other]

    return jax.tree.map(mixed, inputs)


def shifts(
    key: jax.Array, inputs: jax.Array, shape: Sequence[int], pixels: int = 1, copies: int = 1
) -> jax.Array:
    """Images moved by up to `pixels` up or down and left or right, the border drawn out.

    Args:
        key: Random key.
        inputs: Images, as they are or flattened.
        shape: Height, width and, if there are any, channels.
        pixels: The longest move.
        copies: How often each image is taken.
    """
    height, width = shape[:2]
    count = inputs.shape[0] * copies
    moves = jax.random.randint(key, (2, count), -pixels, pixels + 1)
    rows = jnp.clip(jnp.arange(height) + moves[0][:, None], 0, height - 1)
    columns = jnp.clip(jnp.arange(width) + moves[1][:, None], 0, width - 1)
    images = inputs.reshape(inputs.shape[0], *shape)
    which = jnp.tile(jnp.arange(inputs.shape[0]), copies)[:, None, None]
    moved = images[which, rows[:, :, None], columns[:, None, :]]
    return moved.reshape(count, *inputs.shape[1:])


def together(*extras: Extra) -> Extra:
    """What several such functions give, one after the other."""

    def made(key: jax.Array, inputs: Any) -> Any:
        keys = jax.random.split(key, len(extras))
        return joined(*(extra(k, inputs) for extra, k in zip(extras, keys, strict=True)))

    return made


def joined(*several: Any) -> Any:
    """Inputs one after the other, in the type of the first."""
    return jax.tree.map(
        lambda first, *rest: jnp.concatenate([first, *(jnp.asarray(x, first.dtype) for x in rest)]),
        *several,
    )
