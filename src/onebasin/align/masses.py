"""Squared masses of boxes, summed down to what the scalings can tell apart.

Arrays have the axis of the draws in front; `xp` is NumPy or JAX, whichever they are of.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.touches import Box, Touch
from onebasin.symmetry.host import widened

LogScales = Mapping[str, Any]
"""Log-scales [draw, index.., k] by factor name."""

WRITTEN_OUT = 64


class Mass(NamedTuple):
    """The mass of a box: entries times exp(offset) for every touch, laid along its places.

    The entries run along the sides that scale. In single precision offsets take up the scales of
    the units, so that squares neither overflow nor vanish.
    """

    entries: Any
    offsets: tuple[Any, ...]


def joint(box: Box) -> tuple[int, ...]:
    """The sides of a box along which it scales."""
    return tuple(sorted({place for touch in box.scalings for place in touch.places}))


def measure(box: Box, leaves: Sequence[Any], xp: Any) -> Mass:
    """Sums the squares of a box over the sides that do not scale; NumPy does so in double."""
    leaf = leaves[box.leaf]
    weights = leaf[(slice(None), *box.block.at())].reshape(len(leaf), *box.block.shape)
    if xp is np:
        axes = list(range(weights.ndim))
        kept = [0, *(place + 1 for place in joint(box))]
        squares = np.einsum(weights, axes, weights, axes, kept, dtype=np.float64, casting="unsafe")
        return Mass(squares, (0.0,) * len(box.scalings))
    return jax.vmap(functools.partial(_scaled_squares, box))(widened(weights))


def _scaled_squares(box: Box, weights: jax.Array) -> Mass:
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


def off_diagonal(box: Box, mass: Mass, xp: Any) -> Mass:
    """The mass without the entries that do not scale, as the self-connections of a recurrent net.

    Where a factor touches two sides with opposite exponents, they cancel at equal indices.
    """
    kept = joint(box)
    entries = mass.entries
    for a, b in itertools.combinations(box.scalings, 2):
        opposite = all(x == -y for x, y in zip(a.pattern, b.pattern, strict=False))
        if a.factor != b.factor or not opposite or len(box.scalings) > 2:
            continue
        same = np.ones((1,) * entries.ndim, bool)
        for p, q in zip(a.places, b.places, strict=True):
            if p != q:
                first, second = (_ruler(entries.shape, kept.index(side) + 1) for side in (p, q))
                same = same & (first == second)
        entries = xp.where(same, 0, entries)
    return Mass(entries, mass.offsets)


def _ruler(shape: Sequence[int], axis: int) -> np.ndarray:
    return np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])


def exponent(touch: Touch, log_scales: LogScales) -> Any:
    """Twice the log-scale that a touch gives: log of the factor by which it changes the mass."""
    scales = log_scales[touch.factor]
    return sum(2 * e * scales[..., g] for g, e in enumerate(touch.pattern) if e)


def log_mass(box: Box, mass: Mass, log_scales: LogScales, keep: Touch, xp: Any) -> Any:
    """Log of the mass of a box per unit of a factor, scaled by all but the factor's own touch."""
    operands: list[Any] = [mass.entries, [0, *(place + 1 for place in joint(box))]]
    shift: Any = 0
    for touch, offset in zip(box.scalings, mass.offsets, strict=True):
        if touch is keep:
            shift = shift + offset
            continue
        scale = offset + exponent(touch, log_scales)
        peak = xp.max(scale, axis=tuple(range(1, scale.ndim)))
        ends = peak.reshape(-1, *[1] * (scale.ndim - 1))
        operands += [xp.exp(scale - ends), [0, *(place + 1 for place in touch.places)]]
        shift = shift + peak.reshape(-1, *[1] * len(keep.places))
    return xp.log(xp.einsum(*operands, [0, *(place + 1 for place in keep.places)])) + shift


def total_mass(box: Box, mass: Mass, log_scales: LogScales, xp: Any) -> Any:
    """The mass of a whole box, scaled, [draw]."""
    if box.scalings:
        keep = box.scalings[0]
        logs = log_mass(box, mass, log_scales, keep, xp) + exponent(keep, log_scales)
        entries = xp.exp(logs)
    else:
        entries = mass.entries
    return xp.sum(entries.reshape(len(entries), -1), axis=1)
