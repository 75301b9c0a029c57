"""Anderson acceleration of a fixed-point iteration x <- g(x) that converges by itself.

With f = g(x) - x, and the last changes of f and g as the rows of df and dg,

    gamma = argmin |f - df^T gamma|,        x <- g(x) - dg^T gamma,

which on a linear problem is GMRES (Anderson 1965; Walker and Ni 2011). Here x are log-scales:
without dimension, so that all units weigh the same in the least squares, whatever their mass. Many
iterations run side by side, one per row; each stops by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

MEMORY = 8
LONGEST = 1.0
PATIENCE = 30


class State(NamedTuple):
    """Where the iterations are, what they remember, and how far from a fixed point they were.

    `best` is the smallest residual so far, `answer` the g(x) there, `since` the steps after it.
    """

    x: Any
    df: Any
    dg: Any
    f: Any
    g: Any
    steps: Any
    residual: Any
    best: Any
    answer: Any
    since: Any


def fixed_point(
    g: Callable[[Any], tuple[Any, Any]], x: Any, tolerance: float, max_steps: int, xp: Any
) -> tuple[Any, Any]:
    """Iterates until the residuals are small, or until they have not become smaller for long.

    Args:
        g: Takes x to (g(x), residual of x).
        x: Where to start, [draw, n].
        tolerance: The residual at which to stop.
        max_steps: The largest number of steps.
        xp: NumPy or JAX.

    Returns:
        The g(x) of the smallest residual, and the number of steps, [draw].
    """
    memory = xp.zeros((len(x), MEMORY, x.shape[1]), x.dtype)
    zero = xp.zeros(len(x), xp.int32)
    far = xp.full(len(x), xp.inf, x.dtype)
    start = State(x, memory, memory, x, x, zero, far, far, x, zero)

    def unsettled(state: State) -> Any:
        going = (state.steps < max_steps) & (state.since < PATIENCE)
        return (state.residual > tolerance) & going

    def step(state: State) -> State:
        held = unsettled(state)
        moved = _step(g, state, xp)
        pairs = zip(moved, state, strict=True)
        return State(*(xp.where(_beside(held, a), a, b) for a, b in pairs))

    state = start
    if xp is np:
        while unsettled(state).any():
            state = step(state)
    else:
        state = jax.lax.while_loop(lambda s: xp.any(unsettled(s)), step, start)
    return state.answer, state.steps


def _step(g: Callable[[Any], tuple[Any, Any]], state: State, xp: Any) -> State:
    gx, residual = g(state.x)
    f = gx - state.x
    # A jump that went wrong is forgotten: plain steps follow until there is a new memory.
    keep = (residual < 2 * state.residual) & (state.steps > 0)
    slot = np.arange(MEMORY) == (state.steps % MEMORY)[:, None]

    def remember(old: Any, new: Any) -> Any:
        return xp.where(_beside(keep, old), xp.where(slot[..., None], new[:, None], old), 0)

    df, dg = remember(state.df, f - state.f), remember(state.dg, gx - state.g)
    jump = xp.einsum("dm,dmn->dn", _combination(df, f, xp), dg)
    length = xp.max(xp.abs(jump), axis=1, initial=0)
    jump = jump * xp.minimum(1, LONGEST / xp.where(length > 0, length, 1))[:, None]
    better = residual < state.best
    return State(
        x=gx - jump,
        df=df,
        dg=dg,
        f=f,
        g=gx,
        steps=state.steps + 1,
        residual=residual,
        best=xp.minimum(residual, state.best),
        answer=xp.where(better[:, None], gx, state.answer),
        since=xp.where(better, 0, state.since + 1),
    )


def _beside(mask: Any, values: Any) -> Any:
    return mask.reshape(-1, *[1] * (values.ndim - 1))


def _combination(df: Any, f: Any, xp: Any) -> Any:
    """The weights of the remembered changes whose sum comes nearest to f."""
    norm = xp.linalg.norm(df, axis=-1)
    inverse = xp.where(norm > 0, 1 / xp.where(norm > 0, norm, 1), 0)
    rows = df * inverse[..., None]
    ridge = 10 * float(np.finfo(df.dtype).eps) * np.eye(MEMORY, dtype=df.dtype)
    gram = rows @ xp.swapaxes(rows, -1, -2) + ridge
    return inverse * xp.linalg.solve(gram, rows @ f[..., None])[..., 0]
