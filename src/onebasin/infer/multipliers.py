"""How strong the prior of Laplace's approximation is: tau times its precision.

In units of the prior's scale the approximation is q = N(u*, T (H + tau)^-1), and lambda are the
eigenvalues of H.

*Marginal likelihood.* With

    log p(data) = log p(data | u*) - tau |u*|^2 / 2 + sum_i [log tau - log(lambda_i + tau)] / 2

the derivative in log tau, (sum_i lambda_i / (lambda_i + tau) - tau |u*|^2) / 2, falls with tau: the
best tau is where it crosses 0 (mackay1992practical). The temperature has no say in that.

*Calibration.* Networks drawn from q are only as good as the quadratic approximation at the distance
at which they are drawn, and for many structures and priors that is too far (ritter2018scalable tune
tau by hand). For steps d = u - u* drawn from q and the negative log likelihood L, drawing adds

    A(d) = (L(u* + d) + L(u* - d)) / 2 - L(u*)

to the loss: four times as much for steps twice as long, if the loss is quadratic. The calibrated
tau is the smallest, from 1 on, at which

- the loss rises no faster: E[A(d)] <= 5/4 * 16 E[A(d / 4)], and by the root of that as far as half
  of the way, E[A(d / 2)] <= (5/4)^(1/2) * 4 E[A(d / 4)];
- nor does it stop to rise: the power of |d| by which it grows is about the same on the second
  quarter of the way and on the second half, E[A(d)] E[A(d / 4)] >= 9/10 E[A(d / 2)]^2, and not
  below 1, within a tenth. Networks with normalised activations guess when they are drawn from too
  far, and guesses are as bad at every distance.

Smaller powers than 2 are no fault in themselves: the kinks of a ReLU add |d| close by. For a linear
model with Gaussian noise A is exactly quadratic, and tau is 1. Where no tau does, it is the largest
that is tried, e^15: draws hardly leave u*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.infer.problem import Problem
from onebasin.infer.spectra import Spectrum
from onebasin.infer.vectors import from_vector, to_vector

LEAST, MOST = 0.9, 1.25
_PAIRS = 4
_EXAMPLES = 500
_LARGEST = 15.0
_STRIDE = 0.5


def best_multiplier(eigenvalues: jax.Array, squares: jax.Array) -> jax.Array:
    """The tau that maximises the marginal likelihood.

    Args:
        eigenvalues: Those of the curvature, in units of the prior's scale.
        squares: The squared norm of the weights, in the same units.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.infer.multipliers import best_multiplier
        >>> round(float(best_multiplier(jnp.array([3.0]), jnp.array(1.5))), 4)  # 3/(3+t) = 1.5 t
        0.5616
    """
    return _crossing(
        lambda tau: jnp.sum(eigenvalues / (eigenvalues + tau)) > tau * squares, -_LARGEST, 1e-5
    )


@jax.jit
def calibrated_multiplier(
    problem: Problem, unknowns: Any, spectrum: Spectrum, scale: jax.Array, key: jax.Array
) -> jax.Array:
    """The smallest tau, from 1 on, at which the quadratic approximation holds for drawn networks.

    Expectations are taken over pairs of opposite draws, always of the same noise, on some examples.

    Args:
        problem: The problem.
        unknowns: The trained network.
        spectrum: Its curvature, in units of the prior's scale.
        scale: The prior's standard deviation of every weight, as a vector.
        key: Random key.
    """
    params = problem.params_of(unknowns)
    count = min(_EXAMPLES, problem.num_examples)
    batch = problem.take(jnp.arange(count) * problem.num_examples // count)
    noise = jax.random.normal(key, (_PAIRS, len(scale)))

    def losses(vector: jax.Array) -> jax.Array:
        log_noise = unknowns["log_noise"] if problem.learns_noise else None
        own = problem.join(from_vector(vector, params), log_noise)
        outputs = problem.learner.apply(problem.params_of(own), batch[0])
        return -problem.log_likelihoods(own, outputs, batch[1])

    centre = to_vector(params)
    at_centre = losses(centre)

    def added(step: jax.Array) -> jax.Array:
        # Differences first, example by example: sums of losses would drown them.
        both = losses(centre + step) + losses(centre - step)
        return problem.scale(count) * jnp.sum(both / 2 - at_centre)

    def too_far(tau: jax.Array) -> jax.Array:
        def spread(x: jax.Array) -> jax.Array:
            return jnp.sqrt(problem.temperature / (x + tau))

        def pair(e: jax.Array) -> jax.Array:
            step = scale * spectrum.apply(spread, e)
            return jax.lax.map(lambda part: added(part * step), jnp.array([1, 1 / 2, 1 / 4]))

        whole, half, quarter = jnp.mean(jax.lax.map(pair, noise), axis=0)
        least = jnp.maximum(quarter, 0)
        # Not the opposite comparisons: a step to where the loss is NaN is too far.
        faster = ~((whole <= MOST * 16 * least) & (half <= MOST**0.5 * 4 * least))
        stops = (whole * quarter < LEAST * half**2) | (whole < LEAST * 2 * half)
        return faster | (stops & (half > 0) & (quarter > 0))

    # Not a bisection of all: what holds somewhere may fail again nearer by.
    first = _first(lambda log_tau: ~too_far(jnp.exp(log_tau)))
    return _crossing(too_far, jnp.maximum(first - _STRIDE, 0.0), 1e-2, first)


def _first(holds: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """The first multiple of the stride, from 0 on, at which a condition holds; or the largest."""
    return jax.lax.while_loop(
        lambda x: (x < _LARGEST) & ~holds(x), lambda x: x + _STRIDE, jnp.zeros(())
    )


def _crossing(
    below: Callable[[jax.Array], jax.Array],
    lowest: Any,
    tolerance: float,
    highest: Any = _LARGEST,
) -> jax.Array:
    """The tau up to which a condition holds, by bisection of its logarithm between bounds."""

    def halve(carry: Any) -> Any:
        step, low, high = carry
        middle = jnp.where(step == 0, low, (low + high) / 2)
        under = below(jnp.exp(middle))
        return step + 1, jnp.where(under, middle, low), jnp.where(under, high, middle)

    start = (jnp.array(0), jnp.asarray(lowest, float), jnp.asarray(highest, float))
    return jnp.exp(jax.lax.while_loop(lambda c: c[2] - c[1] > tolerance, halve, start)[2])
