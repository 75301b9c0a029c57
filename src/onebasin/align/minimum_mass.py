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
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
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
    return max(1e-12, 16 * float(jnp.finfo(dtype).eps))


def minimise(
    boxes: Sequence[Box],
    weights: Mapping[int, Mass],
    rows: Sequence[Row],
    start: LogScales,
    tolerance: float,
    max_sweeps: int = MAX_SWEEPS,
) -> tuple[dict[str, Any], Any]:
    """Sweeps over the factors until every unit is in balance.

    Args:
        boxes: The boxes of the parameters.
        weights: Their masses.
        rows: The factors to sweep over.
        start: The log-scales to start from.
        tolerance: The largest gradient of a unit that is left, |in - out| / (in + out) in masses.
        max_sweeps: The largest number of sweeps.

    Returns:
        The log-scales, and the number of sweeps.
    """
    if not rows:
        return dict(start), jnp.zeros((), jnp.int32)
    units = _Units(boxes, weights, rows)
    flat, unflat = jax.flatten_util.ravel_pytree({row.factor: start[row.factor] for row in rows})
    # Scales stay in range, however long an unbounded unit drifts.
    limit = 0.9 * float(np.log(jnp.finfo(flat.dtype).max))

    def sweep(flat: jax.Array) -> tuple[jax.Array, jax.Array]:
        log_scales = unflat(flat)
        imbalance = jnp.zeros((), flat.dtype)
        for row in rows:
            logs = units.log_masses(row, log_scales)
            imbalance = jnp.maximum(imbalance, jnp.max(jnp.abs(pull(logs, row.patterns)[0])) / 2)
            moved = log_scales[row.factor] + unit_step(logs, row.patterns) / row.share
            log_scales[row.factor] = jnp.clip(moved, -limit, limit)
        return jax.flatten_util.ravel_pytree(log_scales)[0], imbalance

    flat, sweeps = anderson.fixed_point(sweep, flat, tolerance, max_sweeps)
    return dict(start) | unflat(flat), sweeps


def balance(
    boxes: Sequence[Box], weights: Mapping[int, Mass], rows: Sequence[Row], log_scales: LogScales
) -> tuple[Any, Any]:
    """The largest relative gradient of a unit, and how many units have a scale left alone."""
    gradient, dead = jnp.zeros(()), jnp.zeros((), jnp.int32)
    units = _Units(boxes, weights, rows)
    for row in rows:
        logs = units.log_masses(row, log_scales)
        pulled, free = pull(logs, row.patterns)
        gradient = jnp.maximum(gradient, jnp.max(jnp.abs(jnp.tanh(pulled / 2))))
        stuck = ~free & np.any(row.patterns, axis=0)
        dead += jnp.sum(jnp.any(stuck, axis=-1), dtype=jnp.int32)
    return gradient, dead


class _Units:
    """The masses of all units, box by box, at any log-scales."""

    def __init__(self, boxes: Sequence[Box], weights: Mapping[int, Mass], rows: Sequence[Row]):
        self.boxes = boxes
        used = {number for row in rows for number, _ in row.terms}
        self.weights = {i: masses.off_diagonal(boxes[i], weights[i]) for i in used}
        # What only one factor scales is summed once, before the sweeps.
        self.alone = {
            (row.factor, number): masses.log_mass(boxes[number], self.weights[number], {}, touch)
            for row in rows
            for number, touch in row.terms
            if len(boxes[number].scalings) == 1
        }

    def log_masses(self, row: Row, log_scales: LogScales) -> Any:
        """Log-masses [index.., term]."""
        own = log_scales[row.factor]
        logs = [
            self.alone[row.factor, number]
            if (row.factor, number) in self.alone
            else masses.log_mass(self.boxes[number], self.weights[number], log_scales, touch)
            for number, touch in row.terms
        ]
        return jnp.stack(logs, axis=-1) + 2 * own @ jnp.asarray(row.patterns.T, own.dtype)


def unit_step(logs: Any, patterns: np.ndarray) -> Any:
    """The step delta [index.., generator] that lowers sum_p exp(logs_p + 2 patterns_p . delta).

    The closed form reaches the minimum if each weight has one generator, with one positive and one
    negative exponent. Else it stops short of it, and Newton steps follow.
    """
    joined = int(np.max(np.count_nonzero(patterns, axis=1)))
    width = np.max(patterns, axis=0) - np.min(patterns, axis=0)
    width = 2 * joined * np.where(width > 0, width, 1)
    pulled, free = pull(logs, patterns)
    step = pulled / width.astype(logs.dtype)
    even = all(len(set(column[column * s > 0])) <= 1 for column in patterns.T for s in (1, -1))
    if joined == 1 and even:
        return step
    exponents = jnp.asarray(2 * patterns, logs.dtype)
    return jax.lax.fori_loop(
        0, NEWTON_STEPS, lambda _, x: x + _newton(logs + x @ exponents.T, exponents, free), step
    )


def pull(logs: Any, patterns: np.ndarray) -> tuple[Any, Any]:
    """How far in-mass and out-mass are from balance, per unit and generator, and what can move.

    Log of sum_p |p| m_p over negative exponents p, minus that over positive ones. A generator with
    mass on one side only cannot move: its unit is dead, and is left alone.
    """
    sides = []
    for sign in (1, -1):
        size = np.where(sign * patterns > 0, np.log(np.maximum(np.abs(patterns), 1e-9)), -np.inf)
        terms = logs[..., None] + size.astype(logs.dtype)
        peak = jnp.maximum(jnp.max(terms, axis=-2), jnp.finfo(logs.dtype).min)
        sides.append(jnp.log(jnp.sum(jnp.exp(terms - peak[..., None, :]), axis=-2)) + peak)
    up, down = sides
    free = (up > -jnp.inf) & (down > -jnp.inf)
    return jnp.where(free, down, 0) - jnp.where(free, up, 0), free


def _newton(logs: Any, exponents: Any, free: Any) -> Any:
    """A Newton step of length log(1 + b) / b, b the largest change of a log-mass: never uphill."""
    peak = jnp.max(logs, axis=-1, keepdims=True)
    shares = jnp.exp(logs - jnp.maximum(peak, jnp.finfo(logs.dtype).min))
    gradient = jnp.where(free, shares @ exponents, 0)
    hessian = jnp.einsum("...p,pij->...ij", shares, exponents[:, :, None] * exponents[:, None])
    diagonal = jnp.where(free, jnp.diagonal(hessian, axis1=-2, axis2=-1), 0)
    norm = jnp.where(diagonal > 0, jax.lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1)), 0)
    # On a unit diagonal, so that generators of light weights count; the ridge is for twins.
    ridge = 100 * jnp.finfo(logs.dtype).eps * jnp.eye(hessian.shape[-1], dtype=logs.dtype)
    scaled = hessian * norm[..., :, None] * norm[..., None, :] + ridge
    scaled = jnp.where(jnp.eye(hessian.shape[-1]) * (norm == 0)[..., None, :] > 0, 1, scaled)
    root = jax.lax.linalg.cholesky(scaled, symmetrize_input=False)
    whitened = (norm * gradient)[..., None]
    for transpose in (False, True):
        whitened = jax.lax.linalg.triangular_solve(
            root, whitened, left_side=True, lower=True, transpose_a=transpose
        )
    direction = -norm * whitened[..., 0]
    change = jnp.max(jnp.where(shares > 0, jnp.abs(direction @ exponents.T), 0), axis=-1)
    length = jnp.where(change > 0, jnp.log1p(change) / jnp.where(change > 0, change, 1), 0)
    return length[..., None] * direction
