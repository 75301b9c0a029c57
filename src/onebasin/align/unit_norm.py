"""Unit norm: every unit's incoming weights have norm 1.

A unit with k scalings has k norms to fix. They are found by walking over the boxes of the
parameters in order of use. A box is an *anchor* of factor f if f is the only one that can still
change it along a free direction: given what was fixed before, its norm per unit of f tells how far
to go along that direction, and each anchor takes one direction away. With p the exponents of f on
the box, d a direction with p . d = 1 that no earlier anchor sees, and norm_i the norm for unit i,

    log_scale_i <- log_scale_i - d log norm_i.

So a hidden layer gets unit incoming weights, a residual stream unit weights in the layer that first
writes to it, BatchNorm unit weights before it and unit gains, queries unit norm against their keys.
Where the walk reaches all directions, the result is the same for all networks of an orbit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from onebasin.align import masses
from onebasin.align.masses import LogScales, Mass
from onebasin.align.touches import Box, Touch
from onebasin.symmetry import Symmetry

Kind = Literal["scalings", "signs"]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Anchor:
    """Boxes whose weights settle one direction of a factor's generators, unit by unit."""

    factor: str
    direction: np.ndarray
    boxes: tuple[tuple[int, Touch], ...]


class Directions:
    """The directions of a unit's generators that nothing has settled yet, as rows.

    Over the rationals for scalings, modulo 2 for signs.
    """

    def __init__(self, count: int, kind: Kind):
        self.free = np.eye(count)
        self.modulus = 2 if kind == "signs" else None

    def _modulo(self, values: np.ndarray) -> np.ndarray:
        return values % 2 if self.modulus else values

    def sees(self, pattern: Sequence[float]) -> bool:
        """Whether a box with these exponents changes along a free direction."""
        return bool(np.any(np.abs(self._modulo(self.free @ pattern)) > 1e-9))

    def settle(self, pattern: Sequence[float]) -> np.ndarray:
        """Takes away a direction d with pattern . d = 1, and returns it."""
        along = self._modulo(self.free @ pattern)
        pivot = int(np.argmax(np.abs(along)))
        direction = self.free[pivot] / along[pivot]
        rest = np.delete(self.free, pivot, 0)
        along = np.delete(along, pivot)
        self.free = self._modulo(rest - along[:, None] * direction)
        return direction


def anchors(
    symmetry: Symmetry,
    boxes: Sequence[Box],
    kind: Kind,
    *,
    biases: bool,
    settled: Collection[int] = (),
) -> list[Anchor]:
    """The walk: which boxes settle which directions, in which order.

    Args:
        symmetry: The group.
        boxes: The boxes of its parameters in order of use.
        kind: Whether scalings or signs are to be settled.
        biases: Whether the biases of an anchor join it; no bias is an anchor by itself unless
            nothing else is left.
        settled: Boxes that something else settles already; they are no anchors.
    """
    free = {factor.name: Directions(getattr(factor, kind), kind) for factor in symmetry.factors}
    for number in sorted(settled):
        for touch in getattr(boxes[number], kind):
            if free[touch.factor].sees(touch.pattern):
                free[touch.factor].settle(touch.pattern)
    found: list[Anchor] = []
    walk = [i for i in range(len(boxes)) if i not in settled]
    walk.sort(key=lambda i: boxes[i].kernel is not None)
    while True:
        unsettled = [(i, t) for i in walk if (t := _open(boxes[i], kind, free))]
        if not unsettled:
            return found
        number, first = unsettled[0]
        together = [
            (i, touch)
            for i, touch in unsettled
            if (touch.factor, touch.pattern) == (first.factor, first.pattern)
            and boxes[number].leaf in _leaves(boxes, i, biases)
        ]
        direction = free[first.factor].settle(first.pattern)
        found.append(Anchor(first.factor, direction, tuple(together)))


def _leaves(boxes: Sequence[Box], number: int, biases: bool) -> set[int]:
    """The leaf of a box, and that of its kernel where biases count."""
    kernel = boxes[number].kernel
    return {boxes[number].leaf} | ({boxes[kernel].leaf} if biases and kernel is not None else set())


def _open(box: Box, kind: Kind, free: Mapping[str, Directions]) -> Touch | None:
    """The one touch of a box that is not settled; None if there are none or several."""
    touches = [t for t in getattr(box, kind) if free[t.factor].sees(t.pattern)]
    return touches[0] if len(touches) == 1 else None


def unit_norm(
    boxes: Sequence[Box],
    weights: Mapping[int, Mass],
    log_scales: LogScales,
    found: Sequence[Anchor],
    xp: Any,
) -> dict[str, Any]:
    """Moves log-scales so that the anchors have unit norm; units of zero norm stay."""
    moved = dict(log_scales)
    for anchor in found:
        total: Any = -np.inf
        for number, touch in anchor.boxes:
            log = masses.log_mass(boxes[number], weights[number], moved, touch, xp)
            total = xp.logaddexp(total, log + masses.exponent(touch, moved))
        step = xp.where(xp.isfinite(total), -total / 2, 0)
        scales = moved[anchor.factor]
        moved[anchor.factor] = scales + step[..., None] * anchor.direction.astype(scales.dtype)
    return moved
