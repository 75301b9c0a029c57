"""The default search: coordinate descent from several starts, the best objective kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from onebasin.align.assignment import Assignment
from onebasin.align.descent import Descent, Objective, descend, forward
from onebasin.align.state import State

STARTS = ("identity", "forward")


@dataclasses.dataclass(eq=False, slots=True)
class Found:
    """The best descent, and the start that it came from."""

    best: Descent
    start: str


def search(
    objective: Objective,
    solve: Assignment,
    *,
    starts: Sequence[str | State] = STARTS,
    restarts: int = 0,
    seed: int = 0,
    max_sweeps: int = 100,
) -> Found:
    """Descends from every start and keeps the best.

    Args:
        objective: The cost.
        solve: The assignment solver.
        starts: "identity", "forward" (factors matched one after the other), or given states.
        restarts: Number of further, random starts.
        seed: Seed of the order of visits and of random starts.
        max_sweeps: Most rounds per start.
    """
    rng = np.random.default_rng(seed)
    plans: list[tuple[str, State]] = []
    for start in starts:
        if isinstance(start, State):
            plans.append(("given", start))
        elif start == "identity":
            plans.append((start, State.identity(objective.symmetry)))
        elif start == "forward":
            plans.append((start, forward(objective, solve)))
        else:
            raise ValueError(f"no start {start!r}; there are: {', '.join(STARTS)}, or a State")
    if objective.exact():
        plans = plans[:1]
    else:
        plans += [
            ("random", State.random(objective.symmetry, rng)) for _ in range(max(restarts, 0))
        ]
    found: Found | None = None
    for name, state in plans:
        result = descend(objective, state, solve, rng, max_sweeps=max_sweeps)
        if found is None or result.objective > found.best.objective:
            found = Found(result, name)
    if found is None:
        raise ValueError("no start to search from: give at least one, or restarts=1 or more")
    return found
