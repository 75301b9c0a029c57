"""What a cost on data leaves open: signs, and units that no example excites. The weights decide."""

from __future__ import annotations

import numpy as np

from onebasin.align.assignment import Assignment
from onebasin.align.data_objective import DataObjective
from onebasin.align.descent import Objective, match
from onebasin.align.signs import best_signs
from onebasin.align.state import State

MOST_FLIPS = 32


def settle(objective: Objective, state: State, solve: Assignment) -> None:
    """Settles in place what a cost on data leaves open.

    Signs and units that no example excites go by the weights, and each by the other.
    """
    if not isinstance(objective, DataObjective):
        return
    for _ in range(3):
        before = state.copy()
        settle_signs(objective, state)
        untold = objective.untold(state)
        if not untold or all(np.array_equal(before.signs[k], v) for k, v in state.signs.items()):
            return
        held, trial = objective.objective(state), state.copy()
        for name in untold:
            match(objective.symmetry, name, objective.gains(name, trial), trial, solve)
        if objective.objective(trial) < held - 1e-6 * abs(held):
            return
        state.permutations, state.signs = trial.permutations, trial.signs


def settle_signs(objective: DataObjective, state: State) -> None:
    """Signs that the activations decide, and where they leave them open, the weights."""
    _follow(objective, state)
    signed = [f for f in objective.symmetry.factors if f.signs]
    if all(f.index and f.signs == 1 for f in signed):
        return
    # Signs of a whole, and those of all units together, are bound up with one another.
    for name, generator in [(f.name, g) for f in signed for g in range(f.signs)][:MOST_FLIPS]:
        trial = state.copy()
        trial.signs[name][..., generator] *= -1
        _follow(objective, trial, held=name)
        _follow(objective, trial)
        if _nearer(objective, trial, state):
            state.signs = trial.signs


def _nearer(objective: DataObjective, trial: State, state: State) -> bool:
    """Whether the activations, and if they do not care the weights, prefer a state."""
    new, old = objective.objective(trial), objective.objective(state)
    if abs(new - old) > 1e-5 * max(abs(new), abs(old)):
        return new > old
    return objective.weights.objective(trial) > objective.weights.objective(state)


def _follow(objective: DataObjective, state: State, held: str | None = None) -> None:
    """Brings the signs of one factor after the other to their optimum, in place."""
    signed = [f for f in objective.symmetry.factors if f.signs and f.name != held]
    # First one after the other, on weights that no factor further on can flip.
    known: set[str] | None = {held} if held else set()
    for _ in range(5):
        before = {k: v.copy() for k, v in state.signs.items()}
        for factor in signed:
            seen = objective.sign_gains(factor.name, state)
            weights = objective.weights.sign_gains(factor.name, state, known)
            gains = objective.break_ties(seen, weights)
            if gains:
                state.signs[factor.name] = best_signs(gains, factor.signs)[1]
            if known is not None:
                known.add(factor.name)
        if known is None and all(np.array_equal(before[k], state.signs[k]) for k in before):
            break
        known = None
