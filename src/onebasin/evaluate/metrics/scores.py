"""How right a predictive is: accuracy, log loss, Brier score."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from onebasin.evaluate.metrics import checks


def accuracy(y_true: Any, probs: Any, *, sample_weight: Any = None) -> jax.Array:
    """The share of examples whose most probable class is the right one.

    Args:
        y_true: Integer classes (example,).
        probs: Probabilities (example, class), or (sample, example, class), which are averaged.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> float(metrics.accuracy([0, 1], [[0.9, 0.1], [0.6, 0.4]]))
        0.5
    """
    labels, probs = checks.labelled(y_true, probs)
    return checks.average(jnp.argmax(probs, axis=-1) == labels, sample_weight)


def nll(y_true: Any, probs: Any, *, sample_weight: Any = None) -> jax.Array:
    """The negative log likelihood in nats: the mean of -log p(y | x).

    A probability of zero counts as the smallest number of its type (87 nats in single precision).

    Args:
        y_true: Integer classes (example,).
        probs: Probabilities (example, class), or (sample, example, class), which are averaged.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> round(float(metrics.nll([0, 1], [[0.5, 0.5], [0.75, 0.25]])), 4)
        1.0397
    """
    labels, probs = checks.labelled(y_true, probs)
    right = jnp.take_along_axis(probs, labels[:, None], axis=-1)[:, 0]
    return checks.average(-jnp.log(jnp.maximum(right, jnp.finfo(probs.dtype).tiny)), sample_weight)


def brier(y_true: Any, probs: Any, *, sample_weight: Any = None) -> jax.Array:
    """The Brier score of brier1950verification: the mean of sum_c (p_c - [y = c])^2, from 0 to 2.

    Args:
        y_true: Integer classes (example,).
        probs: Probabilities (example, class), or (sample, example, class), which are averaged.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> float(metrics.brier([0], [[0.5, 0.5]]))
        0.5
    """
    labels, probs = checks.labelled(y_true, probs)
    target = jax.nn.one_hot(labels, probs.shape[-1], dtype=probs.dtype)
    return checks.average(jnp.sum((probs - target) ** 2, axis=-1), sample_weight)
