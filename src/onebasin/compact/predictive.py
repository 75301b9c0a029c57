"""Predictives as the compact fit needs them: averaged over draws, and compared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.posterior import Gaussian
from onebasin.symmetry.host import widened

Apply = Callable[[Any, Any], Any]


def logits(apply_fn: Apply, params: Any, inputs: Any) -> jax.Array:
    """What a network says of every class, (example, class), in no less than single precision.

    Raises:
        ValueError: If it says something else.
    """
    outputs = apply_fn(params, inputs)
    count = jax.tree.leaves(inputs)[0].shape[0]
    shape = getattr(outputs, "shape", None)
    if shape is None or len(shape) < 2 or shape[0] != count or shape[-1] < 2:
        said = f"a {type(outputs).__name__}" if shape is None else f"outputs of shape {shape}"
        raise ValueError(
            f"the model gives {said} for {count} examples, expected logits (example, class) of two "
            "classes or more: fits are chosen and distilled by the classes they predict. For a "
            "regression leave out apply_fn= and inputs=: draws are then aligned by weights, and "
            "their moments are fitted"
        )
    return widened(outputs)


def probabilities(apply_fn: Apply, params: Any, inputs: Any) -> jax.Array:
    """What a network expects of every class, (example, class)."""
    return jax.nn.softmax(logits(apply_fn, params, inputs))


@functools.partial(jax.jit, static_argnums=0)
def of_draws(apply_fn: Apply, stacked: Any, inputs: Any) -> jax.Array:
    """The mean probabilities (example, class) of stacked networks, one after the other."""
    count = jax.tree.leaves(stacked)[0].shape[0]

    def add(total: jax.Array, params: Any) -> tuple[jax.Array, None]:
        return total + probabilities(apply_fn, params, inputs), None

    first = jax.tree.map(lambda x: x[0], stacked)
    shape = jax.eval_shape(lambda: probabilities(apply_fn, first, inputs))
    total, _ = jax.lax.scan(add, jnp.zeros(shape.shape, shape.dtype), stacked)
    return total / count


@functools.partial(jax.jit, static_argnums=(0, 4))
def of_gaussian(
    apply_fn: Apply, q: Gaussian, inputs: Any, key: jax.Array, num_samples: int
) -> jax.Array:
    """The mean probabilities (example, class) of networks drawn from a Gaussian."""

    def add(i: Any, total: jax.Array) -> jax.Array:
        return total + probabilities(apply_fn, q.draw(jax.random.fold_in(key, i)), inputs)

    shape = jax.eval_shape(lambda: probabilities(apply_fn, q.mean, inputs))
    total = jax.lax.fori_loop(0, num_samples, add, jnp.zeros(shape.shape, shape.dtype))
    return total / num_samples


def cross_entropy(target: jax.Array, probs: jax.Array) -> jax.Array:
    """Mean over examples of -sum_c target_c log probs_c, in nats."""
    return -jnp.mean(jnp.sum(target * jnp.log(jnp.maximum(probs, 1e-12)), axis=-1))


def agreement(target: jax.Array, probs: jax.Array) -> float:
    """Share of examples with the same most probable class."""
    return float(jnp.mean(jnp.argmax(target, -1) == jnp.argmax(probs, -1)))


def total_variation(target: jax.Array, probs: jax.Array) -> float:
    """Mean over examples of one half of the L1 distance."""
    return float(0.5 * jnp.mean(jnp.sum(jnp.abs(target - probs), axis=-1)))
