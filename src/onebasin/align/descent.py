"""Coordinate descent over factors, one exact assignment each.

Alternates over the factors: with all others held, the best permutation of one is a linear
assignment problem (Ainsworth 2023 for points, Rossi 2023 for Gaussians). A unit with sign freedom
is matched with its counterpart or the negative, whichever gains more. Where a factor has dependants
(heads and each head's dimensions), the value of the best inner assignment for each pair is the gain
of that pair in the outer one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from typing import Protocol

import numpy as np

from onebasin.align import assignment
from onebasin.align.assignment import Assignment
from onebasin.align.pairing import Pairing
from onebasin.align.signs import ENUMERATED, Gains, all_signs, best_signs, signs_at, total_of
from onebasin.align.state import State, paired
from onebasin.symmetry import Symmetry

PATIENCE = 8


class Objective(Protocol):
    """What coordinate descent asks of a cost."""

    symmetry: Symmetry

    @property
    def weights(self) -> Pairing: ...
    def factors(self) -> list[str]: ...
    def exact(self) -> bool: ...
    def quadratic(self) -> set[str]: ...
    def rises(self) -> bool: ...
    def neighbours(self, name: str) -> set[str]: ...
    def objective(self, state: State) -> float: ...
    def limit(self) -> float: ...
    def part(self, names: set[str], state: State) -> float | None: ...
    def fallbacks(self, state: State) -> dict[str, str]: ...
    def gains(self, name: str, state: State) -> Gains: ...
    def outer_gains(self, name: str, state: State) -> Gains: ...
    def own_gains(self, name: str, state: State) -> Gains: ...
    def sign_gains(self, name: str, state: State) -> Gains: ...
    def moving_norms(self, name: str) -> np.ndarray: ...
    def partial_gains(self, name: str, state: State, known: set[str]) -> Gains: ...


@dataclasses.dataclass(eq=False, slots=True)
class Descent:
    """Where a descent stands: `waiting` are the factors that may still improve."""

    state: State
    objective: float
    sweeps: int
    visits: int
    waiting: set[str]


@dataclasses.dataclass(eq=False, slots=True)
class Rival:
    """A descent that others have to keep up with, and the least objective that does."""

    state: State
    objective: float
    least: float

    def is_ahead(self, objective: Objective, visited: set[str], state: State) -> bool:
        """Whether another stays behind even if all that it has not visited ends as it did here."""
        own, other = objective.part(visited, self.state), objective.part(visited, state)
        if own is None or other is None:
            return False
        return self.objective - own + other < self.least


def descend(
    objective: Objective,
    start: State | Descent,
    solve: Assignment,
    rng: np.random.Generator,
    *,
    max_sweeps: int = 100,
    tolerance: float = 1e-7,
    settled: Collection[str] = (),
    rival: Rival | None = None,
) -> Descent:
    """Visits factors in random order until none improves the objective.

    Contributions of a layer change with the matches of the next one, which are found by its own
    contributions: there a visit may lower the sum, and the best state at the end of a sweep counts.

    Args:
        objective: The cost.
        start: Where to begin, or a descent to go on with; it is not changed.
        solve: The assignment solver.
        rng: Random order of visits.
        max_sweeps: Most rounds over all factors.
        tolerance: Smallest gain worth a move, relative to the gains at stake.
        settled: Factors that are visited only after something next to them has moved.
        rival: A descent to keep up with in the first sweep. One that falls behind is given up, and
            its objective is minus infinity.
    """
    names = objective.factors()
    sweeps = visits = 0
    if isinstance(start, Descent):
        if not start.waiting:
            return start
        state, waiting = start.state.copy(), set(start.waiting)
        sweeps, visits = start.sweeps, start.visits
    else:
        state, waiting = start.copy(), set(names) - set(settled)
    children = {
        name: [c for c, up in objective.symmetry.parents.items() if name in up and c in names]
        for name in names
    }
    visited: set[str] = set()
    kept = None if objective.rises() else _Kept(objective.objective(state), state.copy())
    while waiting and sweeps < max_sweeps and not (kept and kept.fruitless > PATIENCE):
        sweeps += 1
        # In the order of the network, a rival is met with the first layers.
        in_order = rival is not None and sweeps == 1
        for name in names if in_order else rng.permutation(names):
            if name not in waiting:
                continue
            waiting.discard(name)
            visits += 1
            if _visit(objective, name, children[name], state, solve, tolerance):
                waiting |= (objective.neighbours(name) - {name}) & set(names)
            visited.add(name)
            if rival and len(visited) < len(names) and rival.is_ahead(objective, visited, state):
                return Descent(state, -math.inf, sweeps, visits, waiting)
        if kept:
            kept.offer(objective.objective(state), state)
    if kept and kept.fruitless:
        # What waits is that of another state: here all may have to be visited again.
        return Descent(kept.state, kept.objective, sweeps, visits, set(names) if waiting else set())
    return Descent(state, objective.objective(state), sweeps, visits, waiting)


@dataclasses.dataclass(eq=False, slots=True)
class _Kept:
    """The best state of a descent on an objective that may fall from visit to visit."""

    objective: float
    state: State
    fruitless: int = 0

    def offer(self, objective: float, state: State) -> None:
        """Takes a state that is better, and counts those that are not."""
        self.fruitless += 1
        if objective > self.objective:
            self.objective, self.state, self.fruitless = objective, state.copy(), 0


def forward(objective: Objective, solve: Assignment) -> tuple[State, set[str]]:
    """A start that matches factors one after the other, as a network is read.

    Each factor is matched on the terms whose other factors have been matched already, which for a
    chain are its incoming weights; factors without such terms are matched on all of them. Those
    that had been matched on all their terms, as the last of a chain, come beside the state: they
    can improve only after something next to them has moved.
    """
    symmetry = objective.symmetry
    state = State.identity(symmetry)
    known: set[str] = set()
    settled: set[str] = set()
    names = objective.factors()
    tangled = objective.quadratic().union(*symmetry.parents.values())
    for name in names:
        if name not in state.permutations:
            continue
        if not symmetry.parents[name]:
            gains = objective.partial_gains(name, state, known) or objective.gains(name, state)
            match(symmetry, name, gains, state, solve)
            if name not in tangled and objective.neighbours(name) & set(names) <= known | {name}:
                settled.add(name)
        known.add(name)
    return state, settled


def match(symmetry: Symmetry, name: str, gains: Gains, state: State, solve: Assignment) -> None:
    """Brings one factor to the optimum of its gains, in place."""
    totals, signs = best_signs(gains, symmetry.factor(name).signs)
    columns = solve(totals)
    state.permutations[name] = columns
    if symmetry.factor(name).signs:
        state.signs[name] = signs_at(signs, columns)


def _visit(
    objective: Objective,
    name: str,
    children: list[str],
    state: State,
    solve: Assignment,
    tolerance: float,
) -> bool:
    """One factor brought to its optimum; whether it moved."""
    symmetry = objective.symmetry
    factor = symmetry.factor(name)
    if "permutation" not in factor.kinds:
        _, signs = best_signs(objective.sign_gains(name, state), factor.signs)
        trial = state.copy()
        trial.signs[name] = signs
        if np.array_equal(signs, state.signs[name]) or not _better(objective, trial, state):
            return False
        state.signs = trial.signs
        return True
    line = (*symmetry.parents[name], name)
    if any(symmetry.parents[child] == line for child in children):
        return _visit_parent(objective, name, children, state, solve, tolerance)
    gains = objective.gains(name, state)
    totals, signs = best_signs(gains, factor.signs)
    columns = solve(totals)
    trial = state.copy()
    trial.permutations[name] = columns
    if factor.signs:
        trial.signs[name] = signs_at(signs, columns)
    if _same(name, trial, state):
        # Its worth by the assignment and by the sum of its gains differ by rounding.
        return False
    held = held_worth(gains, state.permutations[name], state.signs.get(name))
    if not _worth(assignment.value(totals, columns).sum() - held, totals, tolerance):
        return False
    # The gains of such a factor are right to first order only.
    if name in objective.quadratic() and not _better(objective, trial, state):
        return False
    state.permutations, state.signs = trial.permutations, trial.signs
    return True


def _same(name: str, trial: State, state: State) -> bool:
    return all(
        name not in kind or np.array_equal(kind[name], other[name])
        for kind, other in (
            (trial.permutations, state.permutations),
            (trial.signs, state.signs),
        )
    )


def _better(objective: Objective, trial: State, state: State) -> bool:
    return objective.objective(trial) > objective.objective(state)


def held_worth(gains: Gains, permutation: np.ndarray, signs: np.ndarray | None) -> float:
    """What the present permutation and signs are worth."""
    total = 0.0
    for signature, gain in gains.items():
        own = np.take_along_axis(gain, permutation[..., None], axis=-1)[..., 0]
        if signature and signs is not None:
            own = own * np.prod(signs[..., sorted(signature)], axis=-1)
        total += float(own.sum())
    return total


def _worth(improvement: float, gains: np.ndarray, tolerance: float) -> bool:
    largest = max(gains.max(initial=0.0), -gains.min(initial=0.0))
    return bool(improvement > tolerance * float(largest) * gains.shape[-1])


def _visit_parent(
    objective: Objective,
    name: str,
    children: list[str],
    state: State,
    solve: Assignment,
    tolerance: float,
) -> bool:
    """A factor and its dependants at once: inner optima are the gains of the outer assignment."""
    symmetry = objective.symmetry
    n, count = symmetry.sizes[name], symmetry.factor(name).signs
    copies = state.permutations[name].shape[:-1]
    # Signs of a parent flip its dependants as well: the best of all choices counts.
    every = all_signs(count) if count <= ENUMERATED else [state.signs[name]]
    choices = np.stack([np.broadcast_to(choice, (*copies, n, count)) for choice in every])
    tried = [_inner(objective, name, children, state, solve, choice) for choice in choices]
    values = np.stack([totals for totals, _ in tried])
    outer = solve(values.max(axis=0))
    rows = np.indices(outer.shape, sparse=True)
    best = values.argmax(axis=0)[(*rows, outer)]
    trial = state.copy()
    trial.permutations[name] = outer
    if count:
        trial.signs[name] = choices[(best, *rows)]
    for child in tried[0][1]:
        columns, signs = (np.stack([inner[child][k] for _, inner in tried]) for k in (0, 1))
        chosen = columns[(best, *rows, outer)]
        trial.permutations[child] = chosen
        if symmetry.factor(child).signs:
            picked = signs[(best, *rows, outer)]
            trial.signs[child] = signs_at(picked, chosen)
    before, after = objective.objective(state), objective.objective(trial)
    if not after - before > tolerance * max(abs(before), abs(after)):
        return False
    state.permutations, state.signs = trial.permutations, trial.signs
    return True


def _inner(
    objective: Objective,
    name: str,
    children: list[str],
    state: State,
    solve: Assignment,
    choice: np.ndarray,
) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """What pairs [.., i, j] of a parent are worth at some signs, and its dependants' optima."""
    symmetry = objective.symmetry
    n = symmetry.sizes[name]
    there = State(state.permutations, state.signs | {name: choice})
    shape = (*choice.shape[:-1], n)
    totals = total_of(objective.own_gains(name, there), choice[..., None, :], shape)
    inner: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for child in children:
        if symmetry.parents[child] != (*symmetry.parents[name], name):
            continue
        values, signs = (
            paired(symmetry, name, found, state)
            for found in best_signs(
                objective.outer_gains(child, there), symmetry.factor(child).signs
            )
        )
        columns = solve(values)
        totals = totals + assignment.value(values, columns)
        inner[child] = (columns, signs)
    return totals, inner
