"""Products of rows with the matrix of their group, and the rows of each group counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from onebasin.torch.ops import indexing, reductions, scattering
from onebasin.torch.ops.held import SPECIAL, Back, Counting, Counts, Sorted
from onebasin.torch.ops.layout import Held
from onebasin.torch.table import Family, Rule

grouping = Family("grouping")
# The entries of one matrix for each row up to which they are looked up, all at once; beyond, each
# matrix is multiplied with all rows.
FEW = 2**24


@grouping("histc")
def histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """How many entries lie in each of some bins of one width; the last holds its end too."""
    x = x.reshape(-1)
    low, high = (jnp.min(x), jnp.max(x)) if min == max else (min, max)
    place = jnp.floor((x - low) * (bins / (high - low))).astype(int)
    place = jnp.where(x == high, bins - 1, place)
    inside = (x >= low) & (x <= high)
    return jnp.zeros(bins, x.dtype).at[place].add(inside.astype(x.dtype))


@grouping("_grouped_mm")
def grouped_mm(
    x: Any, weights: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Rows by the matrix of their group, of which each ends where `offs` says."""
    if offs is None and x.ndim == weights.ndim == 3:
        return jnp.matmul(x, weights)
    if bias is not None or (x.ndim, weights.ndim) != (2, 3) or offs is None:
        raise NotImplementedError("grouped products of rows with matrices, without a bias, only")
    return product(x, weights, jnp.searchsorted(offs, jnp.arange(len(x)), side="right"))


grouping.rows({"grouped_mm_fallback": grouped_mm}, namespace="transformers")


def product(x: Any, weights: Any, groups: Any) -> Any:
    """Each row by the matrix of its group; zero for a group that has none."""
    count, _, outputs = weights.shape
    if len(x) * weights[0].size <= FEW:
        own = weights.at[groups].get(mode="fill", fill_value=0)
        return jnp.matmul(x[:, None], own)[:, 0]

    def add(total: Any, group: Any) -> tuple[Any, None]:
        matrix, number = group
        return total + jnp.where((groups == number)[:, None], x @ matrix, 0), None

    start = jnp.zeros((len(x), outputs), jnp.result_type(x, weights))
    return lax.scan(add, start, (weights, jnp.arange(count)))[0]


def _on_sorted(rule: Rule) -> Callable[[Rule], Rule]:
    """Enters what a rule does with sorted rows; it may decline with `NotImplemented`."""

    def enter(special: Rule) -> Rule:
        SPECIAL[rule] = special
        return special

    return enter


@_on_sorted(indexing.index)
def _index(x: Any, indices: Any) -> Any:
    """Rows looked up in sorted order, and sorted rows put back."""
    first, *more = indices
    if isinstance(first, Sorted) and not isinstance(x, Held) and not more:
        return Sorted(indexing.index(x, [first.array]), first.order)
    if isinstance(first, Back) and isinstance(x, Sorted) and not more and x.order is first.order:
        return x.array
    return NotImplemented


@_on_sorted(scattering.index_put)
def _index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """Rows that are written to where they came from: all are, so that nothing is left of before."""
    first, *more = indices
    if more or accumulate or not isinstance(first, Sorted) or first.what != "rows":
        return NotImplemented
    if x.shape[0] != first.shape[0]:
        return NotImplemented
    if isinstance(values, Counting) and len(x.shape) == 1:
        return Back(first.array, first.order)
    if isinstance(values, Sorted) and values.order is first.order and values.shape == x.shape:
        return values.array
    return NotImplemented


@_on_sorted(scattering.index_add)
def _index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    """Sums do not depend on the order of what is added."""
    both = isinstance(index, Sorted) and isinstance(source, Sorted)
    if isinstance(x, Held) or dim != 0 or not both or index.order is not source.order:
        return NotImplemented
    return scattering.index_add(x, dim, index.array, source.array, alpha=alpha)


@_on_sorted(indexing.argsort)
def _argsort(x: Any, dim: int = -1, descending: bool = False, **_: Any) -> Any:
    """Where each row went, from which rows come first."""
    if isinstance(x, Sorted) and x.what == "rows" and not descending:
        return Back(x.array, x.order)
    return NotImplemented


@_on_sorted(histc)
def _histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """The order makes no difference; if each group has a bin, these are the sizes of groups."""
    if not isinstance(x, Sorted):
        return NotImplemented
    counts = histc(x.array, bins, min, max)
    one_each = x.what == "groups" and (min, max) == (0, bins - 1)
    return Counts(counts, x.order) if one_each else counts


@_on_sorted(reductions.cumsum)
def _cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    if not isinstance(x, Counts) or x.ends:
        return NotImplemented
    return Counts(reductions.cumsum(x.array, dim, dtype=dtype), x.order, ends=True)


@_on_sorted(grouped_mm)
def _grouped_mm(
    x: Any, weights: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Each row by the matrix of the group that it was sorted by."""
    if not (isinstance(x, Sorted) and isinstance(offs, Counts) and offs.ends) or bias is not None:
        return NotImplemented
    if x.order is not offs.order or weights.ndim != 3 or len(weights) != len(offs.array):
        return NotImplemented
    return Sorted(product(x.array, weights, x.order.groups), x.order)
