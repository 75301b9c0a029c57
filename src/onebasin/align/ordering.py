"""Canonical signs and canonical order: what is left once the scales are fixed.

Signs: the incoming weight of largest magnitude is positive. As with unit norm, a walk over the
boxes in order of use says which weights settle which sign.

Order ("NS" of laurent2024symmetry): units are sorted by their incoming weights, the largest first.
Incoming are the weights through which the model first reaches a unit, without their biases. A
factor that depends on others is sorted inside each copy, and then the copies are sorted as wholes.

Functions are of one network; `xp` is NumPy or JAX, whichever its arrays are of.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onebasin.align.touches import Box, Touch
from onebasin.align.unit_norm import Anchor
from onebasin.symmetry import Element, Factor, Symmetry
from onebasin.symmetry.elements import compose

ORDERS = ("max", "mean", "median", "first")


def settle_signs(
    boxes: Sequence[Box],
    leaves: Sequence[Any],
    signs: Mapping[str, Any],
    found: Sequence[Anchor],
    xp: Any,
) -> dict[str, Any]:
    """Flips signs so that the weight of largest magnitude in every anchor is positive."""
    settled = dict(signs)
    for anchor in found:
        high: Any = -np.inf
        low: Any = np.inf
        for number, touch in anchor.boxes:
            weights = _flipped(boxes[number], leaves, settled, xp)
            high = xp.maximum(high, _per_unit(xp.max, weights, touch.places))
            low = xp.minimum(low, _per_unit(xp.min, weights, touch.places))
        flip = (high + low < 0)[..., None] & (anchor.direction > 0)
        old = settled[anchor.factor]
        settled[anchor.factor] = xp.where(flip, -old, old)
    return settled


def _content(box: Box, leaves: Sequence[Any]) -> Any:
    """The entries of a box, one axis per side."""
    return leaves[box.leaf][box.block.at()].reshape(box.block.shape)


def _flipped(box: Box, leaves: Sequence[Any], signs: Mapping[str, Any], xp: Any) -> Any:
    weights = _content(box, leaves)
    for touch in box.signs:
        weights = weights * _spread(_sign(touch, signs, xp), touch.places, weights.ndim, xp)
    return weights


def _sign(touch: Touch, signs: Mapping[str, Any], xp: Any) -> Any:
    odd = np.flatnonzero(np.asarray(touch.pattern) % 2)
    return xp.prod(signs[touch.factor][..., odd], axis=-1, dtype=xp.int8)


def _spread(values: Any, places: Sequence[int], ndim: int, xp: Any) -> Any:
    """Lays the axes of `values` at the given places among `ndim` axes."""
    order = [int(i) for i in np.argsort(places)]
    return xp.expand_dims(
        xp.transpose(values, order), tuple(i for i in range(ndim) if i not in places)
    )


def _per_unit(reduction: Callable[..., Any], weights: Any, places: Sequence[int]) -> Any:
    """A reduction of a box over all sides but the given ones, which become its axes in order."""
    others = tuple(i for i in range(weights.ndim) if i not in places)
    kept = sorted(places)
    return reduction(weights, axis=others).transpose([kept.index(p) for p in places])


def sort_units(
    symmetry: Symmetry, boxes: Sequence[Box], leaves: Sequence[Any], order: str, xp: Any
) -> dict[str, Any]:
    """The permutations that sort all factors.

    The largest weight, the mean and the median do not depend on how other factors are sorted. The
    first weight does: it is the first once the factors before are sorted.
    """
    waiting = [f for f in symmetry.factors if "permutation" in f.kinds]
    sorts: dict[str, Any] = {}
    while waiting:
        ready = [f for f in waiting if not _undecided(symmetry, f, _incoming(f, boxes), sorts)]
        factor = (ready or waiting)[0]
        waiting.remove(factor)
        incoming = _incoming(factor, boxes)
        if order == "first":
            key = _first(symmetry, factor, incoming[0], leaves, sorts, xp)
        else:
            key = _statistic(factor, incoming, leaves, order, xp)
        sorts[factor.name] = xp.argsort(-key, axis=-1, stable=True)
    return _nest(symmetry, sorts, xp)


def _incoming(factor: Factor, boxes: Sequence[Box]) -> list[Box]:
    own = [box for box in boxes if factor.index[-1] in box.block.sides]
    first = next((box for box in own if box.kernel is None), own[0])
    return [box for box in own if box.leaf == first.leaf]


def _places(factor: Factor, box: Box) -> tuple[int, ...]:
    """Where the index sets of a factor stand in a box: the last place, if there are several."""
    sides = box.block.sides
    return tuple(len(sides) - 1 - sides[::-1].index(name) for name in factor.index)


def _undecided(
    symmetry: Symmetry, factor: Factor, incoming: Sequence[Box], sorts: Mapping[str, Any]
) -> list[int]:
    """The sides of the incoming weights whose order is still open."""
    places = _places(factor, incoming[0])
    return [
        side
        for side, name in enumerate(incoming[0].block.sides)
        if side not in places and name in symmetry.permutable and name not in sorts
    ]


def _statistic(
    factor: Factor, incoming: Sequence[Box], leaves: Sequence[Any], order: str, xp: Any
) -> Any:
    boxes = [(_content(box, leaves), _places(factor, box)) for box in incoming]
    if order == "max":
        tops = [_per_unit(xp.max, weights, places) for weights, places in boxes]
        return functools.reduce(xp.maximum, tops)
    if order == "mean":
        totals = [_per_unit(xp.sum, weights, places) for weights, places in boxes]
        return sum(totals) / (sum(weights.size for weights, _ in boxes) / totals[0].size)
    units = [xp.moveaxis(weights, places, range(len(places))) for weights, places in boxes]
    rows = [u.reshape(*u.shape[: len(factor.index)], -1) for u in units]
    return xp.median(xp.concatenate(rows, axis=-1), axis=-1)


def _first(
    symmetry: Symmetry,
    factor: Factor,
    box: Box,
    leaves: Sequence[Any],
    sorts: Mapping[str, Any],
    xp: Any,
) -> Any:
    """For each unit the weight at the first index of all other sides, as these are sorted so far.

    Where a side waits for the factor itself, its largest weight stands in.
    """
    places, sides = _places(factor, box), box.block.sides
    weights = _content(box, leaves)
    undecided = _undecided(symmetry, factor, [box], sorts)
    weights = xp.max(weights, axis=tuple(undecided), keepdims=True)
    shape = tuple(symmetry.sizes[name] for name in factor.index)
    at: dict[int, Any] = {
        place: np.arange(n).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        for axis, (place, n) in enumerate(zip(places, shape, strict=True))
    }

    def index(side: int) -> Any:
        if side not in at:
            sort = None if side in undecided else sorts.get(sides[side])
            if sort is None:
                at[side] = 0
            else:
                above = tuple(index(sides.index(p)) for p in symmetry.parents[sides[side]])
                at[side] = sort[(*above, 0)]
        return at[side]

    return weights[tuple(index(side) for side in range(len(sides)))]


def _nest(symmetry: Symmetry, sorts: Mapping[str, Any], xp: Any) -> dict[str, Any]:
    """One permutation out of sorts that were made in the old order of their parents."""
    depth = {name: len(symmetry.parents[name]) for name in sorts}
    nothing = symmetry.identity(xp).permutations
    total: dict[str, Any] | None = None
    for level in sorted(set(depth.values()), reverse=True):
        step = nothing | {name: sort for name, sort in sorts.items() if depth[name] == level}
        if total is None:
            total = step
        else:
            plain = Element(step, {}, {})
            total = compose(symmetry, plain, Element(total, {}, {}), xp).permutations
    return total or dict(nothing)
