r"""Straight-through refinement on the training loss (ainsworth2023git).

A free copy z of the moving weights, in the reference's frame, is projected onto their orbit,

    g = argmax <z, g . moving>,   one warm sweep of coordinate descent,

the training loss is taken half way between the reference and g . moving, and its gradient with
respect to g . moving goes straight through the projection to z, which Adam updates. z starts half
way between the reference and the moving weights under the start, so that the start is what it is
first projected to. The state of least loss is kept: it is never above that of the start.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from onebasin.align.barrier import as_pytree
from onebasin.align.descent import descend
from onebasin.align.pairing import Pairing
from onebasin.align.search import Found
from onebasin.align.state import State
from onebasin.align.task import Task, half_way, leaves_of, mean_of, push, same, split_floats
from onebasin.align.terms import Channel
from onebasin.posterior import Gaussian
from onebasin.symmetry import Element, Symmetry

Side = tuple[list[np.ndarray], bool]


def straight_through(task: Task, *, steps: int = 300, learning_rate: float = 0.03) -> Found:
    """Lowers the training loss half way between the two, a few units at a time.

    Args:
        task: The problem, with its `loss_fn`. Between Gaussians that is a loss of the Gaussian half
            way, and both means and standard deviations are pulled.
        steps: Number of steps.
        learning_rate: Adam's, in units of each parameter's root mean square.
    """
    task.check_loss("solver 'straight-through'")
    loss_fn, optimizer = as_pytree(task.loss_fn), adam(learning_rate)
    rng = np.random.default_rng(task.seed)
    state = best = task.first()
    least = start = task.loss(state)
    pull = None
    own, whole = split_floats(task.moving)
    moved, _ = split_floats(push(task.symmetry, state.element(task.symmetry), task.moving))
    target, _ = split_floats(task.reference)
    free = [(a + b) / 2 for a, b in zip(target, moved, strict=True)]
    scales = [jnp.sqrt(jnp.mean(jnp.square(x))) for x in own]
    memory = optimizer.init(free)
    sides = _sides(task.moving)
    for _ in range(steps):
        projected = _project(task, _sides(whole(free)), sides, state, rng)
        # The loss is deterministic: where no unit has moved, its gradient is still the last one.
        if pull is None or not same(projected, state):
            state = projected
            element = state.element(task.symmetry)
            loss, pull = _pull(
                loss_fn, task.symmetry, task.path, task.reference, task.moving, element
            )
            if float(loss) < least:
                least, best = float(loss), state
        free, memory = _update(optimizer, free, memory, pull, scales)
    name = f"straight-through from midpoint loss {start:.4g} to {least:.4g}, {steps} steps"
    return task.found(best, name, sweeps=steps)


def _project(
    task: Task, free: list[Side], moving: list[Side], state: State, rng: np.random.Generator
) -> State:
    """One sweep of matching the moving weights with the free copy."""
    channels = [
        Channel(target, leaves, signed)
        for (target, signed), (leaves, _) in zip(free, moving, strict=True)
    ]
    objective = Pairing(task.symmetry, channels)
    return descend(objective, state, task.assignment, rng, max_sweeps=1).state


def _sides(weights: Any) -> list[Side]:
    """What is paired of a network or a Gaussian, on the host, and whether sign flips reach it."""
    sides = [(leaves_of(mean_of(weights)), True)]
    if isinstance(weights, Gaussian):
        sides.append((leaves_of(weights.std), False))
    return sides


@functools.partial(jax.jit, static_argnames=("symmetry", "path"))
def _pull(
    loss_fn: Any, symmetry: Symmetry, path: str, reference: Any, moving: Any, element: Element
) -> tuple[jax.Array, list[jax.Array]]:
    """The loss half way, and its gradient with respect to what was moved."""
    floats, whole = split_floats(push(symmetry, element, moving))
    loss, gradient = jax.value_and_grad(lambda x: half_way(loss_fn, path, reference, whole(x)))(
        floats
    )
    return loss, [jnp.nan_to_num(g) for g in gradient]


@functools.lru_cache(maxsize=16)
def adam(learning_rate: float) -> optax.GradientTransformation:
    """The same object for the same rate, so that what is compiled with it is compiled once."""
    return optax.adam(learning_rate)


@functools.partial(jax.jit, static_argnames="optimizer")
def _update(
    optimizer: optax.GradientTransformation,
    free: list[jax.Array],
    memory: Any,
    pull: list[jax.Array],
    scales: list[jax.Array],
) -> tuple[list[jax.Array], Any]:
    updates, memory = optimizer.update(pull, memory, free)
    return [x + s * u for x, s, u in zip(free, scales, updates, strict=True)], memory
