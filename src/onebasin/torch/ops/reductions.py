"""Sums, extremes, moments, norms, softmax, running totals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onebasin.torch.ops.layout import ChannelsLast, shortcut
from onebasin.torch.table import Family

reductions = Family("reduction")
Axes = int | list[int] | tuple[int, ...] | None


def _axes(dim: Axes) -> int | tuple[int, ...] | None:
    """PyTorch means all axes by none and by an empty list alike."""
    if isinstance(dim, list | tuple):
        return tuple(dim) or None
    return dim


def _plain(function: Any) -> Any:
    def short(x: Any, dim: Axes = None, keepdim: bool = False, **_: Any) -> Any:
        """Over all of space, or with the axes kept."""
        dims = [dim] if isinstance(dim, int) else list(dim or range(x.ndim))
        axes = tuple(x.axis(axis) for axis in dims)
        if keepdim:
            return ChannelsLast(function(x.array, axis=axes, keepdims=True))
        over_space = set(axes) == set(range(1, x.ndim - 1))
        return function(x.array, axis=axes) if over_space else NotImplemented

    def rule(x: Any, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        x = x if dtype is None else x.astype(dtype)
        if jnp.issubdtype(x.dtype, jnp.bool_) and function in (jnp.sum, jnp.prod):
            x = x.astype(int)
        return function(x, axis=_axes(dim), keepdims=keepdim)

    shortcut(rule)(short)
    return rule


reductions.rows(
    {
        "sum": _plain(jnp.sum),
        "nansum": _plain(jnp.nansum),
        "mean": _plain(jnp.mean),
        "nanmean": _plain(jnp.nanmean),
        "prod": _plain(jnp.prod),
        "amax": _plain(jnp.max),
        "amin": _plain(jnp.min),
        "any": _plain(jnp.any),
        "all": _plain(jnp.all),
        "count_nonzero": lambda x, dim=None: jnp.count_nonzero(x, axis=_axes(dim)),
        "logsumexp": lambda x, dim, keepdim=False: jax.nn.logsumexp(
            x, axis=_axes(dim), keepdims=keepdim
        ),
        "max": _plain(jnp.max),
        "min": _plain(jnp.min),
        "logcumsumexp": lambda x, dim: lax.cumlogsumexp(x, axis=dim % x.ndim),
    }
)


@reductions("argmax")
def argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return jnp.argmax(x, axis=dim, keepdims=keepdim)


@reductions("argmin")
def argmin(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return jnp.argmin(x, axis=dim, keepdims=keepdim)


@reductions("max.dim")
def max_dim(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return _chosen(x, jnp.argmax(x, axis=dim, keepdims=True), dim, keepdim)


@reductions("min.dim")
def min_dim(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    return _chosen(x, jnp.argmin(x, axis=dim, keepdims=True), dim, keepdim)


def _chosen(x: Any, index: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """The entry at an index, which alone receives the gradient."""
    value = jnp.take_along_axis(x, index, axis=dim)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


@reductions("median.dim")
def median_dim(x: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """The lower of the two in the middle."""
    order = jnp.argsort(x, axis=dim)
    index = lax.slice_in_dim(order, (x.shape[dim] - 1) // 2, (x.shape[dim] + 1) // 2, axis=dim)
    return _chosen(x, index, dim, keepdim)


@reductions("median")
def median(x: Any) -> Any:
    return jnp.sort(x, axis=None)[(x.size - 1) // 2]


@reductions("aminmax")
def aminmax(x: Any, *, dim: int | None = None, keepdim: bool = False) -> tuple[Any, Any]:
    return jnp.min(x, axis=dim, keepdims=keepdim), jnp.max(x, axis=dim, keepdims=keepdim)


def _degrees(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 0.0 if unbiased is False else 1.0


@reductions("var")
def var(
    x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Any:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    axes = _axes(dim)
    centred = x - jnp.mean(x, axis=axes, keepdims=True)
    whole = range(x.ndim) if axes is None else (axes,) if isinstance(axes, int) else axes
    count = int(np.prod([x.shape[axis] for axis in whole]))
    divisor = max(count - _degrees(unbiased, correction), 0.0)
    total = jnp.sum(jnp.square(centred), axis=axes, keepdims=keepdim)
    return total / divisor if divisor else total / jnp.zeros((), x.dtype)


@reductions("std")
def std(x: Any, *args: Any, **kwargs: Any) -> Any:
    return jnp.sqrt(var(x, *args, **kwargs))


@reductions("var_mean")
def var_mean(x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return var(x, dim, *args, **kwargs), _mean_beside(x, dim, args, kwargs)


@reductions("std_mean")
def std_mean(x: Any, dim: Any = None, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return std(x, dim, *args, **kwargs), _mean_beside(x, dim, args, kwargs)


def _mean_beside(x: Any, dim: Any, args: Any, kwargs: Any) -> Any:
    keepdim = args[1] if len(args) > 1 else kwargs.get("keepdim", False)
    return jnp.mean(x, axis=None if isinstance(dim, bool) else _axes(dim), keepdims=keepdim)


@reductions("linalg_vector_norm")
def vector_norm(
    x: Any, ord: Any = 2, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    x = x if dtype is None else x.astype(dtype)
    axes, order = _axes(dim), float(ord)
    if order == 2:
        squares = jnp.sum(jnp.square(x), axis=axes, keepdims=keepdim)
        # The derivative at 0 is 0, as in PyTorch, and not infinite.
        zero = squares == 0
        return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, squares)))
    size = jnp.abs(x)
    if order == np.inf:
        return jnp.max(size, axis=axes, keepdims=keepdim)
    if order == -np.inf:
        return jnp.min(size, axis=axes, keepdims=keepdim)
    if order == 0:
        return jnp.sum(x != 0, axis=axes, keepdims=keepdim)
    if order == 1:
        return jnp.sum(size, axis=axes, keepdims=keepdim)
    return jnp.sum(size**order, axis=axes, keepdims=keepdim) ** (1 / order)


@reductions("norm")
def norm(x: Any, p: Any = 2, dim: Axes = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return vector_norm(x, 2 if p is None else p, dim, keepdim, dtype=dtype)


@reductions("softmax", "_softmax", "_safe_softmax", "special_softmax")
def softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """The third argument is a type, or says of which kind the input was before."""
    x = x if dtype is None or isinstance(dtype, bool) else x.astype(dtype)
    return jax.nn.softmax(x, axis=dim)


@reductions("log_softmax", "_log_softmax", "special_log_softmax")
def log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    x = x if dtype is None or isinstance(dtype, bool) else x.astype(dtype)
    return jax.nn.log_softmax(x, axis=dim)


@reductions("cumsum")
def cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return jnp.cumsum(x, axis=dim, dtype=dtype)


@reductions("cumprod")
def cumprod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return jnp.cumprod(x, axis=dim, dtype=dtype)


def _running(extreme: Any) -> Any:
    """The largest or least so far, and where it stands: the last place of several."""

    def rule(x: Any, dim: int) -> list[Any]:
        dim %= x.ndim
        values = extreme(x, axis=dim)
        places = lax.broadcasted_iota(jnp.int32, x.shape, dim)
        return [values, lax.cummax(jnp.where(x == values, places, 0), axis=dim)]

    return rule


reductions.rows({"cummax": _running(lax.cummax), "cummin": _running(lax.cummin)})
