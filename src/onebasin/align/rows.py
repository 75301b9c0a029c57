r"""Many draws at once, where every block has at most one side that moves.

The units of a factor are then rows of numbers x_du, all of its weights together, and draws only
meet in the mean. With p_d the order of draw d and c_i the centre of unit i,

    gain_d[i, j] = <c_i, x_dj>,     p_d = argmax sum_i gain_d[i, p(i)],     c_i = mean_d x_dp_d(i).

Products are kept, and renewed for the units whose centre has moved; the centre is brought up to
date by the units that changed places.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from onebasin.align.assignment import Assignment, value
from onebasin.align.population import Progress, num_threads
from onebasin.align.signs import Gains, Signature, best_signs
from onebasin.align.state import State
from onebasin.symmetry import Symmetry

KEPT_BYTES = 2**30

Key = tuple[str, Signature]
"""A factor, and which of its signs flip a row."""


def are_rows(symmetry: Symmetry) -> bool:
    """Whether every block has at most one side that moves, and no unit more than one sign."""
    return all(
        "permutation" in f.kinds and len(f.index) == 1 and f.signs <= 1 for f in symmetry.factors
    ) and all(
        sum(side in symmetry.permutable for side in block.sides) <= 1
        for leaf in symmetry.leaves
        for block in leaf.blocks
    )


class Rows:
    """Rounds over draws whose units are rows.

    Args:
        symmetry: The group, with `are_rows(symmetry)`.
        leaves: The stacked parameters.
        solver: The assignment solver.
        kept_bytes: Products are kept from round to round if they take no more than this.
    """

    def __init__(
        self,
        symmetry: Symmetry,
        leaves: Sequence[np.ndarray],
        solver: str,
        kept_bytes: int = KEPT_BYTES,
    ):
        self.symmetry = symmetry
        self.count = len(leaves[0])
        self._solve = Assignment(solver, threads=1)
        self._fixed, self._rows = _cut(symmetry, leaves)
        self._norms = np.zeros(self.count)
        for x in (self._fixed, *self._rows.values()):
            axes = list(range(x.ndim))
            self._norms += np.einsum(x, axes, x, axes, [0], dtype=np.float64)
        shapes = {key: (self.count, x.shape[1], x.shape[1]) for key, x in self._rows.items()}
        self._kept: dict[Key, np.ndarray] = {}
        if 4 * sum(int(np.prod(shape)) for shape in shapes.values()) <= kept_bytes:
            self._kept = {key: np.empty(shape, np.float32) for key, shape in shapes.items()}

    def aim(self, leaves: Sequence[np.ndarray]) -> None:
        """Takes a network for the centre."""
        fixed, rows = _cut(self.symmetry, [leaf[None] for leaf in leaves])
        self._fixed_centre = fixed[0]
        self._centre = {key: x[0] for key, x in rows.items()}
        self._stale = {f.name: np.arange(f.size) for f in self.symmetry.factors}
        self._held: State | None = None

    def recentre(self, states: State) -> None:
        """Takes the mean of the moved draws for the centre."""
        held = self._held
        if held is None:
            self._fixed_centre = self._fixed.mean(axis=0)
            self._sums = {key: np.zeros(x.shape[1:]) for key, x in self._rows.items()}
        moves = {name: self._moves(name, states) for name in states.permutations}
        self._stale = {name: np.flatnonzero(m.any(axis=0)) for name, m in moves.items()}
        for key, x in self._rows.items():
            name, total = key[0], self._sums[key]
            for draw in np.flatnonzero(moves[name].any(axis=1)).tolist():
                units = np.flatnonzero(moves[name][draw])
                total[units] += _taken(x[draw], key, states, draw, units)
                if held is not None:
                    total[units] -= _taken(x[draw], key, held, draw, units)
            stale = self._stale[name]
            self._centre[key][stale] = total[stale] / self.count
        self._held = states

    def _moves(self, name: str, states: State) -> np.ndarray:
        """Which units of which draws have changed since the last mean, [draw, unit]."""
        if self._held is None:
            return np.ones_like(states.permutations[name], bool)
        moved = self._held.permutations[name] != states.permutations[name]
        if name in states.signs:
            moved |= (self._held.signs[name] != states.signs[name]).any(axis=-1)
        return moved

    def round(
        self, states: State, number: int, progress: Progress | None
    ) -> tuple[State, np.ndarray]:
        """The best match of every draw with the centre, and its squared distance."""
        found = states.copy()
        # One thread per draw: those of a single product would wait for one another.
        with (
            threadpool_limits(1, "blas"),
            concurrent.futures.ThreadPoolExecutor(num_threads()) as pool,
        ):
            ended: Iterable[Any] = pool.map(lambda i: self._visit(found, i), range(self.count))
            if progress is not None:
                ended = progress(ended, f"round {number + 1}", self.count)
            gained = np.array(list(ended)) + self._fixed @ self._fixed_centre
        squares = sum(float(np.vdot(c, c)) for c in (self._fixed_centre, *self._centre.values()))
        return found, squares + self._norms - 2 * gained

    def _visit(self, found: State, draw: int) -> float:
        """Matches one draw with the centre, in place; returns what it gained."""
        gained = 0.0
        for name, columns in found.permutations.items():
            gains = self._gains(name, draw)
            totals, signs = best_signs(gains, self.symmetry.factor(name).signs)
            columns[draw] = self._solve(totals)
            gained += float(value(totals, columns[draw]))
            if name in found.signs:
                found.signs[name][draw] = signs[np.arange(len(totals)), columns[draw]]
        return gained

    def _gains(self, name: str, draw: int) -> Gains:
        """Gains [i, j] of one draw by signature."""
        found: Gains = {}
        for key, x in self._rows.items():
            if key[0] != name:
                continue
            if not self._kept:
                found[key[1]] = self._centre[key] @ x[draw].T
                continue
            kept, stale = self._kept[key][draw], self._stale[name]
            if len(stale) == len(kept):
                np.matmul(self._centre[key], x[draw].T, out=kept)
            else:
                kept[stale] = self._centre[key][stale] @ x[draw].T
            found[key[1]] = kept
        return found


def _cut(
    symmetry: Symmetry, leaves: Sequence[np.ndarray]
) -> tuple[np.ndarray, dict[Key, np.ndarray]]:
    """What cannot move, [draw, weight], and the rows of what can, [draw, unit, weight]."""
    count = len(leaves[0])
    fixed = [np.zeros((count, 0), np.float32)]
    rows: dict[Key, list[np.ndarray]] = {}
    for leaf, array in zip(symmetry.leaves, leaves, strict=True):
        if not leaf.blocks:
            fixed.append(array.reshape(count, -1))
        for block in leaf.blocks:
            box = array[(slice(None), *block.at())].reshape(count, *block.shape)
            movable = [i for i, side in enumerate(block.sides) if side in symmetry.permutable]
            if not movable:
                fixed.append(box.reshape(count, -1))
                continue
            (axis,) = movable
            key = block.sides[axis], frozenset(w.generator for w in block.signs)
            units = np.moveaxis(box, axis + 1, 1).reshape(count, block.shape[axis], -1)
            rows.setdefault(key, []).append(units)
    joined = {key: np.concatenate(parts, axis=-1) for key, parts in rows.items()}
    return np.concatenate(fixed, axis=1), joined


def _taken(rows: np.ndarray, key: Key, states: State, draw: int, units: np.ndarray) -> np.ndarray:
    """The rows that some units of a draw hold in a state."""
    name, signature = key
    taken = rows[states.permutations[name][draw, units]]
    if signature:
        taken = taken * states.signs[name][draw, units][:, sorted(signature)].prod(axis=-1)[:, None]
    return taken
