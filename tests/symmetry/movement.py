"""Steps of random programs that move values about: shapes, slices, order, indices."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .programs import Array, Run
from .unary import UNARY


def fold(run: Run) -> Array | None:
    """Merge two axes, split one, or shape all anew."""
    value = run.value(1)
    if value is None:
        return None
    kind = run.choose(("merge", "split", "anew"))
    shape = list(value.shape)
    axis = run.axis(value)
    if kind == "merge" and axis + 1 < value.ndim:
        shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    elif kind == "split":
        outer = run.choose([d for d in range(1, shape[axis] + 1) if shape[axis] % d == 0])
        shape[axis : axis + 1] = [outer, shape[axis] // outer]
    else:
        outer = run.choose([d for d in range(1, value.size + 1) if value.size % d == 0])
        shape = [outer, value.size // outer]
    return value.reshape(shape)


def transpose(run: Run) -> Array | None:
    value = run.value(2)
    return None if value is None else jnp.transpose(value, run.rng.permutation(value.ndim).tolist())


def concatenate(run: Run) -> Array | None:
    value = run.value(1)
    if value is None:
        return None
    axis = run.axis(value)
    kind = run.choose(("param", "value", "mirror", "constant", "tile", "repeat"))
    if kind == "mirror":
        return jnp.concatenate([jax.nn.relu(value), jax.nn.relu(-value)], axis)
    if kind == "tile":
        return jnp.concatenate([value] * run.choose((2, 3)), axis)
    if kind == "repeat":
        return jnp.repeat(value, 2, axis)
    shape = list(value.shape)
    shape[axis] = run.size()
    own = tuple(shape)
    fitting = [
        v
        for v in run.values
        if v.ndim == value.ndim
        and all(a == b for d, (a, b) in enumerate(zip(v.shape, own, strict=True)) if d != axis)
    ]
    other = run.constant(own) if kind == "constant" else run.param(*own)
    if kind == "value" and fitting:
        other = run.choose(fitting)
    return jnp.concatenate([value, other] if run.chance(0.5) else [other, value], axis)


def cut(run: Run) -> Array | None:
    """Slices: contiguous, strided, reversed; rolls; halves against each other."""
    value = run.value(1)
    if value is None:
        return None
    axis = run.axis(value)
    n = value.shape[axis]
    start = int(run.rng.integers(n))
    stop = int(run.rng.integers(start, n)) + 1
    kind = run.choose(("range", "range", "stride", "reverse", "roll", "halves", "dynamic"))
    moved = jnp.moveaxis(value, axis, 0)
    if kind == "range":
        moved = moved[start:stop]
    elif kind == "stride":
        moved = moved[start :: run.choose((2, 3))]
    elif kind == "reverse":
        moved = moved[::-1]
    elif kind == "roll":
        moved = jnp.roll(moved, start, axis=0)
    elif kind == "halves" and n % 2 == 0:
        moved = moved[: n // 2] * run.choose(UNARY)(moved[n // 2 :])
    else:
        moved = lax.dynamic_slice_in_dim(moved, run.inputs["i"][0], 1)
    return jnp.moveaxis(moved, 0, axis) if run.chance(0.5) else moved


def pad(run: Run) -> Array | None:
    value = run.value(1)
    if value is None:
        return None
    config = [(0, 0, 0)] * value.ndim
    choices = ((1, 0, 0), (0, 2, 0), (1, 1, 0), (0, 0, 1), (-1, 1, 0))
    config[run.axis(value)] = run.choose(choices)
    filling = run.choose((0.0, 0.0, 1.0, None))
    number = run.param() if filling is None else jnp.asarray(filling, value.dtype)
    return lax.pad(value, number, config)


def order(run: Run) -> Array | None:
    """Whatever tells positions apart: sorting, sums so far, choices of the largest."""
    value = run.value(1)
    if value is None:
        return None
    axis = run.axis(value)
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: jnp.sort(value, axis),
        lambda: jnp.argsort(value, axis),
        lambda: jnp.cumsum(value, axis),
        lambda: jnp.cumprod(value, axis),
        lambda: lax.cummax(value, axis),
        lambda: jnp.argmax(value, axis),
        lambda: jax.nn.one_hot(jnp.argmax(value, -1), value.shape[-1], dtype=value.dtype),
        lambda: lax.top_k(value, 1 + value.shape[-1] // 2)[0],
        lambda: jnp.take_along_axis(value, jnp.argmax(value, axis, keepdims=True), axis),
    )
    return run.choose(kinds)()


def index(run: Run) -> Array | None:
    """Gathers and scatters, by constants and by inputs."""
    value = run.value(1)
    if value is None:
        return None
    axis = run.axis(value)
    n = value.shape[axis]
    at = run.rng.integers(0, n, int(run.rng.integers(1, 4)))
    moved = jnp.moveaxis(value, axis, 0)
    update = run.choose((0.0, 1.0, run.param(*moved.shape[1:])))
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: jnp.take(value, at, axis),
        lambda: jnp.take(value, jnp.append(at, n), axis, mode="fill", fill_value=1.0),
        lambda: jnp.take(value, jnp.append(at, n), axis, mode="fill", fill_value=0.0),
        lambda: jnp.take(value, run.inputs["i"] % n, axis),
        lambda: moved.at[at].set(update),
        lambda: moved.at[at].add(update),
        lambda: moved.at[at].multiply(update),
        lambda: moved.at[at].max(update),
        lambda: lax.dynamic_update_slice_in_dim(moved, moved[:1] * 2, run.inputs["i"][0], 0),
    )
    return run.choose(kinds)()


def embed(run: Run) -> Array | None:
    table = run.param(2, run.size())
    return table[run.inputs["i"]]


def pick(run: Run) -> Array | None:
    """Places that are chosen by value, and what is looked up, shown or put there."""
    value = run.value(1)
    if value is None:
        return None
    scores = jnp.moveaxis(value, run.axis(value), -1)
    n = scores.shape[-1]
    which = run.choose(
        (
            lambda: lax.top_k(scores, 1 + n // 2)[1],
            lambda: jnp.argmax(scores, -1, keepdims=True),
            lambda: jnp.argmin(scores, -1)[..., None],
            lambda: jnp.argsort(scores, -1)[..., -2:],
        )
    )()
    table, act = run.param(n, run.size()), run.choose(UNARY)
    found = jnp.take_along_axis(act(scores), which, -1)
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: found,
        lambda: table[which],
        lambda: (found[..., None] * table[which]).sum(-2),
        lambda: jax.nn.one_hot(which, n, dtype=value.dtype),
        lambda: jnp.where(which[..., :1] == jnp.arange(n), scores, run.param(n)),
        lambda: jnp.where(which == run.choose(range(n)), found, 0.0),
        lambda: jnp.put_along_axis(scores, which, found * 2, -1, inplace=False),
        lambda: jnp.zeros(n, value.dtype).at[which.ravel()].add(found.ravel()),
        lambda: jnp.zeros(n, value.dtype).at[which.ravel()].set(found.ravel()),
        lambda: jnp.moveaxis(which, -1, 0) * jnp.ones((), value.dtype),
    )
    return run.choose(kinds)()
