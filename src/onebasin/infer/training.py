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
from onebasin.infer.cohorts import Gathered, cohorts
from onebasin.infer.loop import Journal
from onebasin.infer.optimizers import Recipe
from onebasin.infer.population import bytes_needed, each_in_place, group_size
from onebasin.infer.problem import Batch, Problem
from onebasin.nets.state import split
from onebasin.posterior import Draws
from onebasin.posterior.trees import check_same, num_weights

BATCH_SIZE = 100
# Of a budget, one part is for outputs that wait to be handed over.
SHARES = 8
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
        *own, keys = state
        impl = jax.random.key_impl(keys)

        def member(own: Any, key: Any) -> Any:
            key = jax.random.wrap_key_data(key, impl=impl)
            (*own, _), loss = self.member(problem, (*own, key), number)
            return own, loss

        # As plain numbers: JAX's check for reused keys does not see that each is used once.
        own, loss = each_in_place(member, self.group, own, jax.random.key_data(keys))
        state = (*own, keys)
        kept = jax.vmap(lambda own: self.outputs_of(problem, own))(state[0])
        return state, {"loss": loss, **kept}

    def outputs_of(self, problem: Problem, variables: Any) -> dict[str, Any]:
        """What is kept of one member."""
        return {} if self.snapshot is None else self.snapshot(problem, variables)

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
    start: Callable[[slice], Any],
    members: int,
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
        start: start(rows): the variables that some of the members start from, stacked; what it
            gives is used up.
        members: How many there are.
        objective: objective(problem, variables, batch, key) of one member, to be minimised.
        optimizer: Any optax optimiser, or a recipe for one; None for Adam with a cosine schedule.
        learning_rate: Of that Adam; None for 3e-3.
        epochs: Passes over the data; None for 50, or as many as make 2,000 steps. Where they are
            cheap, and neither they nor the rate nor the optimiser is given, as many as make 5,000
            steps, at 3e-2.
        batch_size: Examples per step; None for 100, or all of smaller data.
        memory: Budget in bytes of all that is there beside what is returned; members are trained
            in cohorts that fit.
        every: Epochs between snapshots; without it there are none.
        snapshot: What to keep of one member.

    Returns:
        The trained variables, stacked, and outputs (step, member, ...): "loss" and what `snapshot`
        keeps.

    Raises:
        MemoryError: If the budget is too small for the smallest cohort.
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
    step = Epochs(objective, rule, batch_size, every or 1, 1, snapshot if every else None)
    step, parts = _planned(step, problem, start, members, memory)
    keys = jax.random.split(key, members)
    trained, outputs = Gathered(members), Gathered(members)
    for rows in parts:
        own = name if len(parts) == 1 else f"{name}-{rows.start}-{rows.stop}"
        state = _begun(start(rows), rule, keys[rows])
        state, found = journal.phase(
            own, step, problem, state, epochs // (every or 1), owned=True, most=_share(memory)
        )
        trained.put(rows, state[0])
        del state
        outputs.put(rows, jax.tree.map(lambda x: np.swapaxes(x, 0, 1), found))
    return trained.tree, jax.tree.map(lambda x: np.swapaxes(x, 0, 1), outputs.tree)


def _begun(variables: Any, optimizer: optax.GradientTransformation, keys: jax.Array) -> Any:
    """The state of members that have not begun, which the loop may use up."""
    return variables, jax.vmap(optimizer.init)(variables), jnp.array(keys, copy=True)


def _share(memory: int | None) -> int | None:
    """What outputs of several steps may take, before they are handed over."""
    return None if memory is None else memory // SHARES


def _planned(
    step: Epochs,
    problem: Problem,
    start: Callable[[slice], Any],
    members: int,
    memory: int | None,
) -> tuple[Epochs, list[slice]]:
    """The step with its group, and the cohorts."""

    def one(key: jax.Array) -> Any:
        first = jax.tree.map(lambda x: x[0], start(slice(0, 1)))
        return first, step.optimizer.init(first), key

    state = jax.eval_shape(one, jax.random.key(0))
    arguments = problem, state, jax.ShapeDtypeStruct((), jnp.int32)
    weights = num_weights(state[0])
    group = group_size(step.member, members, memory, *arguments, weights=weights, apart=step.apart)
    step = dataclasses.replace(step, group=group)
    if memory is None:
        return step, [slice(0, members)]
    kept, more = (
        sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
        for tree in (state, jax.eval_shape(step.outputs_of, problem, state[0]))
    )
    needed = bytes_needed(step.member, *arguments)
    return step, cohorts(members, memory - memory // SHARES, kept + more, needed, group)


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


def starting_points(
    key: jax.Array, problem: Problem, count: int, init: Any, rows: slice | None = None
) -> Any:
    """Stacked unknowns to start from.

    Args:
        key: Random key.
        problem: The problem.
        count: How many.
        init: "random" (the network's initialisation), "prior", `Draws` of as many networks, or one
            network's parameters for all.
        rows: Which of them; all by default.
    """
    rows = slice(0, count) if rows is None else rows
    size = len(range(count)[rows])
    if count < 1:
        raise ValueError(f"got {count} networks or chains, expected at least one")
    if isinstance(init, str):
        makers = {"random": problem.init, "prior": problem.sample_prior}
        if init not in makers:
            raise ValueError(
                f"got init={init!r}, expected 'random', 'prior', 'ensemble' where a method offers "
                "it, Draws, or parameters"
            )
        return jax.vmap(makers[init])(jax.random.split(key, count)[rows])
    if isinstance(init, Draws):
        if len(init) != count:
            raise ValueError(
                f"got {len(init)} networks to start from, expected {count}: one for each chain or "
                "network"
            )
        given = _weights(problem, init.params)
        check_same(problem.shapes(), given, "the network", "init", (count,))
        params = jax.tree.map(lambda x: jnp.array(x[rows], copy=True), given)
    else:
        init = _weights(problem, init)
        check_same(problem.shapes(), init, "the network", "init")
        params = jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *np.shape(x))), init)
    if not problem.learns_noise:
        return params
    return problem.join(params, jnp.zeros(size))


def starts(key: jax.Array, problem: Problem, count: int, init: Any) -> Callable[[slice], Any]:
    """`starting_points` as a function of the rows that are wanted; `init` is checked here."""
    jax.eval_shape(lambda key: starting_points(key, problem, count, init), key)
    return lambda rows: starting_points(jax.random.clone(key), problem, count, init, rows)


def _weights(problem: Problem, params: Any) -> Any:
    """Weights alone: running statistics are estimated anew."""
    return split(params)[0] if problem.has_state else params


@jax.jit
def log_densities(problem: Problem, unknowns: Any) -> jax.Array:
    """Log density of stacked unknowns on all data, one network after the other."""
    return jax.lax.map(problem.evaluated_log_density, unknowns)
