"""What the samplers share: where chains start, their phases, and how their draws come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.infer import training
from onebasin.infer.cohorts import rows_of
from onebasin.infer.curvature import largest_curvature
from onebasin.infer.loop import DivergenceError, Journal, by_member, modes, summary
from onebasin.infer.problem import Problem
from onebasin.infer.vectors import from_vector, to_sampled_vector
from onebasin.posterior import Draws


def check_counts(**counts: int) -> None:
    """Raises unless every count is positive; warm-up may be 0."""
    for name, count in counts.items():
        if count < (0 if name == "num_warmup" else 1):
            raise ValueError(f"got {name}={count}, expected a positive number")


def check_acceptance(target: float) -> None:
    """Raises unless an acceptance rate can be aimed at."""
    if not 0 < target < 1:
        raise ValueError(f"got target_acceptance={target}, expected a number between 0 and 1")


def start(
    journal: Journal,
    key: jax.Array,
    problem: Problem,
    num_chains: int,
    init: Any,
    memory: int | None,
) -> jax.Array:
    """The first positions of all chains as vectors, (chain, weight).

    With init="ensemble" an ensemble is trained for them; else as `training.starting_points`.
    """
    ensemble = isinstance(init, str) and init == "ensemble"
    for_init, for_training = jax.random.split(key)
    unknowns = training.starting_points(
        for_init, problem, num_chains, "random" if ensemble else init
    )
    if ensemble:
        unknowns, _ = training.train(
            journal,
            "start",
            for_training,
            problem,
            rows_of(unknowns),
            num_chains,
            training.potential,
            optimizer=None,
            learning_rate=None,
            epochs=None,
            batch_size=None,
            memory=memory,
        )
    return jax.vmap(to_sampled_vector)(unknowns)


def curvature(
    problem: Problem, positions: jax.Array, key: jax.Array, examples: int | None = None
) -> float:
    """The largest curvature over the chains' positions, at least that of a normal prior as wide.

    On all data, or on so many examples of them, which stand for all.

    A Laplace prior has no curvature of its own, and its width limits steps all the same.
    """
    keys = jax.random.split(key, len(positions))
    found = [
        float(largest_curvature(problem, shapes(problem), x, k, examples=examples))
        for x, k in zip(positions, keys, strict=True)
    ]
    if not np.all(np.isfinite(found)):
        raise DivergenceError(
            "the log density or its curvature is not finite where the chains start: start "
            "elsewhere (init='ensemble'), or look at the data for NaN"
        )
    return max(*found, float(1 / jnp.min(prior_spread(problem)) ** 2))


def shapes(problem: Problem) -> Any:
    """A tree like the unknowns, without their values."""
    return jax.eval_shape(problem.init, jax.random.key(0))


def log_density(problem: Problem) -> Callable[[jax.Array], jax.Array]:
    """The log density as a function of the unknowns as a vector, and of its type."""
    like = shapes(problem)
    return lambda x: problem.log_density(from_vector(x, like)).astype(x.dtype)


def prior_spread(problem: Problem) -> jax.Array:
    """The prior's standard deviation of every unknown, as a vector, at the temperature."""
    like = shapes(problem)
    scales = problem.join(problem.prior.spread(problem.params_of(like)), 1.0)
    filled = jax.tree.map(lambda s, x: jnp.full(x.shape, s, x.dtype), scales, like)
    return to_sampled_vector(filled) * jnp.sqrt(problem.temperature)


def sample(
    journal: Journal,
    problem: Problem,
    step: Any,
    data: Any,
    state: Any,
    num_samples: int,
    step_size: float,
    **info: Any,
) -> Draws:
    """The phase that is kept, as `Draws`: all of one chain's before the next's.

    The step's outputs are "unknowns", "log_density" and "statistics".
    """
    try:
        _, outputs = journal.phase("sampling", step, data, state, num_samples, show="log_density")
    except DivergenceError as error:
        kept = error.outputs
        draws = _draws(problem, kept, None) if kept and len(kept["log_density"]) else None
        raise DivergenceError(
            f"{error}, with step size {step_size:.3g}: take a smaller one; `draws` of this error "
            "holds what was drawn before",
            kept,
            draws,
        ) from None
    found = summary(journal, step_size=step_size, **info)
    return _draws(problem, outputs, found)


def _draws(problem: Problem, outputs: dict[str, Any], info: Any) -> Draws:
    steps, members = outputs["log_density"].shape
    flat = by_member(outputs)
    return problem.draws(
        flat["unknowns"],
        modes(steps, members),
        flat["log_density"],
        flat.get("statistics"),
        info=info,
    )
