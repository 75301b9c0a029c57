"""What metrics take: probabilities, labels and weights, checked where their values are known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SUM_TOLERANCE = 1e-3


def predictive(probs: Any, name: str = "probs") -> jax.Array:
    """Probabilities (example, class); those of samples (sample, example, class) are averaged."""
    array = _floats(probs)
    if array.ndim not in (2, 3):
        raise ValueError(
            f"{name} has shape {array.shape}, expected (example, class), or (sample, example, "
            "class) for samples that are averaged"
        )
    check_probabilities(array, name)
    return array if array.ndim == 2 else jnp.mean(array, axis=0)


def _floats(probs: Any) -> jax.Array:
    """An array of floating point: certain predictions may come as integers, or as flags."""
    array = jnp.asarray(probs)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)


def samples(probs: Any, name: str = "probs", *, at_least: int = 1) -> jax.Array:
    """Probabilities of samples, (sample, example, class)."""
    array = _floats(probs)
    if array.ndim != 3:
        raise ValueError(
            f"{name} has shape {array.shape}, expected (sample, example, class): the probabilities "
            "of each sample, as onebasin.predict returns them"
        )
    if array.shape[0] < at_least:
        raise ValueError(
            f"{name} has {array.shape[0]} sample{'s' * (array.shape[0] != 1)}, expected at least "
            f"{at_least}: this compares samples with each other"
        )
    check_probabilities(array, name)
    return array


def labelled(y_true: Any, probs: Any) -> tuple[jax.Array, jax.Array]:
    """Labels (example,) and probabilities (example, class)."""
    probs, labels = predictive(probs), jnp.asarray(y_true)
    if labels.shape != probs.shape[:1] or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"y_true is {labels.dtype} of shape {labels.shape}, expected integer classes "
            f"({probs.shape[0]},) for probabilities of shape {probs.shape}"
        )
    if is_known(labels):
        least, most = (int(limit(np.asarray(labels))) for limit in (np.min, np.max))
        if least < 0 or most >= probs.shape[-1]:
            raise ValueError(
                f"y_true runs from {least} to {most}, expected classes from 0 to "
                f"{probs.shape[-1] - 1} as the probabilities have {probs.shape[-1]}"
            )
    return labels, probs


def pair(p: Any, q: Any) -> tuple[jax.Array, jax.Array]:
    """Two predictives of the same examples and classes."""
    p, q = predictive(p, "p"), predictive(q, "q")
    if p.shape != q.shape:
        raise ValueError(
            f"p is of {p.shape[0]} examples and {p.shape[1]} classes and q of {q.shape[0]} and "
            f"{q.shape[1]}, expected predictions of the same inputs by networks of the same classes"
        )
    return p, q


def chains(probs: Any, mode: Any) -> tuple[jax.Array, np.ndarray, np.ndarray]:
    """The predictive of each chain (chain, example, class), the chains, and their draws."""
    probs, mode = samples(probs), np.asarray(mode)
    if mode.shape != probs.shape[:1] or not np.issubdtype(mode.dtype, np.integer):
        raise ValueError(
            f"mode is {mode.dtype} of shape {mode.shape}, expected ({probs.shape[0]},) integers: "
            "the chain that each sample came from, as Draws.mode has it"
        )
    modes, place, counts = np.unique(mode, return_inverse=True, return_counts=True)
    if len(modes) < 2:
        raise ValueError(
            f"all {len(mode)} samples are of chain {modes[0]}, expected at least two chains: one "
            "chain cannot say how well chains agree; run more with num_chains="
        )
    share = np.zeros((len(modes), len(mode)), np.float32)
    share[place, np.arange(len(mode))] = 1 / counts[place]
    each = jnp.tensordot(share, probs, 1, precision=jax.lax.Precision.HIGHEST)
    return each, modes, counts


def check_probabilities(array: jax.Array, name: str) -> None:
    """Refuses what is empty, not finite, negative, or does not sum to one."""
    if not array.size:
        raise ValueError(f"{name} has shape {array.shape}: there is nothing to measure")
    if not is_known(array):
        return
    # A known array may be a constant of a program that is being traced.
    with jax.ensure_compile_time_eval():
        low, total = float(jnp.min(array)), jnp.sum(array, axis=-1)
        least, most = float(jnp.min(total)), float(jnp.max(total))
    if not np.isfinite([low, least, most]).all():
        raise ValueError(
            f"{name} holds NaN or infinite values; leave out the networks that diverged"
        )
    if low < 0 or max(1 - least, most - 1) > SUM_TOLERANCE:
        raise ValueError(
            f"{name} are no probabilities: the smallest is {low:.3g} and they sum to {least:.4g} "
            f"to {most:.4g}, expected values from 0 that sum to 1; apply softmax to logits"
        )


def average(values: jax.Array, sample_weight: Any) -> jax.Array:
    """The mean over examples, the last axis, weighted if there are weights."""
    if sample_weight is None:
        return jnp.mean(values.astype(float), axis=-1)
    weight = weights(sample_weight, values.shape[-1])
    return jnp.sum(values * weight, axis=-1) / jnp.sum(weight)


def weights(sample_weight: Any, count: int) -> jax.Array:
    """Weights of examples, (example,); ones by default."""
    if sample_weight is None:
        return jnp.ones(count)
    weight = jnp.asarray(sample_weight, float)
    if weight.shape != (count,):
        raise ValueError(
            f"sample_weight has shape {weight.shape}, expected ({count},): one per example"
        )
    if is_known(weight):
        total = float(np.sum(np.asarray(weight)))
        if not 0 < total < np.inf:
            raise ValueError(
                f"sample_weight sums to {total:.4g}, expected weights whose sum is positive: give "
                "at least one example a weight, or leave it out to count all alike"
            )
    return weight


def is_known(array: Any) -> bool:
    """Whether values can be looked at: under `jax.jit` they cannot."""
    return not isinstance(array, jax.core.Tracer)
