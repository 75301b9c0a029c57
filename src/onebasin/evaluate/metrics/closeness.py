"""How close two predictives are: agreement and total variation, as izmailov2021what has them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from onebasin.evaluate.metrics import checks


def agreement(p: Any, q: Any, *, sample_weight: Any = None) -> jax.Array:
    """The share of examples for which two predictives have the same most probable class.

    Args:
        p: Probabilities (example, class), or (sample, example, class), which are averaged.
        q: The same for another posterior.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> float(metrics.agreement([[0.9, 0.1], [0.6, 0.4]], [[0.7, 0.3], [0.4, 0.6]]))
        0.5
    """
    p, q = checks.pair(p, q)
    return checks.average(same_class(p, q), sample_weight)


def total_variation(p: Any, q: Any, *, sample_weight: Any = None) -> jax.Array:
    """The mean over examples of 1/2 sum_c abs(p_c - q_c), from 0 to 1.

    Args:
        p: Probabilities (example, class), or (sample, example, class), which are averaged.
        q: The same for another posterior.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> round(float(metrics.total_variation([[0.9, 0.1]], [[0.7, 0.3]])), 4)
        0.2
    """
    p, q = checks.pair(p, q)
    return checks.average(half_distance(p, q), sample_weight)


def same_class(p: jax.Array, q: jax.Array) -> jax.Array:
    """Per example, whether the most probable classes are the same."""
    return jnp.argmax(p, axis=-1) == jnp.argmax(q, axis=-1)


def half_distance(p: jax.Array, q: jax.Array) -> jax.Array:
    """Per example, half the L1 distance."""
    return 0.5 * jnp.sum(jnp.abs(p - q), axis=-1)
