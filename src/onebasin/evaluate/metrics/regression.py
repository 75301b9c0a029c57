"""How right the predictive of a regression is: root mean square error, log density of targets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.evaluate.metrics import checks


def rmse(y_true: Any, means: Any, *, sample_weight: Any = None) -> jax.Array:
    """The root mean square error of the predictive mean, over examples and outputs.

    Args:
        y_true: Numbers (example,) or (example, output).
        means: Outputs of one network, as many numbers, or of several, (sample, example, ...), whose
            mean is taken; `predict(..., link="identity")` returns them.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> float(metrics.rmse([1.0, 2.0], [[1.0, 5.0], [1.0, 5.0]]))
        2.1213202476501465
    """
    targets, outputs = _regression(y_true, means)
    squares = (jnp.mean(outputs, axis=0) - targets) ** 2
    return jnp.sqrt(checks.average(jnp.mean(squares, axis=-1), sample_weight))


def gaussian_nll(y_true: Any, means: Any, noise: Any, *, sample_weight: Any = None) -> jax.Array:
    """The negative log density of targets under a mixture of Gaussians, in nats per example.

    The mean of -log (1/S) sum_s prod_k N(y_k; m_sk, noise_s^2): each network s of a posterior has
    its outputs as means, and outputs k of one example count together.

    Args:
        y_true: Numbers (example,) or (example, output).
        means: Outputs of one network, as many numbers, or of several, (sample, example, ...).
        noise: Standard deviation of the likelihood: one number, or one of each sample, as draws
            with a learned noise have it in `statistics["noise"]`.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> round(float(metrics.gaussian_nll([0.0], [0.0], 1.0)), 4)  # log(2 pi) / 2
        0.9189
    """
    targets, outputs = _regression(y_true, means)
    scale = jnp.asarray(noise, outputs.dtype)
    if scale.ndim > 1 or scale.size not in (1, len(outputs)):
        raise ValueError(
            f"noise has shape {scale.shape}, expected one standard deviation, or one of each of "
            f"the {len(outputs)} samples"
        )
    if checks.is_known(scale) and not np.all(np.asarray(scale) > 0):
        raise ValueError("noise is zero, negative or NaN somewhere, expected standard deviations")
    scale = jnp.reshape(scale, (-1, 1))
    squares = jnp.sum((outputs - targets) ** 2, axis=-1) / scale**2
    constant = targets.shape[-1] * (jnp.log(scale) + np.log(2 * np.pi) / 2)
    logs = -squares / 2 - constant
    densities = jax.nn.logsumexp(logs, axis=0) - np.log(len(outputs))
    return checks.average(-densities, sample_weight)


def _regression(y_true: Any, means: Any) -> tuple[jax.Array, jax.Array]:
    """Targets (example, output) and outputs (sample, example, output), in single precision or more.

    An axis of one output may be missing on either side.
    """
    targets, outputs = (_widened(x) for x in (y_true, means))
    if not targets.ndim or not targets.size:
        raise ValueError(f"y_true has shape {targets.shape}, expected (example,) or more numbers")
    flat = targets.reshape(len(targets), -1)
    alone = [flat.shape[:1]] if flat.shape[1] == 1 else []
    for shape in (targets.shape, flat.shape, *alone):
        if outputs.shape == shape:
            return flat, outputs.reshape(1, *flat.shape)
        if outputs.shape[1:] == shape and outputs.shape[0]:
            return flat, outputs.reshape(len(outputs), *flat.shape)
    raise ValueError(
        f"means have shape {outputs.shape} and y_true {targets.shape}, expected as many numbers "
        "for each example, of one network or with the sample as first axis"
    )


def _widened(x: Any) -> jax.Array:
    array = jnp.asarray(x)
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))
