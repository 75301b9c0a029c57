"""Stochastic-gradient Langevin dynamics.

    theta <- theta - (eps / 2) grad U(theta) / T + sqrt(eps) xi,   xi ~ N(0, I),

with the gradient from a minibatch, scaled by N / M (welling2011bayesian). At a finite step the
variance along a direction of curvature l is too large by the factor 1 / (1 - eps l / 4), and by
what the minibatch's noise adds. With cycles the step follows a cosine and draws are kept at its low
end (zhang2020cyclical).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.engine import Engine
from onebasin.infer.chunks import on_engine
from onebasin.infer.loop import Journal
from onebasin.infer.problem import Problem
from onebasin.infer.stochastic import run_stochastic
from onebasin.posterior import Draws
from onebasin.store import Run


def update(gradient: jax.Array, state: Any, step_size: Any, noise: jax.Array, _: Any) -> Any:
    """One step of Langevin dynamics."""
    (theta,) = state
    return (theta - step_size / 2 * gradient + jnp.sqrt(step_size) * noise,)


def default_step(curvature: float, ratio: float) -> float:
    """Eps l = 0.2 M / N: five per cent too much variance on all data, as much from batches."""
    return 0.2 / (curvature * ratio)


def widen(positions: jax.Array) -> Any:
    """The state of stacked positions."""
    return (positions,)


@on_engine(version=1)
def sgld(
    key: jax.Array,
    problem: Problem,
    *,
    num_chains: int = 4,
    num_samples: int = 100,
    num_warmup: int = 50,
    thin: int = 100,
    step_size: float | None = None,
    batch_size: int | None = None,
    num_cycles: int | None = None,
    init: Any = "ensemble",
    memory: int | None = None,
    progress: bool = False,
    run: str | Path | Run | None = None,
    chunk: int | None = None,
    engine: Engine | None = None,
) -> Draws:
    """Draws from the posterior with stochastic-gradient Langevin dynamics.

    Args:
        key: Random key.
        problem: The target.
        num_chains: How many chains.
        num_samples: Kept draws per chain.
        num_warmup: Draws before that are thrown away.
        thin: Minibatch steps from one draw to the next.
        step_size: eps; None measures the curvature where chains start, on at most 5,000
            examples, and takes 0.2 M / N of its
            inverse.
        batch_size: Examples per step, M; None for 500, or all of up to 2,000.
        num_cycles: Cosine cycles of the step size; None for a constant one.
        init: Where chains start, as for `hmc`.
        memory: Budget in bytes of one step.
        progress: Whether to draw bars.
        run: A folder that keeps the state; the same call continues there.
        chunk: Draws between two saves; the draws do not depend on it.
        engine: Where chunks of chains run as tasks; None for here, all as one program.

    Returns:
        The draws, with their log density on all data.

    Raises:
        DivergenceError: If the log density of a chain is not finite.
    """
    arguments = dict(locals())
    return run_stochastic(
        Journal.open(sgld, key, problem, arguments, run, progress, chunk),
        key,
        problem,
        update,
        widen,
        default_step,
        friction=0.0,
        num_chains=num_chains,
        num_samples=num_samples,
        num_warmup=num_warmup,
        thin=thin,
        step_size=step_size,
        batch_size=batch_size,
        num_cycles=num_cycles,
        init=init,
        memory=memory,
    )
