"""Optimisers whose rate follows a schedule over the whole of a training, however long that is."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import optax

SCHEDULES = ("triangular", "cosine", "constant")
Schedule = Callable[[jnp.ndarray], jnp.ndarray]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """An optimiser that is made when the number of steps is known; see `sgd` and `adam`."""

    rule: str
    learning_rate: float
    schedule: str | Schedule
    warmup: float
    momentum: float = 0.0
    nesterov: bool = False

    def build(self, steps: int) -> optax.GradientTransformation:
        """The optimiser for so many steps.

        Raises:
            ValueError: If the schedule gives a rate that is negative or no number.
        """
        return _built(self, steps)

    def rates(self, steps: int) -> Schedule:
        """The rate at every step."""
        if callable(self.schedule):
            return self.schedule
        if self.schedule == "constant":
            return optax.constant_schedule(self.learning_rate)
        rising = max(1, round(self.warmup * steps)) if self.warmup else 0
        falling = max(1, steps - rising)
        rise = optax.linear_schedule(0.0, self.learning_rate, rising)
        fall = (
            optax.cosine_decay_schedule(self.learning_rate, falling)
            if self.schedule == "cosine"
            else optax.linear_schedule(self.learning_rate, 0.0, falling)
        )
        return optax.join_schedules([rise, fall], [rising]) if rising else fall


def sgd(
    learning_rate: float = 0.2,
    schedule: str | Schedule = "triangular",
    momentum: float = 0.9,
    nesterov: bool = True,
    warmup: float = 0.2,
) -> Recipe:
    """Stochastic gradient descent with momentum, as residual networks are trained.

    Weight decay is the prior's: a decay of lambda in the mean loss of N examples is a normal prior
    of standard deviation 1 / sqrt(lambda N).

    Args:
        learning_rate: The largest rate.
        schedule: "triangular" (up to it and down to 0, each along a line), "cosine" (up along a
            line, down along a cosine), "constant", or any optax schedule, a function of the step.
        momentum: Of each step, how much the next one keeps.
        nesterov: Whether the gradient counts once more where momentum leads.
        warmup: The part of the steps in which the rate rises.

    Returns:
        What the methods of `onebasin.infer` that train take as `optimizer`.

    Example:
        >>> import onebasin as ob
        >>> rates = ob.infer.sgd(0.5, warmup=0.2).rates(steps=10)
        >>> [round(float(rates(step)), 3) for step in (0, 1, 2, 6, 10)]
        [0.0, 0.25, 0.5, 0.25, 0.0]
    """
    _check_share("momentum", momentum)
    return _checked(Recipe("sgd", learning_rate, schedule, warmup, momentum, nesterov))


def adam(
    learning_rate: float = 3e-3, schedule: str | Schedule = "cosine", warmup: float = 0.0
) -> Recipe:
    """Adam with a schedule.

    Args:
        learning_rate: The largest rate.
        schedule: "triangular", "cosine", "constant", or any optax schedule; see `sgd`.
        warmup: The part of the steps in which the rate rises.

    Returns:
        What the methods of `onebasin.infer` that train take as `optimizer`.
    """
    return _checked(Recipe("adam", learning_rate, schedule, warmup))


@functools.lru_cache(maxsize=64)
def _built(recipe: Recipe, steps: int) -> optax.GradientTransformation:
    rates = recipe.rates(steps)
    _check_rates(rates, steps)
    if recipe.rule == "adam":
        return optax.adam(rates)
    return optax.sgd(rates, recipe.momentum or None, nesterov=recipe.nesterov)


def _check_rates(rates: Schedule, steps: int) -> None:
    """Looks at the rate of every step before the first is taken."""
    found = np.broadcast_to(np.asarray(rates(jnp.arange(steps))), steps)
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"the schedule gives a learning rate of {found[first]} at step {first} of {steps}, "
            "expected numbers of 0 or more: look at its boundaries"
        )


def _checked(recipe: Recipe) -> Recipe:
    if not callable(recipe.schedule) and recipe.schedule not in SCHEDULES:
        raise ValueError(
            f"got schedule={recipe.schedule!r}, expected one of "
            f"{', '.join(map(repr, SCHEDULES))}, or a function of the step"
        )
    if not 0 < recipe.learning_rate < np.inf:
        raise ValueError(f"got learning_rate={recipe.learning_rate}, expected a positive number")
    _check_share("warmup", recipe.warmup)
    return recipe


def _check_share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"got {name}={value}, expected a number from 0 to below 1")
