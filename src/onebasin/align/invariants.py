"""A start from what no other unit's place can change: the sorted sizes of a unit's weights.

With every factor but one summed out in this way, factors no longer depend on one another, and one
assignment each finds the best match. It is exact where one network is the other with its units in
another order, however tangled the factors are (heads and their dimensions, signs, recurrence), and
a poor guess for networks that differ. So it is tried where it beats what descent has found.
"""

from __future__ import annotations

import numpy as np

from onebasin.align.assignment import Assignment
from onebasin.align.pairing import Pairing
from onebasin.align.signs import best_signs
from onebasin.align.state import State
from onebasin.align.terms import Term
from onebasin.symmetry.elements import Block


def tangled(pairing: Pairing) -> bool:
    """Whether factors depend on others, flip signs, or are two sides of one block."""
    factors = pairing.symmetry.factors
    return any(f.signs or len(f.index) > 1 for f in factors) or bool(pairing.quadratic())


def invariant_start(pairing: Pairing, solve: Assignment) -> State:
    """Matches units by invariants, parents first, and then signs one factor after the other."""
    symmetry = pairing.symmetry
    state = State.identity(symmetry)
    for factor in sorted(symmetry.factors, key=lambda f: len(f.index)):
        alone = Pairing(symmetry, [])
        for number, axis in pairing.places[factor.name]:
            alone.add(_invariants(pairing, factor.name, pairing.terms[number], axis))
        for gains in alone.gains(factor.name, state).values():
            state.permutations[factor.name] = solve(gains)
    known: set[str] = set()
    for factor in symmetry.factors:
        if factor.signs:
            pull = pairing.sign_gains(factor.name, state, known)
            if pull:
                state.signs[factor.name] = best_signs(pull, factor.signs)[1]
            known.add(factor.name)
    return state


def _invariants(pairing: Pairing, name: str, term: Term, axis: int) -> Term:
    """A term in which nothing moves but one factor and its parents."""
    symmetry = pairing.symmetry
    own = [*(term.sides.index(parent) for parent in symmetry.parents[name]), axis]
    rest = [i for i in range(len(term.sides)) if i not in own]
    movable = [i for i in rest if term.sides[i] in symmetry.permutable]
    fixed = [i for i in rest if i not in movable]
    kept = tuple(term.block.shape[i] for i in own)

    def sizes(array: np.ndarray) -> np.ndarray:
        laid = array.transpose(*own, *fixed, *movable)
        laid = laid.reshape(*laid.shape[: len(own) + len(fixed)], -1)
        return np.sort(np.abs(laid), axis=-1).reshape(*kept, -1)

    a, b = sizes(term.reference), sizes(term.moving)
    sides = (*symmetry.parents[name], name, "")
    return Term(Block((), (), sides, a.shape), a, b, signed=False)
