"""Squared masses of boxes, summed down to what the scalings can tell apart."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from onebasin.align.touches import Box, Touch

LogScales = Mapping[str, Any]
"""Log-scales [index.., k] by factor name, as in an element."""

WRITTEN_OUT = 64


class Mass(NamedTuple):
    """The mass of a box: entries times exp(offset) for every touch, laid along its places.

    The entries run along the sides that scale. They are at most about 1, whatever the scales of the
    units: offsets take those up, so that squares neither overflow nor vanish.
    """

    entries: jax.Array
    offsets: tuple[jax.Array, ...]


def joint(box: Box) -> tuple[int, ...]:
    """The sides of a box along which it scales."""
    return tuple(sorted({place for touch in box.scalings for place in touch.places}))


def content(box: Box, leaves: Sequence[Any]) -> jax.Array:
    """The entries of a box, one axis per side."""
    leaf = jnp.asarray(leaves[box.leaf])
    return leaf[box.block.at()].reshape(box.block.shape)


def measure(box: Box, leaves: Sequence[Any], dtype: Any) -> Mass:
    """Sums the squares of a box over the sides that do not scale."""
    weights = content(box, leaves).astype(dtype)
    kept = joint(box)
    lost = tuple(i for i in range(weights.ndim) if i not in kept)
    if not box.scalings:
        return Mass(jnp.sum(jnp.square(weights)), ())
    peaks = jnp.expand_dims(_fold(jnp.maximum, jnp.max, jnp.abs(weights), lost), lost)
    offsets = []
    for touch in box.scalings:
        others = tuple(i for i in range(weights.ndim) if i not in touch.places)
        peak = jnp.max(peaks, axis=others, keepdims=True)
        peak = jnp.where(peak > 0, peak, 1)
        weights, peaks = weights / peak, peaks / peak
        order = sorted(range(len(touch.places)), key=lambda i: touch.places[i])
        offset = 2 * jnp.log(jnp.squeeze(peak, others))
        offsets.append(jnp.transpose(offset, [order.index(i) for i in range(len(order))]))
    squares = _fold(jnp.add, jnp.sum, jnp.square(weights), lost)
    return Mass(squares, tuple(offsets))


def _fold(
    pair: Callable[[Any, Any], Any], reduction: Callable[..., Any], values: Any, lost: Sequence[int]
) -> Any:
    """A reduction over some axes; over a few leading ones it is written out.

    XLA takes a hundred times longer for the positions of a filter on a CPU otherwise.
    """
    count = math.prod(values.shape[: len(lost)])
    if tuple(lost) == tuple(range(len(lost))) and count <= WRITTEN_OUT:
        return functools.reduce(pair, values.reshape(count, *values.shape[len(lost) :]))
    return reduction(values, axis=tuple(lost))


def off_diagonal(box: Box, mass: Mass) -> Mass:
    """The mass without the entries that do not scale, as the self-connections of a recurrent net.

    Where a factor touches two sides with opposite exponents, they cancel at equal indices.
    """
    kept = joint(box)
    entries = mass.entries
    for a, b in itertools.combinations(box.scalings, 2):
        opposite = all(x == -y for x, y in zip(a.pattern, b.pattern, strict=False))
        if a.factor != b.factor or not opposite or len(box.scalings) > 2:
            continue
        same = jnp.ones((1,) * entries.ndim, bool)
        for p, q in zip(a.places, b.places, strict=True):
            if p != q:
                grid = [
                    jax.lax.broadcasted_iota(jnp.int32, entries.shape, kept.index(side))
                    for side in (p, q)
                ]
                same = same & (grid[0] == grid[1])
        entries = jnp.where(same, 0, entries)
    return Mass(entries, mass.offsets)


def exponent(touch: Touch, log_scales: LogScales) -> Any:
    """Twice the log-scale that a touch gives: log of the factor by which it changes the mass."""
    scales = log_scales[touch.factor]
    return sum(2 * e * scales[..., g] for g, e in enumerate(touch.pattern) if e)


def log_mass(box: Box, mass: Mass, log_scales: LogScales, keep: Touch) -> Any:
    """Log of the mass of a box per unit of a factor, scaled by all but the factor's own touch."""
    operands: list[Any] = [mass.entries, list(joint(box))]
    shift: Any = 0
    for touch, offset in zip(box.scalings, mass.offsets, strict=True):
        if touch is keep:
            shift = shift + offset
            continue
        scale = offset + exponent(touch, log_scales)
        peak = jnp.max(scale)
        operands += [jnp.exp(scale - peak), list(touch.places)]
        shift = shift + peak
    return jnp.log(jnp.einsum(*operands, list(keep.places))) + shift


def total_mass(box: Box, mass: Mass, log_scales: LogScales) -> Any:
    """The mass of a whole box, scaled."""
    if not box.scalings:
        return jnp.sum(mass.entries)
    keep = box.scalings[0]
    return jnp.sum(jnp.exp(log_mass(box, mass, log_scales, keep) + exponent(keep, log_scales)))
