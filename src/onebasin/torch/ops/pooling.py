"""Pools: maxima and means over windows, sliding or adaptive."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from onebasin.torch.ops.convolution import per_axis
from onebasin.torch.ops.layout import ChannelsLast, shortcut
from onebasin.torch.table import Family

pooling = Family("pooling")


def _windows(
    sizes: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]], tuple[int, ...]]:
    """Kernel, stride, pads and dilation for each axis.

    With `ceil_mode` the last window may reach over the end, but has to begin before it.
    """
    axes = len(sizes)
    kernel, padding = per_axis(kernel, axes), per_axis(padding, axes)
    stride = per_axis(stride, axes) if stride not in (None, [], ()) else kernel
    dilation = per_axis(dilation, axes)
    pads = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        span = d * (k - 1) + 1
        count = (n + 2 * p - span) // s + 1
        if ceil_mode:
            count = -(-(n + 2 * p - span) // s) + 1
            if (count - 1) * s >= n + p:
                count -= 1
        pads.append((p, max((count - 1) * s + span - n - p, p if not ceil_mode else 0)))
    return kernel, stride, pads, dilation


def max_pool(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    *,
    axes: int,
) -> Any:
    kernel, stride, pads, dilation = _windows(
        x.shape[-axes:], kernel_size, stride, padding, dilation, ceil_mode
    )
    low = _lowest(getattr(x, "array", x).dtype)
    return _reduced(x, low, lax.max, kernel, stride, pads, dilation)


def _reduced(
    x: Any, start: Any, operation: Any, kernel: Any, stride: Any, pads: Any, dilation: Any
) -> Any:
    """A reduction over windows, in whichever order the axes lie."""
    last = isinstance(x, ChannelsLast)
    array = x.array if last else x
    before = 1 if last else array.ndim - len(kernel)

    def everywhere(values: Any, other: Any) -> tuple[Any, ...]:
        return (*[other] * before, *values, *[other] * (array.ndim - before - len(kernel)))

    found = lax.reduce_window(
        array,
        start,
        operation,
        everywhere(kernel, 1),
        everywhere(stride, 1),
        everywhere(pads, (0, 0)),
        window_dilation=everywhere(dilation, 1),
    )
    return ChannelsLast(found) if last else found


def max_pool_with_indices(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    *,
    axes: int,
) -> tuple[Any, Any]:
    """Maxima, and where in the flattened image each of them stands."""
    lead = x.ndim - axes
    sizes = x.shape[lead:]
    kernel, strides, pads, dilations = _windows(
        sizes, kernel_size, stride, padding, dilation, ceil_mode
    )
    where, inside = np.zeros((1, 1), int), np.ones((1, 1), bool)
    for n, k, s, (low, high), d in zip(sizes, kernel, strides, pads, dilations, strict=True):
        count = (n + low + high - d * (k - 1) - 1) // s + 1
        place = np.arange(count)[:, None] * s - low + np.arange(k) * d
        ok = (place >= 0) & (place < n)
        where = (where[:, None, :, None] * n + place[None, :, None, :].clip(0, n - 1)).reshape(
            where.shape[0] * count, -1
        )
        inside = (inside[:, None, :, None] & ok[None, :, None, :]).reshape(where.shape)
    values = max_pool(x, kernel_size, stride, padding, dilation, ceil_mode, axes=axes)
    flat = x.reshape(*x.shape[:lead], -1)[..., where]
    best = jnp.argmax(jnp.where(inside, flat, _lowest(x.dtype)), axis=-1)
    index = jnp.take_along_axis(
        jnp.broadcast_to(where, flat.shape), best[..., None], axis=-1
    ).reshape(values.shape)
    return values, index


def avg_pool(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    axes: int,
) -> Any:
    sizes = x.shape[-axes:]
    kernel, stride, pads, _ = _windows(sizes, kernel_size, stride, padding, 1, ceil_mode)
    dtype = getattr(x, "array", x).dtype
    total = _reduced(x, np.zeros((), dtype), lax.add, kernel, stride, pads, (1,) * axes)
    if divisor_override is not None:
        return _divided(total, divisor_override)
    plain = per_axis(padding, axes)
    margin = plain if count_include_pad else (0,) * axes
    counts = np.ones((1,) * axes)
    for axis, (n, k, s, (low, _), m) in enumerate(
        zip(sizes, kernel, stride, pads, margin, strict=True)
    ):
        start = np.arange(total.shape[axis - axes]) * s - low
        count = np.minimum(start + k, n + m) - np.maximum(start, -m)
        counts = counts * count.reshape([-1 if a == axis else 1 for a in range(axes)])
    if (counts == counts.flat[0]).all():
        return _divided(total, float(counts.flat[0]))
    return _divided(total, jnp.asarray(counts, dtype))


def _divided(total: Any, counts: Any) -> Any:
    if not isinstance(total, ChannelsLast):
        return total / counts
    return ChannelsLast(total.array / (counts[..., None] if np.ndim(counts) else counts))


def adaptive(x: Any, output_size: Any, reduce: Any, *, axes: int) -> Any:
    """Window i of n over an axis of length m goes from floor(i m / n) to ceil((i + 1) m / n)."""
    lead = x.ndim - axes
    sizes = x.shape[lead:]
    wanted = per_axis(output_size, axes)
    wanted = tuple(n if w is None else w for n, w in zip(sizes, wanted, strict=True))
    if isinstance(x, ChannelsLast):
        if any(w != 1 for w in wanted):
            return NotImplemented
        return ChannelsLast(reduce(x.array, axis=tuple(range(1, 1 + axes)), keepdims=True))
    if all(w == 1 for w in wanted):
        return reduce(x, axis=tuple(range(lead, x.ndim)), keepdims=True)
    if all(n % w == 0 for n, w in zip(sizes, wanted, strict=True)):
        pairs = itertools.chain.from_iterable(
            (w, n // w) for n, w in zip(sizes, wanted, strict=True)
        )
        split = x.reshape(*x.shape[:lead], *pairs)
        return reduce(split, axis=tuple(range(lead + 1, split.ndim, 2)))
    for axis, (n, w) in enumerate(zip(sizes, wanted, strict=True), lead):
        parts = [
            reduce(
                lax.slice_in_dim(x, i * n // w, math.ceil((i + 1) * n / w), axis=axis),
                axis=axis,
                keepdims=True,
            )
            for i in range(w)
        ]
        x = jnp.concatenate(parts, axis=axis)
    return x


def _adaptive_mean(x: Any, output_size: Any, *, axes: int) -> Any:
    return adaptive(x, output_size, jnp.mean, axes=axes)


def _adaptive_max(x: Any, output_size: Any, *, axes: int) -> tuple[Any, Any]:
    y = adaptive(x, output_size, jnp.max, axes=axes)
    lead = x.ndim - axes
    regular = all(n % w == 0 for n, w in zip(x.shape[lead:], y.shape[lead:], strict=True))
    if not regular:
        return y, _NoIndices()
    kernel = [n // w for n, w in zip(x.shape[lead:], y.shape[lead:], strict=True)]
    return max_pool_with_indices(x, kernel, axes=axes)


class _NoIndices:
    """Stands where indices would be that nobody asks for."""


def _lowest(dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.array(-np.inf, dtype)
    return np.array(jnp.iinfo(dtype).min, dtype)


def _rule(function: Any, axes: int, short: bool = False) -> Any:
    def rule(*args: Any, **kwargs: Any) -> Any:
        return function(*args, axes=axes, **kwargs)

    return shortcut(rule)(rule) if short else rule


for _axes in (1, 2, 3):
    pooling.rows(
        {
            f"max_pool{_axes}d": _rule(max_pool, _axes, short=True),
            f"max_pool{_axes}d_with_indices": _rule(max_pool_with_indices, _axes),
            f"avg_pool{_axes}d": _rule(avg_pool, _axes, short=True),
            f"adaptive_avg_pool{_axes}d": _rule(_adaptive_mean, _axes, short=True),
            f"_adaptive_avg_pool{_axes}d": _rule(_adaptive_mean, _axes, short=True),
            f"adaptive_max_pool{_axes}d": _rule(_adaptive_max, _axes),
        }
    )
pooling.rows(
    {
        f"_adaptive_avg_pool{n}d": lambda x, size, n=n: adaptive(x, size, jnp.mean, axes=n)
        for n in (2, 3)
    }
)


@pooling("max_unpool2d", "max_unpool3d")
def max_unpool(x: Any, indices: Any, output_size: Any, *_: Any) -> Any:
    axes = len(output_size)
    lead = x.shape[: x.ndim - axes]
    flat = jnp.zeros((math.prod(lead), math.prod(output_size)), x.dtype)
    rows = jnp.arange(flat.shape[0])[:, None]
    places = indices.reshape(flat.shape[0], -1)
    filled = flat.at[rows, places].set(x.reshape(flat.shape[0], -1))
    return filled.reshape(*lead, *output_size)
