"""Minimum mass: the rescaling of a network that has the smallest sum of squared weights.

With mu the log-scales and e_w the exponents with which they act on weight w, the mass

    M(mu) = sum_w w^2 exp(2 e_w . mu)

is convex (laurent2024symmetry). It is minimised factor by factor (stock2019equi), in sweeps that
are accelerated. For one unit of a factor, the others held fixed, only the masses m_p of its weights
with exponents p count:

    F(delta) = sum_p m_p exp(2 p . delta).

One scaling with in-mass m_+ and out-mass m_- (exponents a and -b) has the closed form

    delta = log(b m_- / (a m_+)) / (2 (a + b)),        lambda = (m_- / m_+)^(1/4) for a = b = 1;

several scalings, or several exponents, take damped Newton steps. Both never raise F.

A minimum exists iff no direction d has e_w . d <= 0 for all weights and < 0 for some. Whether one
does is a small linear program over the factors, since all units of a factor are alike; the weights
that can be driven to zero are left out of the mass.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from onebasin.align import anderson, masses
from onebasin.align.masses import LogScales, Mass
from onebasin.align.touches import Box, Touch
from onebasin.symmetry import Symmetry

MAX_SWEEPS = 1000
NEWTON_STEPS = 4


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Row:
    """What the mass of a factor's units is made of.

    Attributes:
        factor: Name of the factor.
        terms: The boxes that it scales, and where it touches them.
        patterns: Its exponents [term, generator].
        share: How many units of the factor a single weight joins; steps are divided by it.
    """

    factor: str
    terms: tuple[tuple[int, Touch], ...]
    patterns: np.ndarray
    share: int


def vanishing(boxes: Sequence[Box], counted: Collection[int]) -> frozenset[int]:
    """The boxes whose mass can be driven to zero without raising any other.

    Maximises sum_b y_b subject to e_b . d + y_b <= 0 and 0 <= y_b <= 1 over d and y.
    """
    from scipy import optimize, sparse

    scaled = [i for i in counted if boxes[i].scalings]
    columns: dict[tuple[str, int], int] = {}
    entries: dict[tuple[int, int], float] = {}
    for row, number in enumerate(scaled):
        for touch in boxes[number].scalings:
            for generator, e in enumerate(touch.pattern):
                column = columns.setdefault((touch.factor, generator), len(columns))
                entries[row, column] = entries.get((row, column), 0.0) + e
    if not scaled:
        return frozenset()
    shape = (len(scaled), len(columns))
    rows, cols = np.array(list(entries)).T
    exponents = sparse.csr_array((list(entries.values()), (rows, cols)), shape=shape)
    solution = optimize.linprog(
        np.concatenate([np.zeros(shape[1]), -np.ones(shape[0])]),
        A_ub=sparse.hstack([exponents, sparse.eye_array(shape[0])]),
        b_ub=np.zeros(shape[0]),
        bounds=[(None, None)] * shape[1] + [(0, 1)] * shape[0],
    )
    return frozenset(
        number for number, y in zip(scaled, solution.x[shape[1] :], strict=True) if y > 0.5
    )


def rows_of(symmetry: Symmetry, boxes: Sequence[Box], counted: Collection[int]) -> list[Row]:
    """The factors that scale, in order of use, with what makes up their mass."""
    found = []
    for factor in symmetry.factors:
        own = [
            [(number, touch) for touch in boxes[number].scalings if touch.factor == factor.name]
            for number in sorted(counted)
        ]
        terms = tuple(itertools.chain(*own))
        if terms:
            patterns = np.array([touch.pattern for _, touch in terms])
            found.append(Row(factor.name, terms, patterns, max(map(len, own))))
    return found


def tolerance(dtype: Any) -> float:
    """The relative gradient at which to stop: near what rounding leaves of it."""
    return max(1e-12, 16 * float(np.finfo(dtype).eps))


def minimise(
    boxes: Sequence[Box],
    weights: Mapping[int, Mass],
    rows: Sequence[Row],
    start: LogScales,
    xp: Any,
    max_sweeps: int = MAX_SWEEPS,
) -> tuple[dict[str, Any], Any]:
    """Sweeps over the factors until every unit is in balance.

    Args:
        boxes: The boxes of the parameters.
        weights: Their masses.
        rows: The factors to sweep over.
        start: The log-scales to start from.
        xp: NumPy or JAX.
        max_sweeps: The largest number of sweeps.

    Returns:
        The log-scales, and the number of sweeps, [draw].
    """
    units = _Units(boxes, weights, rows, xp)
    shapes = [start[row.factor].shape for row in rows]
    ends = np.cumsum([math.prod(shape[1:]) for shape in shapes])[:-1]

    def flatten(log_scales: LogScales) -> Any:
        own = [log_scales[row.factor] for row in rows]
        return xp.concatenate([scales.reshape(len(scales), -1) for scales in own], axis=1)

    def unflatten(flat: Any) -> dict[str, Any]:
        parts = zip(rows, xp.split(flat, ends, axis=1), shapes, strict=True)
        return {row.factor: part.reshape(shape) for row, part, shape in parts}

    flat = flatten(start)
    # Scales stay in range, however long an unbounded unit drifts.
    limit = 0.9 * float(np.log(np.finfo(flat.dtype).max))

    def sweep(flat: Any) -> tuple[Any, Any]:
        log_scales = unflatten(flat)
        imbalance = xp.zeros(len(flat), flat.dtype)
        for row in rows:
            logs = units.log_masses(row, log_scales)
            pulled, free = pull(logs, row.patterns, xp)
            largest = xp.max(xp.abs(pulled).reshape(len(flat), -1), axis=1, initial=0)
            imbalance = xp.maximum(imbalance, largest / 2)
            step = unit_step(logs, row.patterns, pulled, free, xp)
            moved = log_scales[row.factor] + step / row.share
            log_scales[row.factor] = xp.clip(moved, -limit, limit)
        return flatten(log_scales), imbalance

    flat, sweeps = anderson.fixed_point(sweep, flat, tolerance(flat.dtype), max_sweeps, xp)
    return dict(start) | unflatten(flat), sweeps


def balance(
    boxes: Sequence[Box],
    weights: Mapping[int, Mass],
    rows: Sequence[Row],
    log_scales: LogScales,
    xp: Any,
) -> tuple[Any, Any]:
    """Per draw, the largest relative gradient of a unit and the number of units left alone."""
    gradient: Any = 0.0
    dead: Any = 0
    units = _Units(boxes, weights, rows, xp)
    for row in rows:
        logs = units.log_masses(row, log_scales)
        pulled, free = pull(logs, row.patterns, xp)
        steep = xp.abs(xp.tanh(pulled / 2)).reshape(len(logs), -1)
        gradient = xp.maximum(gradient, xp.max(steep, axis=1, initial=0))
        stuck = xp.any(~free & np.any(row.patterns, axis=0), axis=-1)
        dead = dead + xp.sum(stuck.reshape(len(logs), -1), axis=1)
    return gradient, dead


class _Units:
    """The masses of all units, box by box, at any log-scales."""

    def __init__(
        self, boxes: Sequence[Box], weights: Mapping[int, Mass], rows: Sequence[Row], xp: Any
    ):
        self.boxes, self.xp = boxes, xp
        used = {number for row in rows for number, _ in row.terms}
        self.weights = {i: masses.off_diagonal(boxes[i], weights[i], xp) for i in used}
        # What only one factor scales is summed once, before the sweeps.
        self.alone = {
            (row.factor, number): self._log_mass(number, touch, {})
            for row in rows
            for number, touch in row.terms
            if len(boxes[number].scalings) == 1
        }

    def _log_mass(self, number: int, touch: Touch, log_scales: LogScales) -> Any:
        box, mass = self.boxes[number], self.weights[number]
        return masses.log_mass(box, mass, log_scales, touch, self.xp)

    def log_masses(self, row: Row, log_scales: LogScales) -> Any:
        """Log-masses [draw, index.., term]."""
        own = log_scales[row.factor]
        logs = [
            self.alone[row.factor, number]
            if (row.factor, number) in self.alone
            else self._log_mass(number, touch, log_scales)
            for number, touch in row.terms
        ]
        return self.xp.stack(logs, axis=-1) + 2 * own @ row.patterns.T.astype(own.dtype)


def unit_step(logs: Any, patterns: np.ndarray, pulled: Any, free: Any, xp: Any) -> Any:
    """The step delta [.., generator] that lowers sum_p exp(logs_p + 2 patterns_p . delta).

    `pulled` and `free` are what `pull` says of the same masses.

    The closed form reaches the minimum if each weight has one generator, with one positive and one
    negative exponent. Else it stops short of it, and Newton steps follow.
    """
    joined = int(np.max(np.count_nonzero(patterns, axis=1)))
    width = np.max(patterns, axis=0) - np.min(patterns, axis=0)
    width = 2 * joined * np.where(width > 0, width, 1)
    step = pulled / width.astype(logs.dtype)
    even = all(len(set(column[column * s > 0])) <= 1 for column in patterns.T for s in (1, -1))
    if joined == 1 and even:
        return step
    exponents = (2 * patterns).astype(logs.dtype)
    for _ in range(NEWTON_STEPS):
        step = step + _newton(logs + step @ exponents.T, exponents, free, xp)
    return step


def pull(logs: Any, patterns: np.ndarray, xp: Any) -> tuple[Any, Any]:
    """How far in-mass and out-mass are from balance, per unit and generator, and what can move.

    Log of sum_p |p| m_p over negative exponents p, minus that over positive ones. A generator with
    mass on one side only cannot move: its unit is dead, and is left alone.
    """
    lowest = np.finfo(logs.dtype).min
    sides = []
    for sign in (1, -1):
        size = np.where(sign * patterns > 0, np.log(np.maximum(np.abs(patterns), 1e-9)), -np.inf)
        terms = logs[..., None] + size.astype(logs.dtype)
        peak = xp.maximum(xp.max(terms, axis=-2), lowest)
        sides.append(xp.log(xp.sum(xp.exp(terms - peak[..., None, :]), axis=-2)) + peak)
    up, down = sides
    free = (up > -np.inf) & (down > -np.inf)
    return xp.where(free, down, 0) - xp.where(free, up, 0), free


def _newton(logs: Any, exponents: np.ndarray, free: Any, xp: Any) -> Any:
    """A Newton step of length log(1 + b) / b, b the largest change of a log-mass: never uphill."""
    info = np.finfo(logs.dtype)
    shares = xp.exp(logs - xp.maximum(xp.max(logs, axis=-1, keepdims=True), info.min))
    gradient = xp.where(free, shares @ exponents, 0)
    hessian = xp.einsum("...p,pij->...ij", shares, exponents[:, :, None] * exponents[:, None])
    diagonal = xp.where(free, xp.diagonal(hessian, axis1=-2, axis2=-1), 0)
    norm = xp.where(diagonal > 0, 1 / xp.sqrt(xp.where(diagonal > 0, diagonal, 1)), 0)
    # On a unit diagonal, so that generators of light weights count; the ridge is for twins.
    unit = np.eye(exponents.shape[1], dtype=logs.dtype)
    scaled = hessian * norm[..., :, None] * norm[..., None, :] + 100 * float(info.eps) * unit
    scaled = xp.where(unit * (norm == 0)[..., None, :] > 0, 1, scaled)
    direction = -norm * xp.linalg.solve(scaled, (norm * gradient)[..., None])[..., 0]
    change = xp.max(xp.where(shares > 0, xp.abs(direction @ exponents.T), 0), axis=-1)
    length = xp.where(change > 0, xp.log1p(change) / xp.where(change > 0, change, 1), 0)
    return length[..., None] * direction
