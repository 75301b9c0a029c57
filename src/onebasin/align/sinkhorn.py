r"""The training loss between two networks minimised over soft permutations (pena2023rebasin).

Every factor without parents has a free matrix X; its permutation is relaxed to

    P = S(X / tau),   S: exp, then rows and columns normalised in turn (in logarithms),

which tends to a permutation as tau falls. Adam lowers the training loss half way between the
reference and P . moving over all X at once, tau falling geometrically; the signs of a pair of units
are those that the cost gives it at the start. Dependent factors and signs of factors that are not
permuted are held. X starts with half of each row's mass on the start. Every now and then X is
projected by exact assignment, and the last projection is polished by coordinate descent on the
cost; the state of least loss is kept, so it is never above that of the start.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from onebasin.align.barrier import as_pytree
from onebasin.align.relaxed import PLAIN, Soft, act_softly, hard, signatures
from onebasin.align.search import Found
from onebasin.align.signs import best_signs
from onebasin.align.state import State
from onebasin.align.straight_through import adam
from onebasin.align.task import Task, half_way
from onebasin.posterior import Gaussian
from onebasin.symmetry import Symmetry

NORMALISATIONS = 20
PROJECTIONS = 10


def sinkhorn(
    task: Task,
    *,
    steps: int = 300,
    learning_rate: float = 0.3,
    temperatures: tuple[float, float] = (1.0, 0.1),
) -> Found:
    """Lowers the training loss half way between the two over relaxed permutations.

    Args:
        task: The problem, with its `loss_fn`.
        steps: Number of steps.
        learning_rate: Adam's, for X.
        temperatures: First and last tau.
    """
    task.check_loss("solver 'sinkhorn'")
    best = state = task.first()
    least = start = task.loss(state)
    signs = {name: _pair_signs(task, name, state) for name in _relaxed(task.symmetry)}
    logits = {name: _logits(state, name, temperatures[0]) for name in signs}
    optimizer = adam(learning_rate)
    memory = optimizer.init(logits)
    step = functools.partial(
        _step,
        as_pytree(task.loss_fn),
        task.symmetry,
        task.path,
        optimizer,
        task.reference,
        task.moving,
        (state.permutations, state.signs),
        signs,
    )
    every = max(steps // PROJECTIONS, 1)
    for number, temperature in enumerate(np.geomspace(*temperatures, steps), start=1):
        logits, memory = step(logits, memory, temperature)
        if number % every == 0 or number == steps:
            state = _project(task, logits, signs, state)
            if (loss := task.loss(state)) < least:
                least, best = loss, state
    polished = task.descent([state]).best
    if (loss := task.loss(polished.state)) < least:
        least, best = loss, polished.state
    name = f"Sinkhorn from midpoint loss {start:.4g} to {least:.4g}, {steps} steps"
    return task.found(best, name, sweeps=polished.sweeps)


def normalise(logits: jax.Array, rounds: int = NORMALISATIONS) -> jax.Array:
    """The doubly stochastic matrix diag(a) exp(logits) diag(b): rows nearly, columns exactly."""

    def once(_: int, x: jax.Array) -> jax.Array:
        x = x - jax.nn.logsumexp(x, axis=-1, keepdims=True)
        return x - jax.nn.logsumexp(x, axis=-2, keepdims=True)

    return jnp.exp(jax.lax.fori_loop(0, rounds, once, logits))


def _relaxed(symmetry: Symmetry) -> list[str]:
    return sorted(name for name in symmetry.permutable if not symmetry.parents[name])


def _logits(state: State, name: str, temperature: float) -> jax.Array:
    """X whose soft permutation has half of each row's mass on the state's match."""
    n = state.permutations[name].shape[-1]
    (matrix,) = hard(state, name, [PLAIN]).values()
    return jnp.asarray(temperature * math.log(max(n - 1, 1)) * matrix, jnp.float32)


def _pair_signs(task: Task, name: str, state: State) -> np.ndarray:
    """The signs [i, j, m] of every pair of units: the state's where it matches them."""
    count, n = task.symmetry.factor(name).signs, task.symmetry.sizes[name]
    signs = np.ones((n, n, count), np.int8)
    if count and name in task.objective.factors():
        signs = best_signs(task.objective.gains(name, state), count)[1]
    if count:
        signs[np.arange(n), state.permutations[name]] = state.signs[name]
    return signs


def _project(
    task: Task, logits: dict[str, jax.Array], signs: dict[str, np.ndarray], held: State
) -> State:
    state = held.copy()
    for name, own in logits.items():
        columns = task.assignment(np.asarray(own))
        state.permutations[name] = columns
        if task.symmetry.factor(name).signs:
            state.signs[name] = signs[name][np.arange(len(columns)), columns]
    return state


@functools.partial(jax.jit, static_argnames=("symmetry", "path", "optimizer"))
def _step(
    loss_fn: Any,
    symmetry: Symmetry,
    path: str,
    optimizer: optax.GradientTransformation,
    reference: Any,
    moving: Any,
    held: tuple[dict[str, Any], dict[str, Any]],
    signs: dict[str, Any],
    logits: dict[str, jax.Array],
    memory: Any,
    temperature: Any,
) -> tuple[dict[str, jax.Array], Any]:
    def loss(logits: dict[str, jax.Array]) -> jax.Array:
        matrices = {name: normalise(x / temperature) for name, x in logits.items()}
        moved = _moved(symmetry, matrices, signs, State(*held), moving)
        return half_way(loss_fn, path, reference, moved)

    gradient = jax.tree.map(jnp.nan_to_num, jax.grad(loss)(logits))
    updates, memory = optimizer.update(gradient, memory, logits)
    return optax.apply_updates(logits, updates), memory


def _moved(
    symmetry: Symmetry, matrices: dict[str, Any], signs: dict[str, Any], held: State, moving: Any
) -> Any:
    """Parameters or a Gaussian under soft permutations of some factors, the others held."""
    soft: Soft = {}
    for name in symmetry.permutable:
        own = signatures(symmetry, name)
        if name in matrices:
            soft[name] = {
                s: matrices[name] * signs[name][..., sorted(s)].prod(axis=-1)
                if s
                else matrices[name]
                for s in own
            }
        else:
            soft[name] = hard(held, name, own)

    def act(tree: Any, signed: bool = True) -> Any:
        structure: Any
        leaves, structure = jax.tree.flatten(tree)
        return structure.unflatten(act_softly(symmetry, soft, held, leaves, signed))

    if not isinstance(moving, Gaussian):
        return act(moving)
    factor = None if moving.factor is None else jax.vmap(act)(moving.factor)
    return Gaussian(act(moving.mean), act(moving.std, signed=False), factor)
