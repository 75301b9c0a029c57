"""What random programs are made of: one function per kind of step."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .programs import Array, Op, Run

UNARY: tuple[Callable[[Array], Array], ...] = (
    *(jax.nn.relu, jax.nn.relu, jax.nn.leaky_relu, jnp.tanh, jnp.tanh, jnp.abs, jax.nn.gelu),
    *(jax.nn.silu, jax.nn.softplus, jax.nn.elu, jax.nn.relu6, jax.nn.hard_tanh, jnp.square),
    *(jnp.sin, jnp.cos, jnp.sign, jnp.negative, jnp.cbrt, jnp.floor, jnp.round, lax.erf),
    *(jax.nn.sigmoid, lax.stop_gradient, jnp.nan_to_num, jax.jit(jax.nn.relu)),
    lambda v: v**3,
    lambda v: v**3 + v,
    lambda v: jnp.abs(v) ** 2.0,
    lambda v: v**0,
    lambda v: jnp.abs(v) ** 0.0,
    lambda v: jnp.sqrt(jnp.abs(v)),
    lambda v: jnp.exp(v / 2),
    lambda v: jnp.log1p(jnp.abs(v)),
    lambda v: lax.rsqrt(jnp.abs(v) + 1e-3),
    lambda v: 1 / (jnp.abs(v) + 0.1),
    lambda v: jnp.where(v > 0, v, 0.1 * v),
    lambda v: jnp.where(v > 0.3, v, 0.0),
    lambda v: jnp.where(jnp.abs(v) > jnp.abs(v).mean(), v, 0.0),
    lambda v: (v > 0).astype(v.dtype),
    lambda v: (v > 0.25).astype(v.dtype),
    lambda v: v.astype(jnp.int32).astype(v.dtype),
    lambda v: jnp.clip(v, 0, jnp.inf),
    lambda v: jnp.clip(v, -1, 1),
    lambda v: jnp.clip(v, 0, 1),
    lambda v: jnp.arctan2(v, jnp.abs(v)),
    lambda v: jax.checkpoint(jnp.tanh)(v),
    lambda v: jnp.real(v.astype(jnp.complex64 if v.dtype == jnp.float32 else jnp.complex128)),
)
BINARY: tuple[Callable[[Array, Array], Array], ...] = (
    *(jnp.add, jnp.add, jnp.multiply, jnp.multiply, jnp.subtract, jnp.maximum, jnp.minimum),
    lambda a, b: a / (1 + jnp.abs(b)),
    lambda a, b: a / jnp.sqrt(b**2 + 1e-3),
    lambda a, b: jnp.where(a > 0, a, b),
    lambda a, b: jnp.where(a > b, a, 0.0),
    lambda a, b: jnp.where(b > 0, a, -a),
    lambda a, b: a * jax.nn.sigmoid(b),
    lambda a, b: jnp.arctan2(a, b),
    lambda a, b: jnp.fmod(a, jnp.abs(b) + 1),
    lambda a, b: (a == b).astype(a.dtype) + a,
)
REDUCE: tuple[Callable[..., Array], ...] = (
    *(jnp.sum, jnp.mean, jnp.max, jnp.min, jnp.prod, jnp.var, jnp.median),
    jax.nn.logsumexp,
    jnp.linalg.norm,
)


def unary(run: Run) -> Array | None:
    value = run.value()
    return None if value is None else run.choose(UNARY)(value)


def binary(run: Run) -> Array | None:
    value = run.value()
    return None if value is None else run.choose(BINARY)(value, run.alike(value.shape))


def dense(run: Run) -> Array | None:
    value = run.value(1)
    if value is None:
        return None
    out = run.size()
    result = value @ run.param(value.shape[-1], out)
    return result + run.param(out) if run.chance(0.5) else result


def residual(run: Run) -> Array | None:
    value = run.value(1)
    if value is None:
        return None
    inner = run.size()
    hidden = run.choose(UNARY)(value @ run.param(value.shape[-1], inner))
    return value + hidden @ run.param(inner, value.shape[-1])


def tied(run: Run) -> Array | None:
    """There and back by one matrix."""
    value = run.value(1)
    if value is None:
        return None
    weights = run.param(value.shape[-1], run.size())
    return jax.nn.relu(value @ weights) @ weights.T


def contract(run: Run) -> Array | None:
    """An einsum of two values, or of a value and a parameter, over random letters."""
    value = run.value(1)
    if value is None:
        return None
    letters = "abcdefgh"
    left = letters[: value.ndim]
    other = run.value(1) if run.chance(0.5) else None
    if other is None:
        taken = [d for d in range(value.ndim) if run.chance(0.6)]
        right = "".join(left[d] for d in taken) + ("z" if run.chance(0.7) else "")
        order = list(right)
        run.rng.shuffle(order)
        sizes = dict(zip(left, value.shape, strict=True)) | {"z": run.size()}
        right = "".join(order)
        other = run.param(*(sizes[c] for c in right))
    else:
        free = iter("uvwxyz")
        right, used = "", set()
        for n in other.shape:
            same = [c for c, m in zip(left, value.shape, strict=True) if m == n and c not in used]
            letter = run.choose(same) if same and run.chance(0.7) else next(free)
            used.add(letter)
            right += letter
    every = list(dict.fromkeys(left + right))
    kept = [c for c in every if run.chance(0.7 if (c in left) != (c in right) else 0.4)]
    run.rng.shuffle(kept)
    return jnp.einsum(f"{left},{right}->{''.join(kept)}", value, other)


def gram(run: Run) -> Array | None:
    value = run.value(1)
    return None if value is None else jnp.einsum("...i,...j->...ij", value, value)


def attention(run: Run) -> Array | None:
    value = run.value(2)
    if value is None or value.shape[-1] == 1:
        return None
    heads, dims = run.choose((1, 2, 3)), run.choose((2, 3))
    value = value.reshape(-1, value.shape[-1])
    if run.chance(0.5):
        packed = value @ run.param(value.shape[-1], 3 * heads * dims)
        q, k, v = jnp.moveaxis(packed.reshape(-1, 3, heads, dims), 1, 0)
    else:
        q, k, v = (value @ run.param(value.shape[-1], heads * dims) for _ in range(3))
        q, k, v = (a.reshape(-1, heads, dims) for a in (q, k, v))
    weights = jax.nn.softmax(jnp.einsum("thd,shd->hts", q, k), axis=-1)
    return jnp.einsum("hts,shd->thd", weights, v).reshape(-1, heads * dims)


def convolve(run: Run) -> Array | None:
    """One spatial axis: the second of (.., time, channels)."""
    value = run.value(2)
    if value is None:
        return None
    image = value.reshape(-1, *value.shape[-2:])
    channels = image.shape[-1]
    groups = run.choose([g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    kernel = run.param(run.choose((1, 2, 3)), channels // groups, groups * run.choose((1, 2, 3)))
    return lax.conv_general_dilated(
        image,
        kernel,
        (run.choose((1, 1, 2)),),
        run.choose(([(0, 0)], [(1, 1)], [(1, 0)])),
        lhs_dilation=(run.choose((1, 1, 2)),),
        dimension_numbers=("NHC", "HIO", "NHC"),
        feature_group_count=groups,
    )


def pool(run: Run) -> Array | None:
    value = run.value(2)
    if value is None:
        return None
    window = tuple(run.choose((1, 1, 2)) for _ in range(value.ndim))
    init, kind = run.choose(((0.0, lax.add), (-jnp.inf, lax.max)))
    return lax.reduce_window(value, init, kind, window, window, run.choose(("SAME", "VALID")))


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
    return None if value is None else jnp.transpose(value, run.rng.permutation(value.ndim))


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


def reduce(run: Run) -> Array | None:
    value = run.value(1)
    if value is None:
        return None
    return run.choose(REDUCE)(value, axis=run.axis(value), keepdims=run.chance(0.4))


def normalise(run: Run) -> Array | None:
    """Layer, root-mean-square, length and batch norms, with and without an epsilon."""
    value = run.value(1)
    if value is None or value.shape[-1] == 1:
        return None
    epsilon = run.choose((0.0, 1e-3))
    kind = run.choose(("layer", "rms", "length", "batch", "softmax", "centre"))
    if kind == "softmax":
        return jax.nn.softmax(value, axis=run.axis(value))
    if kind == "batch":
        size = value.shape[-1]
        scale = lax.rsqrt(run.param(size, positive=True) + epsilon) * run.param(size)
        return (value - run.param(size)) * scale + run.param(size)
    if kind in ("layer", "centre"):
        value = value - value.mean(axis=-1, keepdims=True)
    if kind == "centre":
        return value
    total = jnp.sum if kind == "length" else jnp.mean
    value = value / jnp.sqrt(total(value**2, axis=-1, keepdims=True) + epsilon)
    return value * run.param(value.shape[-1]) if run.chance(0.5) else value


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


def loop(run: Run) -> Array | None:
    """Scans over layers, over an axis, over nothing; loops and branches."""
    value = run.value(1)
    if value is None:
        return None
    n = value.shape[-1]
    kind = run.choose(("layers", "steps", "axis", "fori", "while", "cond", "switch"))
    act = run.choose(UNARY)
    weights = run.param(n, n)
    bias = run.param(n)
    start = value if run.chance(0.7) else jnp.zeros_like(value)
    if kind == "layers":
        stacked = run.param(2, n, n), run.param(2, n)
        body = lambda c, p: (act(c @ p[0] + p[1]), c * bias)  # noqa: E731
        last, seen = lax.scan(body, start, stacked)
        return last if run.chance(0.5) else seen
    if kind == "steps":
        body = lambda c, _: (act(value + c @ weights), None)  # noqa: E731
        return lax.scan(body, start, None, length=2)[0]
    if kind == "axis" and value.ndim > 1:
        body = lambda c, row: (act(row + c * bias), c)  # noqa: E731
        last, seen = lax.scan(body, jnp.zeros(value.shape[1:], value.dtype) + bias[0], value)
        return last if run.chance(0.5) else seen
    if kind == "fori":
        return lax.fori_loop(0, 2, lambda _, c: act(c * bias + value), start)
    if kind == "while":
        count = lambda c: c[0] < 2  # noqa: E731
        return lax.while_loop(count, lambda c: (c[0] + 1, act(c[1] @ weights)), (0, start))[1]
    if kind == "cond":
        edge = run.choose((0.0, 0.5))
        first, second = (lambda v: act(v) * bias), (lambda v: v)
        return lax.cond(value.ravel()[0] > edge, first, second, value)
    branches = [lambda v: v * bias, act, lambda v: v @ weights]
    return lax.switch(run.inputs["i"][0], branches, value)


OPS: list[Op] = [
    *(unary,) * 5,
    *(dense,) * 4,
    *(binary,) * 3,
    *(contract, fold, normalise) * 2,
    *(residual, tied, gram, attention, convolve, pool, transpose, concatenate, cut),
    *(pad, reduce, order, index, embed, loop),
]
assert math.isfinite(len(OPS)) and np is not None
