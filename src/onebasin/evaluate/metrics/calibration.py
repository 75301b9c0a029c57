"""Whether confidence is kept: calibration errors.

Both are sum_b w_b abs(accuracy_b - confidence_b) over bins b of the confidence, which is the
probability of the most probable class, w_b the share of examples in the bin.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from onebasin.evaluate.metrics import checks


def ece(y_true: Any, probs: Any, *, num_bins: int = 15, sample_weight: Any = None) -> jax.Array:
    """The expected calibration error of guo2017calibration, with bins of equal width.

    Args:
        y_true: Integer classes (example,).
        probs: Probabilities (example, class), or (sample, example, class), which are averaged.
        num_bins: Number of bins (low, high] from 0 to 1.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> round(float(metrics.ece([0, 1], [[0.9, 0.1], [0.9, 0.1]])), 4)
        0.4
    """
    confidence, right = _confidence(y_true, probs, num_bins)
    bins = jnp.clip(jnp.ceil(confidence * num_bins) - 1, 0, num_bins - 1)
    return _error(confidence, right, bins, num_bins, sample_weight)


def adaptive_ece(
    y_true: Any, probs: Any, *, num_bins: int = 15, sample_weight: Any = None
) -> jax.Array:
    """The calibration error with bins of equally many examples, after nixon2019measuring.

    Of the most probable class alone: examples are sorted by confidence and cut into equal parts.

    Args:
        y_true: Integer classes (example,).
        probs: Probabilities (example, class), or (sample, example, class), which are averaged.
        num_bins: Number of bins.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]
        >>> round(float(metrics.adaptive_ece([0, 0, 0, 1], probs, num_bins=2)), 4)
        0.15
    """
    confidence, right = _confidence(y_true, probs, num_bins)
    weight = checks.weights(sample_weight, len(confidence))
    order = jnp.argsort(confidence)
    confidence, right, weight = confidence[order], right[order], weight[order]
    middle = (jnp.cumsum(weight) - 0.5 * weight) / jnp.sum(weight)
    bins = jnp.clip(jnp.floor(middle * num_bins), 0, num_bins - 1)
    return _error(confidence, right, bins, num_bins, weight)


def _confidence(y_true: Any, probs: Any, num_bins: int) -> tuple[jax.Array, jax.Array]:
    if num_bins < 1:
        raise ValueError(f"got num_bins={num_bins}, expected at least one bin")
    labels, probs = checks.labelled(y_true, probs)
    return jnp.max(probs, axis=-1), jnp.argmax(probs, axis=-1) == labels


def _error(
    confidence: jax.Array, right: jax.Array, bins: jax.Array, num_bins: int, sample_weight: Any
) -> jax.Array:
    weight = checks.weights(sample_weight, len(confidence))
    gap = weight * (right - confidence)
    sums = jnp.zeros(num_bins, gap.dtype).at[bins.astype(int)].add(gap)
    return jnp.sum(jnp.abs(sums)) / jnp.sum(weight)
