"""How far a matching is from the best: of every factor alone, and of all together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onebasin._core.cores import threads_for_products
from onebasin.align.assignment import Assignment, value
from onebasin.align.ceiling import ceiling
from onebasin.align.descent import Objective, held_worth
from onebasin.align.match import objective_for
from onebasin.align.pairing import Pairing
from onebasin.align.signs import best_signs
from onebasin.align.state import State
from onebasin.symmetry import Symmetry


@dataclasses.dataclass(frozen=True, slots=True)
class Proof:
    """What no other matching gets below, and what new assignments of single factors would gain."""

    bound: float | None
    gaps: dict[str, float]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Proving:
    """What a proof is made from, when it is asked for: it takes as long as a round of matching.

    Attributes:
        symmetry: The group.
        moving: What was moved, at the scales at which it was matched.
        reference: What it was moved to, at its own.
        options: Cost, model, inputs and batch size.
        solve: The assignment solver.
        state: The matching.
        cost: What it costs.
        exact: Whether it is known to be the best.
    """

    symmetry: Symmetry
    moving: Any
    reference: Any
    options: tuple[Any, ...]
    solve: Assignment
    state: State
    cost: float
    exact: bool

    def __call__(self) -> Proof:
        with threads_for_products(largest_product(self.symmetry)):
            objective, price = objective_for(
                self.symmetry, self.moving, self.reference, *self.options
            )
            gaps = gaps_of(objective, price, self.state, self.solve)
            if self.exact:
                return Proof(self.cost, gaps)
            if not isinstance(objective, Pairing):
                return Proof(None, gaps)
            return Proof(min(price(ceiling(objective, self.solve)), self.cost), gaps)


def gaps_of(
    objective: Objective, price: Callable[[float], float], state: State, solve: Assignment
) -> dict[str, float]:
    """By factor, how much lower the cost were if it was assigned anew, all others held.

    Factors along which the objective is not linear are left out.
    """
    held = objective.objective(state)
    found = {}
    for name in objective.factors():
        if name not in state.permutations or name in objective.quadratic():
            continue
        gains = objective.gains(name, state)
        totals, _ = best_signs(gains, objective.symmetry.factor(name).signs)
        best = float(value(totals, solve(totals)).sum(dtype=np.float64))
        worth = held_worth(gains, state.permutations[name], state.signs.get(name))
        found[name] = max(price(held) - price(held + best - worth), 0.0)
    return found


def largest_product(symmetry: Symmetry) -> int:
    """How many multiplications make the gains of one factor in one block, at most."""
    return max(
        (
            math.prod(block.shape) * size
            for leaf in symmetry.leaves
            for block in leaf.blocks
            for side, size in zip(block.sides, block.shape, strict=True)
            if side in symmetry.permutable
        ),
        default=0,
    )
