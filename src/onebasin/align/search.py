"""The default search: coordinate descent from several starts, the best objective kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from onebasin.align.assignment import Assignment
from onebasin.align.certificate import Candidate
from onebasin.align.descent import Descent, Objective, Rival, descend, forward
from onebasin.align.invariants import invariant_start, tangled
from onebasin.align.state import State

STARTS = ("identity", "forward")
MOST_FLIPS = 16
FAR_BEHIND = 0.05
KICKS = 48
KICKED = (0.1, 0.25, 0.5, 1.0)
ALL = 0.25
SMALL = 128
# Shuffles that lead nowhere, times units: among more units they gain less and take longer.
PATIENCE = 3072
# Weights that all shuffles together go over; the last bits of an objective that cannot be better.
SHUFFLED = 2**23
ROUNDING = 1e-6


@dataclasses.dataclass(eq=False, slots=True)
class Found:
    """The best descent, the start that it came from, and what else a thorough search tried.

    Attributes:
        best: The descent that was kept.
        start: How it came about, in words.
        candidates: What was tried, best first.
        skipped: Why something was not tried.
    """

    best: Descent
    start: str
    candidates: tuple[Candidate, ...] = ()
    skipped: tuple[str, ...] = ()


def search(
    objective: Objective,
    solve: Assignment,
    *,
    starts: Sequence[str | State] = STARTS,
    restarts: int = 0,
    seed: int = 0,
    max_sweeps: int = 100,
    kicks: int = KICKS,
) -> Found:
    """Descends from every start and keeps the best.

    Args:
        objective: The cost.
        solve: The assignment solver.
        starts: "identity", "forward" (factors matched one after the other), or given states.
        restarts: Number of further, random starts.
        seed: Seed of the order of visits and of random starts.
        max_sweeps: Most rounds per start.
        kicks: How many shuffles of a part of the best's units, one after the other, may lead
            nowhere before it is kept, at most: fewer where there are many units; 0 for none.
    """
    rng = np.random.default_rng(seed)
    plans: list[tuple[str, State | None]] = []
    for start in starts:
        if isinstance(start, State):
            plans.append(("given", start))
        elif start == "identity":
            plans.append((start, State.identity(objective.symmetry)))
        elif start == "forward":
            plans.append((start, None))
        else:
            raise ValueError(f"no start {start!r}; there are: {', '.join(STARTS)}, or a State")
    if objective.exact():
        plans = plans[:1]
    else:
        plans += [
            ("random", State.random(objective.symmetry, rng)) for _ in range(max(restarts, 0))
        ]
    if not plans:
        raise ValueError("no start to search from: give at least one, or restarts=1 or more")
    running = _race(objective, solve, plans, rng)
    ended = [
        (descend(objective, result, solve, rng, max_sweeps=max_sweeps), name)
        for result, name in running
    ]
    found = Found(*max(ended, key=lambda pair: pair[0].objective))
    found = _flip_wholes(objective, solve, found, rng, max_sweeps)
    if tangled(objective.weights):
        state = invariant_start(objective.weights, solve)
        if objective.objective(state) > found.best.objective:
            last = descend(objective, state, solve, rng, max_sweeps=max_sweeps)
            if last.objective > found.best.objective:
                found = Found(last, "invariants")
    return _kick(objective, solve, found, rng, max_sweeps, kicks)


def _race(
    objective: Objective,
    solve: Assignment,
    plans: list[tuple[str, State | None]],
    rng: np.random.Generator,
) -> list[tuple[Descent, str]]:
    """One sweep from each start; those that fall far behind the best are not followed further."""
    held = objective.objective(State.identity(objective.symmetry)) if len(plans) > 1 else 0.0
    running: dict[int, Descent] = {}
    rival: Rival | None = None
    # The forward start is the quickest to judge the others by.
    for number in sorted(range(len(plans)), key=lambda i: plans[i][1] is not None):
        planned = plans[number][1]
        state, settled = forward(objective, solve) if planned is None else (planned, set())
        result = descend(objective, state, solve, rng, max_sweeps=1, settled=settled, rival=rival)
        running[number] = result
        if rival is None or result.objective > rival.objective:
            least = result.objective - FAR_BEHIND * max(result.objective - held, 0.0)
            rival = Rival(result.state, result.objective, least)
    assert rival is not None
    return [
        (running[number], name)
        for number, (name, _) in enumerate(plans)
        if running[number].objective >= rival.least
    ]


def _kick(
    objective: Objective,
    solve: Assignment,
    found: Found,
    rng: np.random.Generator,
    sweeps: int,
    kicks: int,
) -> Found:
    """Shuffles a part of the units and descends again, where that costs little.

    Narrow and weakly regularised networks have many optima, and from the best so far a better one
    is nearer than from a random start: how near differs, and so does the part that is shuffled.
    """
    movable = [n for n in objective.factors() if n in found.best.state.permutations]
    largest = max((objective.symmetry.sizes[name] for name in movable), default=0)
    if objective.exact() or not 0 < largest <= SMALL:
        return found
    weights = sum(math.prod(leaf.shape) for leaf in objective.symmetry.leaves)
    limit = objective.limit()
    least = limit - ROUNDING * abs(limit)
    kicks = min(kicks, PATIENCE // largest)
    fruitless = 0
    for _ in range(SHUFFLED // weights):
        if fruitless == kicks or found.best.objective >= least:
            break
        fruitless += 1
        trial = found.best.state.copy()
        share = rng.choice(KICKED)
        for name in movable if rng.random() < ALL else [movable[rng.integers(len(movable))]]:
            units = np.flatnonzero(rng.random(objective.symmetry.sizes[name]) < share)
            permutation = trial.permutations[name]
            permutation[..., units] = permutation[..., rng.permutation(units)]
        result = descend(objective, trial, solve, rng, max_sweeps=sweeps)
        if result.objective > found.best.objective:
            found, fruitless = Found(result, found.start), 0
    return found


def _flip_wholes(
    objective: Objective, solve: Assignment, found: Found, rng: np.random.Generator, sweeps: int
) -> Found:
    """Tries the other sign of every whole-parameter flip.

    Such a sign (a residual stream as a whole) is bound up with the permutations that were matched
    under it, so neither moves alone.
    """
    names = set(objective.factors())
    wholes = [f.name for f in objective.symmetry.factors if f.signs and not f.index]
    for name in [w for w in wholes if w in names][:MOST_FLIPS]:
        trial = found.best.state.copy()
        trial.signs[name] = -trial.signs[name]
        result = descend(objective, trial, solve, rng, max_sweeps=sweeps, settled={name})
        if result.objective > found.best.objective:
            found = Found(result, found.start)
    return found
