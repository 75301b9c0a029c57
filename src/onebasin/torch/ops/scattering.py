"""Entries put, added or replaced by index or slice."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from onebasin.torch.ops.indexing import where
from onebasin.torch.ops.shape import bounds
from onebasin.torch.table import Family

scattering = Family("scattering")


def _places(dim: int, index: Any) -> tuple[Any, ...]:
    """Each entry of an index stands for itself on all axes but one."""
    grid = np.indices(index.shape, sparse=True)
    return tuple(index if axis == dim % index.ndim else g for axis, g in enumerate(grid))


def _corner(values: Any, index: Any) -> Any:
    if np.ndim(values) == 0:
        return values
    return values[tuple(slice(0, n) for n in index.shape)]


@scattering("scatter.src", "scatter.value")
def scatter(x: Any, dim: int, index: Any, values: Any) -> Any:
    return x.at[_places(dim, index)].set(_corner(values, index))


@scattering("scatter.reduce", "scatter.value_reduce")
def scatter_with(x: Any, dim: int, index: Any, values: Any, *, reduce: str) -> Any:
    place, values = x.at[_places(dim, index)], _corner(values, index)
    return place.add(values) if reduce == "add" else place.multiply(values)


@scattering("scatter_add")
def scatter_add(x: Any, dim: int, index: Any, values: Any) -> Any:
    return x.at[_places(dim, index)].add(_corner(values, index))


@scattering("scatter_reduce.two")
def scatter_reduce(
    x: Any, dim: int, index: Any, values: Any, reduce: str, *, include_self: bool = True
) -> Any:
    places, values = _places(dim, index), _corner(values, index)
    start = {"sum": 0, "mean": 0, "prod": 1, "amax": -jnp.inf, "amin": jnp.inf}[reduce]
    begun = x if include_self else x.at[places].set(start)
    place = begun.at[places]
    if reduce != "mean":
        names = {"sum": "add", "prod": "multiply", "amax": "max", "amin": "min"}
        return getattr(place, names[reduce])(values)
    counts = jnp.full(x.shape, int(include_self), x.dtype).at[places].add(1)
    return place.add(values) / jnp.maximum(counts, 1)


@scattering("index_put", "_unsafe_index_put")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if any(i is not None and i.dtype == bool for i in indices):
        return _masked_put(x, indices, values, accumulate)
    place = x.at[where(indices)]
    return place.add(values) if accumulate else place.set(values)


def _masked_put(x: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    """One value for all that a mask picks: anything else has a shape that depends on the data."""
    (mask, *more) = indices
    if more or mask is None or values.size != 1:
        raise NotImplementedError("a mask picks entries for one value only: write torch.where")
    mask = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
    return jnp.where(mask, x + values.reshape(()) if accumulate else values.reshape(()), x)


@scattering("index_add")
def index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].add(alpha * source)


@scattering("index_copy")
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(source)


@scattering("index_fill")
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(value)


@scattering("slice_scatter")
def slice_scatter(
    x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    span = slice(*bounds(x.shape[dim], start, end, step))
    return x.at[(slice(None),) * (dim % x.ndim) + (span,)].set(source)


@scattering("select_scatter")
def select_scatter(x: Any, source: Any, dim: int, index: int) -> Any:
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(source)


@scattering("copy")
def copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    return jnp.broadcast_to(source, x.shape).astype(x.dtype)
