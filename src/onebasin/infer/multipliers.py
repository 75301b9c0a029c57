"""How strong the prior of Laplace's approximation is: tau times its precision.

In units of the prior's scale the approximation is q = N(u*, T (H + tau)^-1), and lambda are the
eigenvalues of H.

*Marginal likelihood.* With

    log p(data) = log p(data | u*) - tau |u*|^2 / 2 + sum_i [log tau - log(lambda_i + tau)] / 2

the derivative in log tau, (sum_i lambda_i / (lambda_i + tau) - tau |u*|^2) / 2, falls with tau: the
best tau is where it crosses 0 (mackay1992practical). The temperature has no say in that.

*Calibration.* Networks drawn from q are only as good as the quadratic approximation at the distance
at which they are drawn, and for many structures and priors that is too far (ritter2018scalable tune
tau by hand). The calibrated tau is the smallest, from 1 on, with

    4/5 <= E[A(d)] / (16 E[A(d / 4)]) <= 5/4,   A(d) = (L(u* + d) + L(u* - d)) / 2 - L(u*)

for steps d = u - u* drawn from q and the negative log likelihood L: what drawing adds to the loss
is what a quarter of the way lets one expect, within a quarter of it. More is added where the loss
rises faster than it bends at u*; less where it cannot rise any further, since the drawn networks
guess, as those with normalised activations do early. Steps, not derivatives, since crossing the
kinks of a ReLU bends the loss too. For a linear model with Gaussian noise A is exactly quadratic,
and tau is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.infer.problem import Problem
from onebasin.infer.spectra import Spectrum
from onebasin.infer.vectors import from_vector, to_vector

TOLERATED = 1.25
_PAIRS = 4
_EXAMPLES = 500
_LARGEST = 15.0


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
        outputs = problem.net.apply(problem.params_of(own), batch[0])
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

        def pair(e: jax.Array) -> tuple[jax.Array, jax.Array]:
            step = scale * spectrum.apply(spread, e)
            return added(step), 16 * added(step / 4)

        far, near = jax.lax.map(pair, noise)
        expected, found = jnp.maximum(jnp.mean(near), 0), jnp.mean(far)
        # Not the opposite comparisons: a step to where the loss is NaN is too far.
        return ~((found <= TOLERATED * expected) & (found >= expected / TOLERATED))

    return _crossing(too_far, 0.0, 1e-2)


def _crossing(
    below: Callable[[jax.Array], jax.Array], lowest: float, tolerance: float
) -> jax.Array:
    """The tau up to which a condition holds, by bisection of its logarithm from `lowest` on."""

    def halve(carry: Any) -> Any:
        step, low, high = carry
        middle = jnp.where(step == 0, low, (low + high) / 2)
        under = below(jnp.exp(middle))
        return step + 1, jnp.where(under, middle, low), jnp.where(under, high, middle)

    start = (jnp.array(0), jnp.array(lowest), jnp.array(_LARGEST))
    return jnp.exp(jax.lax.while_loop(lambda c: c[2] - c[1] > tolerance, halve, start)[2])
