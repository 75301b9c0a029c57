"""Training a population by minibatches: one epoch of every member is one step of the host loop."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from onebasin.infer.checks import check_rates
from onebasin.infer.loop import Journal
from onebasin.infer.optimizers import Recipe
from onebasin.infer.population import each, group_size
from onebasin.infer.problem import Batch, Problem
from onebasin.nets.state import split
from onebasin.posterior import Draws
from onebasin.posterior.trees import check_same, num_weights

BATCH_SIZE = 100
MIN_STEPS = 2000
LEARNING_RATE = 3e-3
# Adam goes about its rate in a step, along a cosine half of that: 2,000 steps at 3e-3 go no further
# than 3, which is not always where the start of a small problem has to go.
CHEAP_EPOCH = 2**18
CHEAP_STEPS = 5000
CHEAP_LEARNING_RATE = 3e-2
Objective = Callable[[Problem, Any, Batch, jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Epochs:
    """Some epochs of gradient steps for every member of a population.

    Each member has its own order of the data. What does not fill a batch is left out of an epoch,
    other examples each time.
    """

    objective: Objective
    optimizer: optax.GradientTransformation
    batch_size: int
    epochs: int = 1
    group: int = 1
    apart: ClassVar[bool] = True
    snapshot: Callable[[Problem, Any], Any] | None = None

    def __call__(self, problem: Problem, state: Any, number: Any) -> tuple[Any, dict[str, Any]]:
        state, loss = each(lambda own: self.member(problem, own, number), self.group, state)
        outputs = {"loss": loss}
        if self.snapshot is not None:
            outputs |= jax.vmap(lambda own: self.snapshot(problem, own))(state[0])  # type: ignore[misc]
        return state, outputs

    def member(self, problem: Problem, state: Any, number: Any) -> tuple[Any, jax.Array]:
        """The epochs of one member, (variables, optimiser state, key); mean loss of the last."""
        steps = problem.num_examples // self.batch_size

        def epoch(i: Any, carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            (variables, memory, key), _ = carry
            for_order, for_noise = jax.random.split(
                jax.random.fold_in(key, number * self.epochs + i)
            )
            order = jax.random.permutation(for_order, problem.num_examples)
            rows = order[: steps * self.batch_size].reshape(steps, self.batch_size)

            def step(carry: Any, xs: Any) -> tuple[Any, jax.Array]:
                variables, memory = carry
                own, j = xs
                noise = jax.random.fold_in(for_noise, j)
                batch = problem.take(own, noise)
                loss, gradient = jax.value_and_grad(
                    lambda v: self.objective(problem, v, batch, noise)
                )(variables)
                updates, memory = self.optimizer.update(gradient, memory, variables)
                return (optax.apply_updates(variables, updates), memory), loss

            (variables, memory), losses = jax.lax.scan(
                step, (variables, memory), (rows, jnp.arange(steps))
            )
            return (variables, memory, key), jnp.mean(losses)

        return jax.lax.fori_loop(0, self.epochs, epoch, (state, jnp.zeros(())))


def train(
    journal: Journal,
    name: str,
    key: jax.Array,
    problem: Problem,
    variables: Any,
    objective: Objective,
    *,
    optimizer: optax.GradientTransformation | Recipe | None,
    learning_rate: float | None,
    epochs: int | None,
    batch_size: int | None,
    memory: int | None,
    every: int | None = None,
    snapshot: Callable[[Problem, Any], Any] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Trains a population of stacked variables.

    Args:
        journal: Where the phase is run.
        name: What the phase is called.
        key: Random key; each member gets one of its own.
        problem: The data and the target.
        variables: Stacked start of all members.
        objective: objective(problem, variables, batch, key) of one member, to be minimised.
        optimizer: Any optax optimiser, or a recipe for one; None for Adam with a cosine schedule.
        learning_rate: Of that Adam; None for 3e-3.
        epochs: Passes over the data; None for 50, or as many as make 2,000 steps. Where they are
            cheap, and neither they nor the rate nor the optimiser is given, as many as make 5,000
            steps, at 3e-2.
        batch_size: Examples per step; None for 100, or all of smaller data.
        memory: Budget in bytes.
        every: Epochs between snapshots; without it there are none.
        snapshot: What to keep of one member.

    Returns:
        The trained variables, stacked, and outputs (step, member, ...): "loss" and what `snapshot`
        keeps.
    """
    batch_size = checked_batch(problem, batch_size)
    steps = problem.num_examples // batch_size
    least, rate = MIN_STEPS, LEARNING_RATE
    if optimizer is None and learning_rate is None and epochs is None and _is_cheap(problem):
        least, rate = CHEAP_STEPS, CHEAP_LEARNING_RATE
    epochs = max(50, -(-least // steps)) if epochs is None else epochs
    if epochs < 1:
        raise ValueError(f"got epochs={epochs}, expected at least one")
    check_rates(learning_rate=learning_rate)
    if optimizer is None:
        given = rate if learning_rate is None else learning_rate
        optimizer = default_optimizer(given, epochs * steps)
    rule = optimizer.build(epochs * steps) if isinstance(optimizer, Recipe) else optimizer
    members = jax.tree.leaves(variables)[0].shape[0]
    state = (
        variables,
        jax.vmap(rule.init)(variables),
        jax.random.split(key, members),
    )
    step = Epochs(objective, rule, batch_size, every or 1, 1, snapshot if every else None)
    one = jax.tree.map(lambda x: jax.eval_shape(lambda x: x[0], x), state)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    group = group_size(
        step.member,
        members,
        memory,
        problem,
        one,
        number,
        weights=num_weights(one[0]),
        apart=step.apart,
    )
    step = dataclasses.replace(step, group=group)
    state, outputs = journal.phase(name, step, problem, state, epochs // (every or 1))
    return state[0], outputs


def _is_cheap(problem: Problem) -> bool:
    """Whether a pass over the data costs so little that more of them do no harm."""
    return problem.num_examples * num_weights(problem.shapes()) <= CHEAP_EPOCH


@functools.lru_cache(maxsize=64)
def default_optimizer(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose rate falls to zero along a cosine; kept, so that equal calls share programs."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))


def checked_batch(problem: Problem, batch_size: int | None, default: int = BATCH_SIZE) -> int:
    """The batch size, or the default where none is given."""
    if batch_size is None:
        return min(default, problem.num_examples)
    if not 1 <= batch_size <= problem.num_examples:
        raise ValueError(
            f"got batch_size={batch_size} and {problem.num_examples} examples: expected a batch of "
            f"1 to {problem.num_examples}"
        )
    return batch_size


def potential(problem: Problem, unknowns: Any, batch: Batch, key: jax.Array) -> jax.Array:
    """U / (N T) on a batch: what the maximum a posteriori network minimises."""
    return -problem.log_density(unknowns, batch) / problem.num_examples


def negative_log_likelihood(
    problem: Problem, unknowns: Any, batch: Batch, key: jax.Array
) -> jax.Array:
    """The mean negative log likelihood of a batch; the prior has no say."""
    return -problem.log_likelihood(unknowns, batch) / problem.num_examples


def starting_points(key: jax.Array, problem: Problem, count: int, init: Any) -> Any:
    """Stacked unknowns to start from.

    Args:
        key: Random key.
        problem: The problem.
        count: How many.
        init: "random" (the network's initialisation), "prior", `Draws` of as many networks, or one
            network's parameters for all.
    """
    if count < 1:
        raise ValueError(f"got {count} networks or chains, expected at least one")
    if isinstance(init, str):
        makers = {"random": problem.init, "prior": problem.sample_prior}
        if init not in makers:
            raise ValueError(
                f"got init={init!r}, expected 'random', 'prior', 'ensemble' where a method offers "
                "it, Draws, or parameters"
            )
        return jax.vmap(makers[init])(jax.random.split(key, count))
    if isinstance(init, Draws):
        if len(init) != count:
            raise ValueError(
                f"got {len(init)} networks to start from, expected {count}: one for each chain or "
                "network"
            )
        params = _weights(problem, jax.tree.map(jnp.asarray, init.params))
        check_same(problem.shapes(), params, "the network", "init", (count,))
    else:
        init = _weights(problem, init)
        check_same(problem.shapes(), init, "the network", "init")
        params = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *np.shape(x))), init)
    if not problem.learns_noise:
        return params
    return problem.join(params, jnp.zeros(count))


def _weights(problem: Problem, params: Any) -> Any:
    """Weights alone: running statistics are estimated anew."""
    return split(params)[0] if problem.has_state else params


@jax.jit
def log_densities(problem: Problem, unknowns: Any) -> jax.Array:
    """Log density of stacked unknowns on all data, one network after the other."""
    return jax.lax.map(problem.evaluated_log_density, unknowns)
