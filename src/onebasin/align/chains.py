r"""Many draws at once, where factors depend on others but every block has one chain that moves.

Groups and their channels, heads and their dimensions: a block then holds a unit i of a parent p and
nothing else that moves. With c the centre, x_d a draw, and all weights of a unit as one row,

    inner_d[p, q, i, j] = <c_pi, x_dqj>,     value_d[p, q] = max_s sum_i inner_d[p, q, i, s(i)],
    outer_d[p, q] = <c_p, x_dq> + sum over dependants of value_d[p, q],

and the best order of the parents, with the inner orders s that belong to it, is the optimum of the
whole. One product makes the gains of all draws, and the mean of the moved draws is one gather.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onebasin._core.cores import num_cores
from onebasin.align import assignment
from onebasin.align.assignment import Assignment
from onebasin.align.cutting import Key, cut, movable_sides
from onebasin.align.population import Progress
from onebasin.align.signs import ENUMERATED, Gains, best_signs, signs_at
from onebasin.align.state import State
from onebasin.symmetry import Symmetry
from onebasin.symmetry.elements import Block

GAINS_AT_ONCE = 2**24
TOLERANCE = 1e-7
# Draws that are added up together, in double precision.
ADDED = 64


def are_chains(symmetry: Symmetry) -> bool:
    """Whether what moves in a block is one factor, or one with the parent that it depends on."""
    tops = {f.name for f in symmetry.factors if len(f.index) == 1}
    parents = {p for up in symmetry.parents.values() for p in up}
    return (
        all("permutation" in f.kinds and f.signs <= ENUMERATED for f in symmetry.factors)
        and all(len(up) <= 1 and tops.issuperset(up) for up in symmetry.parents.values())
        and not any(f.signs for f in symmetry.factors if f.name in parents)
        and all(
            _own(symmetry, block) is not None for leaf in symmetry.leaves for block in leaf.blocks
        )
    )


def _own(symmetry: Symmetry, block: Block) -> str | None:
    """The last of the chain that moves in a block, "" if nothing does, None if it is no chain."""
    movable = movable_sides(symmetry, block)
    if not movable:
        return ""
    last = movable[-1]
    flips = {w.factor for w in block.signs} <= {last}
    return last if flips and sorted(movable) == sorted([*symmetry.parents[last], last]) else None


class Chains:
    """Rounds over draws whose blocks hold one chain each, all draws of a round with one centre.

    Args:
        symmetry: The group, with `are_chains(symmetry)`.
        leaves: The stacked parameters.
        solver: The assignment solver.
        follows: Whether the centre moves to the mean of the draws from round to round.
        at_once: The most gains that lie in memory together.
        lean: Whether rows are cut out of the leaves whenever draws are matched, and not kept.
        part: The most draws that are matched together, whatever their gains; None for any.
    """

    def __init__(
        self,
        symmetry: Symmetry,
        leaves: Sequence[Any],
        solver: str,
        follows: bool = True,
        at_once: int = GAINS_AT_ONCE,
        lean: bool = False,
        part: int | None = None,
    ):
        self.symmetry = symmetry
        self._follows = follows
        self.count = len(leaves[0])
        self._solve = Assignment(solver, threads=num_cores())
        self._leaves = leaves
        rows = self._cut_of(slice(0, 1))[1]
        largest = max((x[0, ..., 0].size ** 2 for x in rows.values()), default=1)
        size = min(max(1, at_once // largest), part or self.count)
        self._parts = [slice(i, min(i + size, self.count)) for i in range(0, self.count, size)]
        self._kept = None if lean else self._cut_of(slice(0, self.count))
        self._norms = np.concatenate([self._norms_of(part) for part in self._parts])

    def _cut_of(self, part: slice) -> tuple[np.ndarray, dict[Key, np.ndarray]]:
        return _cut(self.symmetry, [leaf[part] for leaf in self._leaves])

    def _of(self, part: slice) -> tuple[np.ndarray, dict[Key, np.ndarray]]:
        """What cannot move of some draws, and their rows."""
        if self._kept is None:
            return self._cut_of(part)
        fixed, rows = self._kept
        return fixed[part], {key: x[part] for key, x in rows.items()}

    def _norms_of(self, part: slice) -> np.ndarray:
        fixed, rows = self._of(part)
        whole = [x.reshape(len(fixed), -1) for x in (fixed, *rows.values())]
        return np.asarray(sum(np.square(x).sum(1, np.float64) for x in whole))

    def aim(self, leaves: Sequence[np.ndarray], spread: Sequence[np.ndarray] = ()) -> None:
        """Takes a network for the centre; weights alone are compared, without any spread."""
        fixed, rows = _cut(self.symmetry, [leaf[None] for leaf in leaves])
        self._fixed_centre = fixed[0]
        self._centre = {key: x[0] for key, x in rows.items()}

    def _recentre(self, states: State) -> None:
        """Takes the mean of the moved draws for the centre."""
        fixed = np.zeros(self._fixed_centre.shape)
        totals = {key: np.zeros(x.shape) for key, x in self._centre.items()}
        for part in self._parts:
            own, rows = self._of(part)
            _add_up(fixed, own)
            for key, x in rows.items():
                _add_up(totals[key], self._taken(key, x, _some(states, part)))
        self._fixed_centre = (fixed / self.count).astype(self._fixed_centre.dtype)
        for key, total in totals.items():
            self._centre[key] = (total / self.count).astype(self._centre[key].dtype)

    def _taken(self, key: Key, rows: np.ndarray, states: State) -> np.ndarray:
        """The rows of some draws as their states put them."""
        name, signature = key
        order = states.permutations[name]
        draws = np.arange(len(rows))
        if self.symmetry.parents[name]:
            (parent,) = self.symmetry.parents[name]
            outer = states.permutations[parent]
            taken = rows[draws[:, None, None], outer[:, :, None], order]
        else:
            taken = rows[draws[:, None], order]
        if signature:
            taken = taken * states.signs[name][..., sorted(signature)].prod(axis=-1)[..., None]
        return taken

    def round(self, states: State, number: int, progress: Progress | None) -> tuple[State, float]:
        """The best match of every draw with the centre, and the sum of squared distances.

        From the second round on the centre, if it follows, is the mean of where the draws stand.
        """
        if number and self._follows:
            self._recentre(states)
        work: Any = self._parts
        if progress is not None:
            work = progress(work, f"round {number + 1}", len(self._parts))
        found, gained = [], 0.0
        for part in work:
            state, value = self._match(part, _some(states, part))
            found.append(state)
            gained += math.fsum(value)
        centres = (self._fixed_centre, *self._centre.values())
        squares = self.count * sum(float(np.square(c).sum(dtype=np.float64)) for c in centres)
        joined = State(
            {k: np.concatenate([s.permutations[k] for s in found]) for k in states.permutations},
            {k: np.concatenate([s.signs[k] for s in found]) for k in states.signs},
        )
        return joined, squares + float(np.sum(self._norms)) - 2 * gained

    def _match(self, part: slice, held: State) -> tuple[State, np.ndarray]:
        """The optimum of some draws, and what each is worth; a draw that gains nothing stays."""
        fixed, rows = self._of(part)
        gains = {name: self._gains(name, rows) for name in held.permutations}
        found = held.copy()
        for name in held.permutations:
            if not self.symmetry.parents[name]:
                self._match_chain(name, gains, found)
        before, after = self._worth(gains, held), self._worth(gains, found)
        stays = after - before <= TOLERANCE * np.maximum(abs(before), abs(after))
        for old, new in ((held.permutations, found.permutations), (held.signs, found.signs)):
            for name in old:
                new[name][stays] = old[name][stays]
        return found, np.where(stays, before, after) + fixed @ self._fixed_centre

    def _match_chain(self, name: str, gains: dict[str, Gains], found: State) -> None:
        """Brings one factor and its dependants to their optimum, in place."""
        children = [c for c, up in self.symmetry.parents.items() if up == (name,) and c in gains]
        shape = found.permutations[name].shape
        own = gains[name] or {frozenset(): np.zeros((*shape, shape[-1]), np.float32)}
        totals, signs = best_signs(own, self.symmetry.factor(name).signs)
        inner = {}
        for child in children:
            values, flips = best_signs(gains[child], self.symmetry.factor(child).signs)
            inner[child] = self._solve(values), flips
            totals = totals + assignment.value(values, inner[child][0])
        outer = self._solve(totals)
        found.permutations[name] = outer
        if name in found.signs:
            found.signs[name] = signs_at(signs, outer)
        at = np.arange(len(outer))[:, None], np.arange(outer.shape[1]), outer
        for child, (columns, flips) in inner.items():
            found.permutations[child] = columns[at]
            if child in found.signs:
                found.signs[child] = signs_at(flips[at], columns[at])

    def _worth(self, gains: dict[str, Gains], states: State) -> np.ndarray:
        """What some draws gain in given states."""
        total: Any = 0.0
        for name, order in states.permutations.items():
            for signature, gain in gains[name].items():
                if self.symmetry.parents[name]:
                    outer = states.permutations[self.symmetry.parents[name][0]]
                    gain = gain[np.arange(len(outer))[:, None], np.arange(outer.shape[1]), outer]
                own = np.take_along_axis(gain, order[..., None], axis=-1)[..., 0]
                if signature:
                    own = own * states.signs[name][..., sorted(signature)].prod(axis=-1)
                total = total + own.reshape(len(own), -1).sum(1, np.float64)
        return np.asarray(total)

    def _gains(self, name: str, rows: dict[Key, np.ndarray]) -> Gains:
        """Gains [draw, i, j], or with a parent [draw, p, q, i, j], by signature."""
        found: Gains = {}
        for key, own in rows.items():
            if key[0] != name:
                continue
            centre = self._centre[key]
            n, k = own.shape[-2:]
            product = centre.reshape(-1, k) @ own.reshape(len(own), -1, k).transpose(0, 2, 1)
            if self.symmetry.parents[name]:
                parents = len(centre)
                product = product.reshape(-1, parents, n, parents, n).transpose(0, 1, 3, 2, 4)
            found[key[1]] = np.ascontiguousarray(product)
        return found


def _add_up(total: np.ndarray, stacked: np.ndarray) -> None:
    """Adds draws in place, one after the other: the sum does not depend on how they are parted."""
    if total.size < 2:
        # NumPy adds up a single column in pairs.
        for one in stacked:
            total += one
        return
    for at in range(0, len(stacked), ADDED):
        some = stacked[at : at + ADDED]
        total[...] = np.add.reduce(np.concatenate([total[None], some], dtype=total.dtype), axis=0)


def _some(states: State, part: slice) -> State:
    return State(
        {k: v[part] for k, v in states.permutations.items()},
        {k: v[part] for k, v in states.signs.items()},
    )


def _cut(
    symmetry: Symmetry, leaves: Sequence[np.ndarray]
) -> tuple[np.ndarray, dict[Key, np.ndarray]]:
    """What cannot move, and whole rows of what can."""
    fixed, rows = cut(symmetry, leaves)
    return fixed, {key: np.concatenate(parts, axis=-1) for key, parts in rows.items()}
