"""Anderson acceleration of a fixed-point iteration x <- g(x) that converges by itself.

With f = g(x) - x, and the last changes of f and g as the rows of df and dg,

    gamma = argmin |f - df^T gamma|,        x <- g(x) - dg^T gamma,

which on a linear problem is GMRES (Anderson 1965; Walker and Ni 2011). Here x are log-scales:
without dimension, so that all units weigh the same in the least squares, whatever their mass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

MEMORY = 8
LONGEST = 1.0
PATIENCE = 30


class State(NamedTuple):
    """Where the iteration is, what it remembers, and how far from a fixed point it was.

    `best` is the smallest residual so far, `answer` the g(x) there, `since` the steps after it.
    """

    x: jax.Array
    df: jax.Array
    dg: jax.Array
    f: jax.Array
    g: jax.Array
    steps: jax.Array
    residual: jax.Array
    best: jax.Array
    answer: jax.Array
    since: jax.Array


def fixed_point(
    g: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    x: jax.Array,
    tolerance: float,
    max_steps: int,
) -> tuple[jax.Array, jax.Array]:
    """Iterates until the residual is small, or until it has not become smaller for long.

    Args:
        g: Takes x to (g(x), residual of x).
        x: Where to start, a vector.
        tolerance: The residual at which to stop.
        max_steps: The largest number of steps.

    Returns:
        The g(x) of the smallest residual, and the number of steps.
    """
    memory = jnp.zeros((MEMORY, x.size), x.dtype)
    zero = jnp.zeros((), jnp.int32)
    far = jnp.asarray(jnp.inf, x.dtype)
    start = State(x, memory, memory, x, x, zero, far, far, x, zero)

    def step(state: State) -> State:
        gx, residual = g(state.x)
        f = gx - state.x
        # A jump that went wrong is forgotten: plain steps follow until there is a new memory.
        keep = (residual < 2 * state.residual) & (state.steps > 0)
        slot = state.steps % MEMORY
        df = jnp.where(keep, state.df.at[slot].set(f - state.f), 0)
        dg = jnp.where(keep, state.dg.at[slot].set(gx - state.g), 0)
        jump = _combination(df, f) @ dg
        length = jnp.max(jnp.abs(jump), initial=0)
        jump = jump * jnp.minimum(1, LONGEST / jnp.where(length > 0, length, 1))
        better = residual < state.best
        return State(
            x=gx - jump,
            df=df,
            dg=dg,
            f=f,
            g=gx,
            steps=state.steps + 1,
            residual=residual,
            best=jnp.minimum(residual, state.best),
            answer=jnp.where(better, gx, state.answer),
            since=jnp.where(better, 0, state.since + 1),
        )

    def unsettled(state: State) -> Any:
        going = (state.steps < max_steps) & (state.since < PATIENCE)
        return (state.residual > tolerance) & going

    last = jax.lax.while_loop(unsettled, step, start)
    return last.answer, last.steps


def _combination(df: jax.Array, f: jax.Array) -> jax.Array:
    """The weights of the remembered changes whose sum comes nearest to f."""
    norm = jnp.linalg.norm(df, axis=1)
    inverse = jnp.where(norm > 0, 1 / jnp.where(norm > 0, norm, 1), 0)
    rows = df * inverse[:, None]
    gram = rows @ rows.T + 10 * jnp.finfo(df.dtype).eps * jnp.eye(len(df), dtype=df.dtype)
    return inverse * jnp.linalg.solve(gram, rows @ f)
