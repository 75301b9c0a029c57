r"""What no permutation and signs can exceed, of an objective that pairs weights with weights.

The objective is a sum of <A, P B Q> over blocks, whose sides P and Q move together with those of
other blocks, and it is hard to make largest. Each factor apart is an assignment: with Q free for
every pair of units i and j, as an optimist has it,

    <a_i, b_j Q> <= <sort a_i, sort b_j>,

row by row, so that a block is worth no more to P than the best assignment by these numbers, and
nor to Q. Half of either is a bound too, and as such it adds up with the blocks that a factor moves
alone, whose gains are exact. The dual of each assignment proves its value, and their sum bounds the
whole. Where signs flip, entries count by their size.
"""

from __future__ import annotations

import numpy as np

from onebasin.align.assignment import Assignment, value
from onebasin.align.pairing import Pairing
from onebasin.align.signs import ENUMERATED, Gains, best_signs
from onebasin.align.state import State, roaming
from onebasin.align.terms import Term, inner_product
from onebasin.symmetry import Symmetry


def ceiling(pairing: Pairing, solve: Assignment) -> float:
    """An upper bound of the objective over all permutations and signs, up to rounding.

    Args:
        pairing: The objective.
        solve: The assignment solver.
    """
    symmetry = pairing.symmetry
    state = State.identity(symmetry)
    total = pairing.fixed
    apart: dict[str, np.ndarray] = {}
    alone: set[int] = set()
    for name in symmetry.permutable:
        gains, rest = pairing.alone(name, state)
        alone |= {number for number, _ in pairing.places[name]} - {number for number, _ in rest}
        if gains:
            apart[name] = _highest(gains, symmetry.factor(name).signs)
    for number, term in enumerate(pairing.terms):
        if number in alone:
            continue
        axes = _axes_apart(symmetry, term)
        for axis in axes:
            name = term.sides[axis]
            gains_apart = _optimistic(symmetry, term, axis) / np.float32(len(axes))
            apart[name] = apart[name] + gains_apart if name in apart else gains_apart
        if not axes:
            total += _at_most(symmetry, term)
    total += sum(
        float(value(gains, solve(gains)).sum(dtype=np.float64)) for gains in apart.values()
    )
    return min(total, pairing.limit())


def _highest(gains: Gains, count: int) -> np.ndarray:
    """The largest gains over the signs of a pair."""
    if count <= ENUMERATED:
        return best_signs(gains, count)[0]
    return np.sum([np.abs(gain) if key else gain for key, gain in gains.items()], axis=0)


def _axes_apart(symmetry: Symmetry, term: Term) -> list[int]:
    """Sides whose units can be assigned whatever all others do."""
    return [
        axis
        for axis, side in enumerate(term.sides)
        if side in symmetry.permutable
        and term.sides.count(side) == 1
        and not roaming(symmetry, side)
    ]


def _optimistic(symmetry: Symmetry, term: Term, axis: int) -> np.ndarray:
    """What pairs of units are worth at most in a term, [parents.., i, j], others as they like."""
    at = [term.sides.index(parent) for parent in symmetry.parents[term.sides[axis]]]
    own, other = (_ranked(symmetry, term, array, [*at, axis]) for array in _sides(term))
    copies, n = own.shape[: len(at)], own.shape[len(at)]
    own, other = (x.reshape(*copies, n, -1) for x in (own, other))
    return own @ np.swapaxes(other, -1, -2)


def _at_most(symmetry: Symmetry, term: Term) -> float:
    """What a term is worth at most, with every entry where it likes along the sides that move."""
    own, other = (_ranked(symmetry, term, array, []) for array in _sides(term))
    return inner_product(own, other)


def _sides(term: Term) -> tuple[np.ndarray, np.ndarray]:
    if term.signed and term.block.signs:
        return np.abs(term.reference), np.abs(term.moving)
    return term.reference, term.moving


def _ranked(symmetry: Symmetry, term: Term, array: np.ndarray, kept: list[int]) -> np.ndarray:
    """[kept.., sides that stay, entries of those that move in order]."""
    rest = [axis for axis in range(array.ndim) if axis not in kept]
    stay = [axis for axis in rest if term.sides[axis] not in symmetry.permutable]
    move = [axis for axis in rest if axis not in stay]
    laid = array.transpose([*kept, *stay, *move])
    return np.sort(laid.reshape(*laid.shape[: len(kept) + len(stay)], -1), axis=-1)
