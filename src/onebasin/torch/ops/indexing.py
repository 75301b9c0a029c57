"""Entries picked by index, and orders."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from onebasin.torch.ops.held import by_group, is_groups
from onebasin.torch.table import Family

indexing = Family("indexing")


@indexing("embedding")
def embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table; that of the padding is not trained."""
    rows = jnp.take(weight, indices, axis=0, mode="clip")
    if padding_idx < 0:
        return rows
    return jnp.where((indices == padding_idx)[..., None], lax.stop_gradient(rows), rows)


@indexing("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = -1,
) -> tuple[Any, Any, Any, Any]:
    """Sums (0), means (1) or maxima (2) of the rows of each bag."""
    if padding_idx is not None and padding_idx >= 0:
        raise NotImplementedError("embedding_bag has a rule without padding_idx only")
    starts = offsets[:-1] if include_last_offset else offsets
    bags = starts.shape[0]
    bag = jnp.sum(jnp.arange(indices.shape[0])[:, None] >= starts, axis=1) - 1
    rows = jnp.take(weight, indices, axis=0, mode="clip")
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    sizes = jax.ops.segment_sum(jnp.ones_like(bag), bag, bags)
    if mode == 2:
        found = jax.ops.segment_max(rows, bag, bags)
        found = jnp.where(sizes[:, None] == 0, 0, found)
    else:
        found = jax.ops.segment_sum(rows, bag, bags)
        if mode == 1:
            found = found / jnp.maximum(sizes, 1)[:, None].astype(rows.dtype)
    return found, bag, sizes, sizes


@indexing("gather")
def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if x.ndim == 0:
        return jnp.broadcast_to(x, index.shape)
    corner = tuple(
        slice(None) if axis == dim % x.ndim else slice(0, n) for axis, n in enumerate(index.shape)
    )
    return jnp.take_along_axis(x[corner], index, axis=dim)


@indexing("take_along_dim")
def take_along_dim(x: Any, index: Any, dim: int | None = None) -> Any:
    if dim is None:
        return x.reshape(-1)[index.reshape(-1)]
    return jnp.take_along_axis(x, index, axis=dim)


@indexing("index_select")
def index_select(x: Any, dim: int, index: Any) -> Any:
    return jnp.take(x, index, axis=dim)


@indexing("take")
def take(x: Any, index: Any) -> Any:
    return x.reshape(-1)[index]


@indexing("index.Tensor", "_unsafe_index")
def index(x: Any, indices: Any) -> Any:
    return x[where(indices)]


def where(indices: Any) -> tuple[Any, ...]:
    """PyTorch's list of indices, None for whole axes, as NumPy writes it."""
    if any(i is not None and i.dtype == bool for i in indices):
        raise NotImplementedError(
            "how many entries a mask picks depends on the data: write torch.where"
        )
    return tuple(slice(None) if i is None else i for i in indices)


@indexing("topk")
def topk(
    x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Any, Any]:
    if largest and x.ndim and x.dtype != bool:
        values, places = lax.top_k(jnp.moveaxis(x, dim, -1), k)
        return jnp.moveaxis(values, -1, dim), jnp.moveaxis(places, -1, dim)
    order = jnp.argsort(x, axis=dim, descending=largest)
    picked = lax.slice_in_dim(order, 0, k, axis=dim)
    return jnp.take_along_axis(x, picked, axis=dim), picked


@indexing("sort")
def sort(x: Any, dim: int = -1, descending: bool = False, **_: Any) -> tuple[Any, Any]:
    if is_groups(x) and not descending:
        return by_group(x)
    order = jnp.argsort(x, axis=dim, descending=descending)
    return jnp.take_along_axis(x, order, axis=dim), order


@indexing("sort.stable")
def sort_stable(
    x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Any, Any]:
    return sort(x, dim, descending)


@indexing("argsort")
def argsort(x: Any, dim: int = -1, descending: bool = False, **_: Any) -> Any:
    if is_groups(x) and not descending:
        return by_group(x)[1]
    return jnp.argsort(x, axis=dim, descending=descending)


@indexing("argsort.stable")
def argsort_stable(x: Any, *, stable: bool, dim: int = -1, descending: bool = False) -> Any:
    return argsort(x, dim, descending)


@indexing("bucketize")
def bucketize(x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return jnp.searchsorted(boundaries, x, side="right" if right else "left")


@indexing("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    boundaries: Any, x: Any, *, right: bool = False, side: str | None = None, **_: Any
) -> Any:
    if boundaries.ndim != 1:
        raise NotImplementedError("boundaries of more than one axis")
    side = side or ("right" if right else "left")
    return jnp.searchsorted(boundaries, x, side=side)
