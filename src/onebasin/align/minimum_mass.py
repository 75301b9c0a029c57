"""Minimum mass: the rescaling of a network that has the smallest sum of squared weights.

With mu the log-scales and e_w the exponents with which they act on weight w, the mass

    M(mu) = sum_w w^2 exp(2 e_w . mu)

is convex. It is minimised factor by factor (stock2019equi; laurent2024symmetry pose the problem). For
one unit of a factor, all others held fixed, only the masses m_p of its weights by exponent pattern p
count:

    F(delta) = sum_p m_p exp(2 p . delta).

One scaling with in-mass m_+ and out-mass m_- (exponents a and -b) has the closed form

    delta = log(b m_- / (a m_+)) / (2 (a + b)),        lambda = (m_- / m_+)^(1/4) for a = b = 1;

several scalings, or several exponents, take damped Newton steps. Both never raise F.

A minimum exists iff no direction d has e_w . d <= 0 for all weights and < 0 for some. Whether it does
is a small linear program over the factors, since units of a factor are alike; the weights that can be
driven to zero are left out of the mass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

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


class Minimum(NamedTuple):
    """Where the sweeps ended: log-scales, number of sweeps, relative gradient, units left alone."""

    log_scales: dict[str, Any]
    sweeps: Any
    gradient: Any
    dead: Any


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Row:
    """What the mass of a factor's units is made of: boxes by exponent pattern.

    Attributes:
        factor: Name of the factor.
        patterns: Exponents [pattern, generator].
        terms: For each pattern its boxes, and where the factor touches them.
        share: How many units of the factor a single weight joins; steps are divided by it.
    """

    factor: str
    patterns: np.ndarray
    terms: tuple[tuple[tuple[int, Touch], ...], ...]
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
        terms: dict[tuple[float, ...], list[tuple[int, Touch]]] = {}
        share = 1
        for number in sorted(counted):
            own = [t for t in boxes[number].scalings if t.factor == factor.name]
            share = max(share, len(own))
            for touch in own:
                terms.setdefault(touch.pattern, []).append((number, touch))
        if terms:
            patterns = np.array(list(terms))
            found.append(Row(factor.name, patterns, tuple(map(tuple, terms.values())), share))
    return found


def minimise(
    boxes: Sequence[Box],
    weights: Mapping[int, Mass],
    rows: Sequence[Row],
    start: LogScales,
    tolerance: float,
    max_sweeps: int = MAX_SWEEPS,
) -> Minimum:
    """Sweeps over the factors until the gradient of every unit is small against its mass.

    The gradient that counts is |sum_p p m_p| / sum_p |p| m_p, largest over units and generators.
    """
    weights = {i: masses.off_diagonal(boxes[i], mass) for i, mass in weights.items()}
    # Weights that only one factor scales enter with a mass that no sweep changes.
    alone = {
        row.factor: [_log_sum(boxes, weights, start, terms, alone=True) for terms in row.terms]
        for row in rows
    }
    dtype = jax.tree.leaves(start)[0].dtype if rows else jnp.float32
    limit = 0.45 * float(np.log(jnp.finfo(dtype).max))

    def log_masses(row: Row, log_scales: LogScales) -> Any:
        shape = log_scales[row.factor].shape[:-1]
        by_pattern = []
        for terms, fixed in zip(row.terms, alone[row.factor], strict=True):
            moving = _log_sum(boxes, weights, log_scales, terms, alone=False)
            log = jnp.logaddexp(fixed, moving) + masses.exponent(terms[0][1], log_scales)
            by_pattern.append(jnp.broadcast_to(log, shape))
        return jnp.stack(by_pattern, axis=-1)

    flat, unflat = jax.flatten_util.ravel_pytree({row.factor: start[row.factor] for row in rows})

    def sweep(flat: jax.Array) -> tuple[jax.Array, jax.Array]:
        log_scales = dict(start) | unflat(flat)
        gradient = jnp.zeros((), dtype)
        for row in rows:
            logs = log_masses(row, log_scales)
            gradient = jnp.maximum(gradient, jnp.max(relative_gradient(logs, row.patterns)))
            moved = log_scales[row.factor] + unit_step(logs, row.patterns) / row.share
            log_scales[row.factor] = jnp.clip(moved, -limit, limit)
        return jax.flatten_util.ravel_pytree({row.factor: log_scales[row.factor] for row in rows})[0], gradient

    flat, sweeps = anderson.fixed_point(sweep, flat, tolerance, max_sweeps)
    log_scales = dict(start) | unflat(flat)
    gradient, dead = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
    for row in rows:
        logs = log_masses(row, log_scales)
        gradient = jnp.maximum(gradient, jnp.max(relative_gradient(logs, row.patterns)))
        dead += jnp.sum(~jnp.all(movable(logs, row.patterns), axis=-1), dtype=jnp.int32)
    return Minimum(log_scales, sweeps, gradient, dead)


def _log_sum(
    boxes: Sequence[Box],
    weights: Mapping[int, Mass],
    log_scales: LogScales,
    terms: Sequence[tuple[int, Touch]],
    *,
    alone: bool,
) -> Any:
    total = jnp.asarray(-jnp.inf, log_scales[terms[0][1].factor].dtype)
    for number, touch in terms:
        if (len(boxes[number].scalings) == 1) == alone:
            log = masses.log_mass(boxes[number], weights[number], log_scales, touch)
            total = jnp.logaddexp(total, log)
    return total


def movable(logs: Any, patterns: np.ndarray) -> Any:
    """Which generators of which units have mass on both sides; the others are left alone."""
    alive = logs > -jnp.inf
    sides = [jnp.any(alive[..., None] & (s * patterns > 0), axis=-2) for s in (1, -1)]
    return (sides[0] & sides[1]) | ~jnp.any(patterns, axis=0)


def relative_gradient(logs: Any, patterns: np.ndarray) -> Any:
    """|sum_p p m_p| / sum_p |p| m_p per unit and generator; 0 where nothing can move."""
    share = jnp.exp(logs - _peak(logs))
    up, down = (share @ jnp.asarray(np.maximum(s * patterns, 0), logs.dtype) for s in (1, -1))
    both = movable(logs, patterns) & (up + down > 0)
    return jnp.where(both, jnp.abs(up - down) / jnp.where(both, up + down, 1), 0)


def unit_step(logs: Any, patterns: np.ndarray) -> Any:
    """The step delta [.., generator] that minimises sum_p exp(logs_p + 2 patterns_p . delta)."""
    step = jnp.zeros((*logs.shape[:-1], patterns.shape[1]), logs.dtype)
    free = movable(logs, patterns)
    step = _one_by_one(logs, patterns, free, step)
    if patterns.shape[1] == 1 and len(set(patterns.ravel())) <= 2:
        return step

    def refine(_: Any, step: Any) -> Any:
        return _newton(logs, patterns, free, _one_by_one(logs, patterns, free, step))

    return jax.lax.fori_loop(0, NEWTON_STEPS, refine, step)


def _one_by_one(logs: Any, patterns: np.ndarray, free: Any, step: Any) -> Any:
    """The closed form, generator after generator.

    Exact where all positive exponents of a generator are equal and all negative ones; else it stops
    short of the minimum, on the way there.
    """
    for generator, exponents in enumerate(patterns.T):
        now = logs + 2 * step @ jnp.asarray(patterns.T, logs.dtype)
        sides, largest = [], 0.0
        for sign in (1, -1):
            own = np.flatnonzero(sign * exponents > 0)
            if not own.size:
                break
            weight = np.log(np.abs(exponents[own])).astype(logs.dtype)
            sides.append(jax.nn.logsumexp(now[..., own] + weight, axis=-1))
            largest += float(np.abs(exponents[own]).max())
        if len(sides) == 2:
            move = (sides[1] - sides[0]) / (2 * largest)
            step = step.at[..., generator].add(jnp.where(free[..., generator], move, 0))
    return step


def _newton(logs: Any, patterns: np.ndarray, free: Any, step: Any) -> Any:
    """A Newton step of length log(1 + b) / b, b the largest change of a log-mass: never uphill."""
    exponents = jnp.asarray(2 * patterns, logs.dtype)
    now = logs + step @ exponents.T
    share = jnp.exp(now - _peak(now))
    gradient = jnp.where(free, share @ exponents, 0)
    pairs = free[..., :, None] & free[..., None, :]
    hessian = jnp.where(pairs, jnp.einsum("...p,pi,pj->...ij", share, exponents, exponents), 0)
    diagonal = jnp.diagonal(hessian, axis1=-2, axis2=-1)
    norm = jnp.where(diagonal > 0, jax.lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1)), 0)
    ridge = 1 + 10 * jnp.finfo(logs.dtype).eps
    eye = jnp.eye(patterns.shape[1], dtype=bool)
    scaled = jnp.where(eye, ridge, hessian * norm[..., :, None] * norm[..., None, :])
    direction = -norm * jnp.linalg.solve(scaled, (norm * gradient)[..., None])[..., 0]
    change = jnp.max(jnp.where(share > 0, jnp.abs(direction @ exponents.T), 0), axis=-1)
    length = jnp.where(change > 0, jnp.log1p(change) / jnp.where(change > 0, change, 1), 0)
    return step + length[..., None] * direction


def _peak(logs: Any) -> Any:
    peak = jnp.max(logs, axis=-1, keepdims=True)
    return jnp.where(peak > -jnp.inf, peak, 0)
