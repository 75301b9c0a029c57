"""How much the networks of a posterior differ in what they predict."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from onebasin.engine import Engine
from onebasin.evaluate.metrics import checks, pairs


def entropy(probs: Any, *, average: bool = True, sample_weight: Any = None) -> jax.Array:
    """The entropy of the predictive in nats, -sum_c p_c log p_c: total uncertainty.

    Args:
        probs: Probabilities (example, class), or (sample, example, class), which are averaged.
        average: Whether to average over examples; False for one value each.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> round(float(metrics.entropy([[0.5, 0.5]])), 4)
        0.6931
    """
    each = _entropy(checks.predictive(probs))
    return checks.average(each, sample_weight) if average else each


def mutual_information(probs: Any, *, average: bool = True, sample_weight: Any = None) -> jax.Array:
    """What a label would tell about the network: H(mean_s p_s) - mean_s H(p_s), in nats.

    From 0, where all samples predict the same, to the log of the number of classes.

    Args:
        probs: Probabilities of samples, (sample, example, class).
        average: Whether to average over examples; False for one value each.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> round(float(metrics.mutual_information([[[1.0, 0.0]], [[0.0, 1.0]]])), 4)
        0.6931
    """
    probs = checks.samples(probs)
    # Jensen's inequality holds up to rounding.
    each = jnp.maximum(_entropy(jnp.mean(probs, axis=0)) - jnp.mean(_entropy(probs), axis=0), 0)
    return checks.average(each, sample_weight) if average else each


def disagreement(probs: Any, *, sample_weight: Any = None) -> jax.Array:
    """The share of pairs of samples whose most probable classes differ, averaged over examples.

    Args:
        probs: Probabilities of at least two samples, (sample, example, class).
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> probs = [[[0.9, 0.1]], [[0.8, 0.2]], [[0.3, 0.7]]]
        >>> round(float(metrics.disagreement(probs)), 4)
        0.6667
    """
    probs = checks.samples(probs, at_least=2)
    votes = jax.nn.one_hot(jnp.argmax(probs, axis=-1), probs.shape[-1], dtype=float).sum(axis=0)
    pairs = probs.shape[0] * (probs.shape[0] - 1)
    return checks.average(1 - jnp.sum(votes * (votes - 1), axis=-1) / pairs, sample_weight)


def diversity(probs: Any, *, sample_weight: Any = None) -> jax.Array:
    """The mean total variation between pairs of samples: disagreement that counts probabilities.

    1/2 sum_c abs(p_ic - p_jc) over all pairs i < j: with the samples in order p_(1) <= ... <= p_(S)
    the sum over pairs is sum_k (2 k - S - 1) p_(k), so that no pair is formed.

    Args:
        probs: Probabilities of at least two samples, (sample, example, class).
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> round(float(metrics.diversity([[[0.9, 0.1]], [[0.6, 0.4]]])), 4)
        0.3
    """
    probs = checks.samples(probs, at_least=2)
    count = probs.shape[0]
    place = 2 * jnp.arange(1, count + 1) - count - 1
    pairs = count * (count - 1) / 2
    gaps = jnp.tensordot(
        place / pairs, jnp.sort(probs, axis=0), 1, precision=jax.lax.Precision.HIGHEST
    )
    return checks.average(0.5 * jnp.sum(gaps, axis=-1), sample_weight)


def functional_collapse(
    probs: Any, *, sample_weight: Any = None, engine: Engine | None = None
) -> jax.Array:
    """The mutual information of every pair of networks, as laurent2024symmetry looks at it.

    Of networks i and j it is H((p_i + p_j) / 2) - (H(p_i) + H(p_j)) / 2, in nats and averaged over
    examples; networks that were trained apart and compute the same function have 0.

    Args:
        probs: Probabilities of at least two networks, (sample, example, class).
        sample_weight: Weights of the examples, (example,).
        engine: Where blocks of networks run as tasks; None for here.

    Returns:
        A symmetric matrix (sample, sample) with zeros on its diagonal.

    Example:
        >>> from onebasin import metrics
        >>> probs = [[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]
        >>> print(metrics.functional_collapse(probs).round(4))
        [[0.     0.     0.6931]
         [0.     0.     0.6931]
         [0.6931 0.6931 0.    ]]
    """
    probs = checks.samples(probs, at_least=2)
    if engine is not None:
        return jnp.asarray(pairs.in_blocks(engine, "collapse", _collapse, probs, sample_weight))
    return _collapse(probs, probs, sample_weight)


def _collapse(some: jax.Array, probs: jax.Array, sample_weight: Any) -> jax.Array:
    """The mutual information of some networks with all."""
    own = _entropy(probs)

    def with_all(one: tuple[jax.Array, jax.Array]) -> jax.Array:
        p, h = one
        return jax.lax.map(
            lambda other: checks.average(
                _entropy((p + other[0]) / 2) - (h + other[1]) / 2, sample_weight
            ),
            (probs, own),
        )

    return jnp.maximum(jax.lax.map(with_all, (some, _entropy(some))), 0)


def _entropy(probs: jax.Array) -> jax.Array:
    return -jnp.sum(jax.scipy.special.xlogy(probs, probs), axis=-1)
