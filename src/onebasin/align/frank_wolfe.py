r"""Frank-Wolfe over all factors at once, on relaxed permutations (crisostomi2024c2m3).

Permutations become doubly stochastic matrices X, on which the objective J is multilinear. A step
goes from X towards the vertex that is best to first order,

    V = argmax <grad J(X), V>,   one exact assignment per factor and copy, signs resolved within it,
    X <- X + gamma (V - X),      gamma = argmax over [0, 1] of J(X + gamma (V - X)),

which is a polynomial in gamma of known degree (2 where factors are coupled in pairs), so the line
search is exact. The permutations nearest to the last X are polished by coordinate descent.

Every factor is relaxed, heads and each head's own dimensions alike: a dependent factor has one
matrix per index of its parents, which stand at their present mixture. Signs of factors that are not
permuted are held; those of whole parameters are tried both ways.
"""

from __future__ import annotations

import numpy as np

from onebasin.align.assignment import Assignment
from onebasin.align.relaxed import Relaxed, Soft
from onebasin.align.search import MOST_FLIPS, Found
from onebasin.align.signs import Gains, best_signs, signs_at
from onebasin.align.state import State
from onebasin.align.task import Task


def frank_wolfe(task: Task, *, steps: int = 100, tolerance: float = 1e-6) -> Found:
    """Maximises the cost's objective over doubly stochastic matrices, projects, and polishes.

    Starts at the given state, or at the barycentre of all permutations. Coordinate descent from the
    task's own starts is run beside it, and the better of the two kept.

    Args:
        task: The problem.
        steps: Most steps.
        tolerance: Where to stop: the largest possible first-order gain, relative to the objective.
    """
    held = task.start or State.identity(task.symmetry)
    found = _attempt(task, held, steps, tolerance)
    for name in _wholes(task):
        trial = held.copy()
        trial.signs[name] = -trial.signs[name]
        other = _attempt(task, trial, steps, tolerance)
        if other.best.objective > found.best.objective:
            found, held = other, trial
    plain = task.descent(task.starts, task.restarts)
    if plain.best.objective > found.best.objective:
        return Found(plain.best, f"coordinate descent from {plain.start}, ahead of {found.start}")
    return found


def _attempt(task: Task, held: State, steps: int, tolerance: float) -> Found:
    relaxed = Relaxed(task.objective, held)
    point = relaxed.hard(held) if task.start else relaxed.barycentre()
    point, taken = ascend(relaxed, point, held, task.assignment, steps, tolerance)
    found = task.descent([nearest(relaxed, point, held, task.assignment)])
    start = "a given state" if task.start else "the barycentre"
    return Found(found.best, f"Frank-Wolfe from {start}, {taken} steps")


def _wholes(task: Task) -> list[str]:
    """Signs of whole parameters: held, and so far from the permutations that both are tried."""
    known = set(task.objective.factors())
    wholes = [f.name for f in task.symmetry.factors if f.signs and not f.index]
    return [name for name in wholes if name in known][:MOST_FLIPS]


def ascend(
    relaxed: Relaxed, point: Soft, held: State, solve: Assignment, steps: int, tolerance: float
) -> tuple[Soft, int]:
    """Steps until no vertex promises a gain: the last point, and how many steps were taken."""
    value = relaxed.value(point)
    for step in range(steps):
        gradient = relaxed.gradient(point)
        vertex = relaxed.hard(_vertex(relaxed, gradient, held, solve))
        direction = _combine(vertex, point, -1.0)
        slope = _inner(gradient, direction)
        if slope <= tolerance * abs(value):
            return point, step
        line = along(relaxed, point, direction, value, slope)
        gamma = best_step(line)
        value = float(np.polynomial.polynomial.polyval(gamma, line))
        point = _combine(point, direction, gamma)
    return point, steps


def along(relaxed: Relaxed, point: Soft, direction: Soft, value: float, slope: float) -> np.ndarray:
    """Coefficients of the objective as a polynomial in the step, from its value and slope at 0."""
    count = max(relaxed.degree - 1, 0)
    nodes = np.arange(1, count + 1) / max(count, 1)
    values = [relaxed.value(_combine(point, direction, float(node))) for node in nodes]
    rest = (np.array(values) - value - slope * nodes) / nodes**2
    return np.array([value, slope, *np.linalg.solve(np.vander(nodes, increasing=True), rest)])


def best_step(coefficients: np.ndarray) -> float:
    """Where in [0, 1] a polynomial, coefficients in ascending order, is largest."""
    turning = np.polynomial.Polynomial(coefficients).deriv().roots()
    # A double root comes back as a pair with small imaginary parts; one too many costs nothing.
    steps = np.array([0.0, *np.clip(turning.real, 0, 1), 1.0])
    return float(steps[np.polynomial.polynomial.polyval(steps, coefficients).argmax()])


def nearest(relaxed: Relaxed, point: Soft, held: State, solve: Assignment) -> State:
    """The signed permutations with the largest inner product with relaxed ones."""
    return _vertex(relaxed, point, held, solve)


def _vertex(relaxed: Relaxed, gains: dict[str, Gains], held: State, solve: Assignment) -> State:
    """The best state when every factor has the given gains."""
    state = held.copy()
    for name, own in gains.items():
        count = relaxed.symmetry.factor(name).signs
        totals, signs = best_signs(own, count)
        columns = solve(totals)
        state.permutations[name] = columns
        if count:
            state.signs[name] = signs_at(signs, columns)
    return state


def _combine(a: Soft, b: Soft, scale: float) -> Soft:
    return {k: {s: x + scale * b[k][s] for s, x in own.items()} for k, own in a.items()}


def _inner(gradient: dict[str, Gains], direction: Soft) -> float:
    return sum(
        float(np.vdot(gain, direction[name][s]))
        for name, own in gradient.items()
        for s, gain in own.items()
    )
