"""What the stochastic-gradient samplers share: minibatches, step sizes and cycles.

Batches are drawn with replacement, so that every gradient estimates that of all data without bias.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.infer import chains
from onebasin.infer.checks import check_rates
from onebasin.infer.loop import DivergenceError, Journal
from onebasin.infer.population import each, group_size
from onebasin.infer.problem import Problem
from onebasin.infer.training import checked_batch
from onebasin.infer.vectors import from_vector, to_sampled_vector
from onebasin.posterior import Draws

BATCH_SIZE = 500
# Below this a gradient on all data costs little more, and its noise is gone.
SMALL_DATA = 2000
# A step size need not be known to the last digit, and a pass over all data costs many steps.
CURVED = 5000
EXPLORING = 0.8
# Where chains leave the real numbers at the default step, tenths of it that are tried.
SMALLER = 3
# update(gradient, state, step size, noise, friction) -> state; the state begins with the position.
Update = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Stochastic:
    """`thin` minibatch steps of every chain."""

    update: Update
    batch_size: int
    thin: int
    cycle: int | None = None
    group: int = 1
    apart: ClassVar[bool] = True

    def __call__(self, data: Any, state: Any, number: Any) -> tuple[Any, dict[str, Any]]:
        return each(lambda own: self.member(data, own, number), self.group, state)

    def member(self, data: Any, member: Any, number: Any) -> tuple[Any, dict[str, Any]]:
        """The steps of one chain."""
        problem, step_size, friction = data
        state, key = member
        like = chains.shapes(problem)
        own = jax.random.fold_in(key, number)

        def gradient(position: jax.Array, rows: jax.Array, key: jax.Array) -> jax.Array:
            whole = self.batch_size == problem.num_examples and problem.augment is None
            batch = None if whole else problem.take(rows, key)
            return jax.grad(lambda x: -problem.log_density(from_vector(x, like), batch))(position)

        def step(i: Any, state: Any) -> Any:
            for_rows, for_noise = jax.random.split(jax.random.fold_in(own, i))
            rows = jax.random.randint(for_rows, (self.batch_size,), 0, problem.num_examples)
            noise = jax.random.normal(for_noise, state[0].shape, state[0].dtype)
            size, warmth = self.schedule(step_size, number, i)
            return self.update(
                gradient(state[0], rows, jax.random.fold_in(own, i)),
                state,
                size,
                warmth * noise,
                friction,
            )

        state = jax.lax.fori_loop(0, self.thin, step, state)
        unknowns = from_vector(state[0], like)
        return (state, key), {
            "unknowns": unknowns,
            "log_density": problem.evaluated_log_density(unknowns),
        }

    def schedule(self, step_size: jax.Array, number: Any, i: Any) -> tuple[Any, Any]:
        """Step size and share of the noise (none while a cycle explores)."""
        if self.cycle is None:
            return step_size, 1.0
        period = self.cycle * self.thin
        progress = ((number * self.thin + i) % period) / period
        return step_size * (jnp.cos(np.pi * progress) + 1) / 2, jnp.where(
            progress < EXPLORING, 0.0, 1.0
        )


def run_stochastic(
    journal: Journal,
    key: jax.Array,
    problem: Problem,
    update: Update,
    widen: Callable[[jax.Array], Any],
    default_step: Callable[[float, float], float],
    *,
    friction: float,
    num_chains: int,
    num_samples: int,
    num_warmup: int,
    thin: int,
    step_size: float | None,
    batch_size: int | None,
    num_cycles: int | None,
    init: Any,
    memory: int | None,
) -> Draws:
    """Start, warm-up and sampling of an update rule.

    Args:
        journal: Where phases run.
        key: Random key.
        problem: The target.
        update: The rule, update(gradient, state, step size, noise, friction) -> state.
        widen: The state of stacked positions; the position comes first.
        default_step: The step size from the largest curvature and N / M.
        friction: Passed on to the rule.
        num_chains: How many chains.
        num_samples: Kept draws per chain.
        num_warmup: Draws before that are thrown away.
        thin: Steps from one draw to the next.
        step_size: The rule's step size; None for the default.
        batch_size: Examples per step; None for 500, or all of up to 2,000.
        num_cycles: Cosine cycles; None for a constant step.
        init: Where chains start.
        memory: Budget in bytes of one step, as for `hmc`.
    """
    chains.check_counts(num_samples=num_samples, num_warmup=num_warmup, thin=thin)
    check_rates(step_size=step_size)
    small = problem.num_examples <= SMALL_DATA
    batch_size = checked_batch(problem, batch_size, SMALL_DATA if small else BATCH_SIZE)
    cycle = None
    if num_cycles is not None:
        if num_cycles < 1 or num_samples % num_cycles:
            raise ValueError(
                f"got num_cycles={num_cycles} and num_samples={num_samples}: expected a number of "
                "samples that the cycles share evenly"
            )
        cycle = round(num_samples // num_cycles / (1 - EXPLORING))
        num_warmup = 0
    for_init, for_curvature, *for_phases = jax.random.split(key, 4)
    positions = chains.start(journal, for_init, problem, num_chains, init, memory)
    step = Stochastic(update, batch_size, thin, cycle)
    step = _grouped(step, problem, widen, positions, friction, memory)

    def walk(number: int, size: float) -> Draws:
        return _walk(
            journal,
            step,
            (problem, jnp.asarray(size, positions.dtype), friction),
            widen(positions),
            for_phases,
            f"-{number}" if number else "",
            num_warmup,
            num_samples if cycle is None else cycle * (num_cycles or 1),
            size,
        )

    if step_size is not None:
        draws = walk(0, step_size)
    else:
        draws = _nearby(
            walk,
            _default_steps(problem, positions, for_curvature, batch_size, default_step),
        )
    if cycle is None:
        return draws
    length = cycle * (num_cycles or 1)
    within = np.arange(len(draws)) % length % cycle
    return draws[within >= cycle - num_samples // (num_cycles or 1)]


def _default_steps(
    problem: Problem,
    positions: jax.Array,
    key: jax.Array,
    batch_size: int,
    default_step: Callable[[float, float], float],
) -> Iterator[float]:
    """Step sizes to try: by the curvature at the start, by that of the prior's draws, and smaller.

    A network of zeros, where the best fit is zero, has hardly any curvature, and its neighbours do.
    """
    ratio = problem.scale(batch_size)
    size = default_step(chains.curvature(problem, positions, key, CURVED), ratio)
    yield size
    for_draws, for_curvature = jax.random.split(jax.random.fold_in(jax.random.clone(key), 0))
    keys = jax.random.split(for_draws, len(positions))
    drawn = jax.vmap(to_sampled_vector)(jax.vmap(problem.sample_prior)(keys))
    with contextlib.suppress(DivergenceError):
        far = chains.curvature(problem, drawn, for_curvature, CURVED)
        size = min(size, default_step(far, ratio))
    yield size
    for _ in range(SMALLER):
        size /= 10
        yield size


def _nearby(walk: Callable[[int, float], Draws], sizes: Iterator[float]) -> Draws:
    """The draws at the first step size at which chains do not leave the real numbers."""
    last: DivergenceError | None = None
    for number, size in enumerate(sizes):
        try:
            draws = walk(number, size)
        except DivergenceError as error:
            last = error
            continue
        info = {**(draws.info or {}), "smaller_steps": number}
        return dataclasses.replace(draws, info=info)
    assert last is not None
    raise last


def _grouped(
    step: Stochastic,
    problem: Problem,
    widen: Callable[[jax.Array], Any],
    positions: jax.Array,
    friction: float,
    memory: int | None,
) -> Stochastic:
    """The step with as many chains at a time as fit."""
    group = group_size(
        lambda d, s, n: step.member(d, (s, jax.random.key(0)), n),
        len(positions),
        memory,
        (problem, positions[0, 0], friction),
        jax.eval_shape(lambda x: jax.tree.map(lambda x: x[0], widen(x)), positions),
        jax.ShapeDtypeStruct((), jnp.int32),
        weights=positions.shape[1],
        apart=step.apart,
    )
    return dataclasses.replace(step, group=group)


def _walk(
    journal: Journal,
    step: Stochastic,
    data: Any,
    states: Any,
    keys: list[jax.Array],
    again: str,
    num_warmup: int,
    length: int,
    size: float,
) -> Draws:
    """Warm-up and sampling at one step size."""
    num_chains = len(states[0])
    for_warmup, for_sampling = (jax.random.split(jax.random.clone(k), num_chains) for k in keys)
    if num_warmup:
        (states, _), _ = journal.phase(
            f"warm-up{again}",
            step,
            data,
            (states, for_warmup),
            num_warmup,
            show="log_density",
            keep=False,
        )
    return chains.sample(
        journal,
        data[0],
        step,
        data,
        (states, for_sampling),
        length,
        size,
        name=f"sampling{again}",
        batch_size=step.batch_size,
        thin=step.thin,
    )
