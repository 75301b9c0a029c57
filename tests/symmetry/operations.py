"""What random programs are made of: one function per kind of step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from .movement import concatenate, cut, embed, fold, index, order, pad, pick, transpose
from .programs import Array, Op, Run
from .unary import UNARY

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
    jnp.hypot,
    jnp.copysign,
    jnp.logaddexp,
    lambda a, b: jnp.where(b == 0, 0.0, a / jnp.where(b == 0, 1.0, b)),
    lambda a, b: jnp.where(b > 0, jnp.sqrt(jnp.where(b > 0, b, 1.0)), a),
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


def in_groups(run: Run) -> Array | None:
    """A norm over groups of channels, often of two layers laid end to end."""
    value = run.value(1)
    if value is None:
        return None
    if run.chance(0.7):
        other = run.choose(UNARY)(value @ run.param(value.shape[-1], run.size()))
        value = jnp.concatenate([value, other], axis=-1)
    n = value.shape[-1]
    groups = run.choose([g for g in (1, 2, 3, 4, 5) if n % g == 0])
    parts = value.reshape(*value.shape[:-1], groups, n // groups)
    kind = run.choose(("rms", "centre", "max", "softmax", "act", "gate"))
    if kind == "rms":
        parts = parts / jnp.sqrt(jnp.mean(parts**2, axis=-1, keepdims=True) + 1e-3)
    elif kind == "centre":
        parts = parts - parts.mean(axis=-1, keepdims=True)
    elif kind == "max":
        parts = parts * parts.max(axis=-2, keepdims=True)
    elif kind == "softmax":
        parts = jax.nn.softmax(parts, axis=-1)
    elif kind == "gate":
        parts = parts * run.param(groups, n // groups)
    else:
        parts = run.choose(UNARY)(parts)
    return parts if run.chance(0.2) else parts.reshape(value.shape)


def shuffle(run: Run) -> Array | None:
    """Channels in another order, by a reshape, a transpose and a reshape."""
    value = run.value(1)
    if value is None:
        return None
    n = value.shape[-1]
    groups = run.choose([g for g in (1, 2, 3) if n % g == 0])
    moved = value.reshape(*value.shape[:-1], groups, n // groups).swapaxes(-1, -2)
    moved = moved.reshape(value.shape)
    return value + moved if run.chance(0.15) else moved


def ragged(run: Run) -> Array | None:
    """Two groups of rows with weights of their own, some rows perhaps in none of them."""
    value = run.value(1)
    if value is None:
        return None
    rows = value.reshape(-1, value.shape[-1])
    hidden, out = run.size(), run.size()
    sizes = run.inputs["i"] if run.chance(0.5) else jnp.array([1, max(len(rows) - 1, 0)])
    first = lax.ragged_dot(rows, run.param(2, rows.shape[1], hidden), sizes)
    first = run.choose(UNARY)(first).astype(rows.dtype)
    if run.chance(0.3):
        return first
    return lax.ragged_dot(first, run.param(2, hidden, out), sizes)


def recurrence(run: Run) -> Array | None:
    """A linear recurrence over the first axis, from complex zeros."""
    value = run.value(2)
    if value is None:
        return None
    n = value.shape[-1]
    turn = run.param(n) + 1j * run.param(n)
    start = jnp.zeros(value.shape[1:], turn.dtype)
    _, seen = lax.scan(lambda h, u: (turn * h + u, turn * h), start, value.astype(turn.dtype))
    return seen.real if run.chance(0.5) else jnp.abs(seen)


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
    *(pad, reduce, order, pick, index, embed, loop, in_groups, shuffle, ragged, recurrence),
]
