"""Stochastic-gradient Hamiltonian Monte Carlo.

The momentum persists from step to step; friction and noise keep it at temperature 1, and the
position moves with the new momentum (the semi-implicit, or symplectic, Euler step):

    v     <- exp(-gamma eps) v - eps grad U(theta) / T + sqrt(1 - exp(-2 gamma eps)) xi,
    theta <- theta + eps v,

with the gradient from a minibatch, scaled by N / M (chen2014stochastic). `friction` is gamma eps:
the share of momentum that a step loses. With cycles the step follows a cosine (zhang2020cyclical).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.engine import Engine
from onebasin.infer.chunks import on_engine
from onebasin.infer.loop import Journal
from onebasin.infer.problem import Problem
from onebasin.infer.stochastic import run_stochastic
from onebasin.posterior import Draws
from onebasin.store import Run


def update(gradient: jax.Array, state: Any, step_size: Any, noise: jax.Array, friction: Any) -> Any:
    """One step of the dynamics."""
    theta, v = state
    v = jnp.exp(-friction) * v - step_size * gradient + jnp.sqrt(-jnp.expm1(-2 * friction)) * noise
    return theta + step_size * v, v


def default_step(curvature: float, ratio: float) -> float:
    """Eps^2 l = 0.1 on all data; with batches 0.02 M / N, lest their noise heat the momentum."""
    return float(np.sqrt((0.1 if ratio == 1 else 0.02 / ratio) / curvature))


def widen(positions: jax.Array) -> Any:
    """The state of stacked positions, at rest."""
    return positions, jnp.zeros_like(positions)


@on_engine(version=1)
def sghmc(
    key: jax.Array,
    problem: Problem,
    *,
    num_chains: int = 4,
    num_samples: int = 100,
    num_warmup: int = 50,
    thin: int = 50,
    step_size: float | None = None,
    friction: float = 0.1,
    batch_size: int | None = None,
    num_cycles: int | None = None,
    init: Any = "ensemble",
    memory: int | None = None,
    progress: bool = False,
    run: str | Path | Run | None = None,
    chunk: int | None = None,
    engine: Engine | None = None,
) -> Draws:
    """Draws from the posterior with stochastic-gradient Hamiltonian Monte Carlo.

    Args:
        key: Random key.
        problem: The target.
        num_chains: How many chains.
        num_samples: Kept draws per chain.
        num_warmup: Draws before that are thrown away.
        thin: Minibatch steps from one draw to the next.
        step_size: eps; None measures the curvature l where chains start, on at most
            5,000 examples, and takes eps^2 l = 0.1
            on all data, 0.02 M / N with batches.
        friction: The share of momentum that a step loses, gamma eps.
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
    if not 0 < friction < np.inf:
        raise ValueError(f"got friction={friction}, expected a positive number")
    return run_stochastic(
        Journal.open(sghmc, key, problem, arguments, run, progress, chunk),
        key,
        problem,
        update,
        widen,
        default_step,
        friction=friction,
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
