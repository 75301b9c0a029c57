"""The largest curvature of the target: what step sizes are measured by."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.infer.problem import Problem
from onebasin.infer.vectors import from_vector


@functools.partial(jax.jit, static_argnames=("steps", "examples"))
def largest_curvature(
    problem: Problem,
    shapes: Any,
    position: jax.Array,
    key: jax.Array,
    steps: int = 20,
    examples: int | None = None,
) -> jax.Array:
    """The largest absolute eigenvalue of the Hessian of U / T on all data, by power iteration.

    Args:
        problem: The target.
        shapes: A tree like the unknowns.
        position: The unknowns as a vector.
        key: Random key of the first direction.
        steps: Iterations; each costs about two gradients.
        examples: How many examples stand for all; None for all of them.
    """
    count = problem.num_examples
    some = None
    if examples is not None and examples < count:
        some = problem.take(jnp.asarray(np.linspace(0, count - 1, examples).astype(np.int32)))

    def gradient(x: jax.Array) -> jax.Array:
        return jax.grad(lambda v: -problem.log_density(from_vector(v, shapes), some))(x)

    def iterate(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        direction = carry[0]
        product = jax.jvp(gradient, (position,), (direction,))[1]
        size = jnp.linalg.norm(product)
        return product / jnp.where(size > 0, size, 1), size

    start = jax.random.normal(key, position.shape, position.dtype)
    start = start / jnp.linalg.norm(start)
    return jax.lax.fori_loop(0, steps, iterate, (start, jnp.zeros((), position.dtype)))[1]
