r"""Many draws at once, where every block has at most one side that moves.

The units of a factor are then rows of numbers x_du, all of its weights together, and draws only
meet in the mean. With p_d the order of draw d and c_i the centre of unit i,

    gain_d[i, j] = <c_i, x_dj>,     p_d = argmax sum_i gain_d[i, p(i)],     c_i = mean_d x_dp_d(i).

The mean follows after every few draws, in the first round that of the draws seen so far: fewer
rounds and a better end than when it waits for all of them. Products are kept, and renewed for the
units whose centre has moved; the centre is brought up to date by the units that changed places.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from onebasin._core.cores import num_cores, one_blas_thread
from onebasin.align.assignment import Assignment, value
from onebasin.align.budget import KEPT_BYTES, TOGETHER
from onebasin.align.cutting import Key, cut
from onebasin.align.population import Progress
from onebasin.align.signs import Gains, best_signs
from onebasin.align.state import State
from onebasin.symmetry import Symmetry


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
        first: The draw that the mean begins with; None keeps the centre where it was aimed.
        kept_bytes: Products are kept from round to round if they take no more than this.
        lean: Whether rows are cut out of the leaves whenever a draw is visited, and not kept.
        threads: How many draws are matched side by side; by default one per core.
    """

    def __init__(
        self,
        symmetry: Symmetry,
        leaves: Sequence[Any],
        solver: str,
        first: int | None,
        kept_bytes: int | None = None,
        lean: bool = False,
        threads: int | None = None,
    ):
        self.symmetry = symmetry
        self.count = len(leaves[0])
        self._solve = Assignment(solver, threads=1)
        self._threads = threads or num_cores()
        self._leaves = leaves
        self._lay_out(lean)
        self._norms = np.empty(self.count)
        with concurrent.futures.ThreadPoolExecutor(self._threads) as pool:
            self._side_by_side(pool, self._take_in, range(self.count))
        self._first = first
        self._order = sorted(range(self.count), key=lambda draw: draw != first)
        kept_bytes = KEPT_BYTES if kept_bytes is None else kept_bytes
        shapes = {key: (self.count, n, n) for key, (n, _) in self._shapes.items()}
        self._kept: dict[Key, np.ndarray] = {}
        if 4 * sum(int(np.prod(shape)) for shape in shapes.values()) <= kept_bytes:
            self._kept = {key: np.empty(shape, np.float32) for key, shape in shapes.items()}

    def _lay_out(self, lean: bool) -> None:
        """Makes room for the rows of all draws, or for none."""
        fixed, rows = self._cut(0)
        self._shapes = {key: x.shape for key, x in rows.items()}
        self._rows: dict[Key, np.ndarray] = {}
        self._fixed: np.ndarray | None = None
        if not lean:
            self._rows = {k: np.empty((self.count, *x.shape), x.dtype) for k, x in rows.items()}
            self._fixed = np.empty((self.count, *fixed.shape), fixed.dtype)

    def _cut(self, draw: int) -> tuple[np.ndarray, dict[Key, np.ndarray]]:
        """What cannot move of one draw, and its rows."""
        fixed, parts = cut(self.symmetry, [leaf[draw][None] for leaf in self._leaves])
        return fixed[0], {key: np.concatenate(each, axis=-1)[0] for key, each in parts.items()}

    def _take_in(self, draw: int) -> None:
        """Measures one draw, and lays its rows side by side where they are kept."""
        fixed, rows = self._cut(draw)
        whole = (fixed, *rows.values())
        self._norms[draw] = sum(float(np.square(x, dtype=np.float64).sum()) for x in whole)
        if self._fixed is not None:
            self._fixed[draw] = fixed
            for key, x in rows.items():
                self._rows[key][draw] = x

    def _rows_of(self, draw: int) -> dict[Key, np.ndarray]:
        if self._fixed is None:
            return self._cut(draw)[1]
        return {key: x[draw] for key, x in self._rows.items()}

    def _fixed_of(self, draw: int) -> np.ndarray:
        return self._cut(draw)[0] if self._fixed is None else self._fixed[draw]

    def aim(self, leaves: Sequence[np.ndarray], spread: Sequence[np.ndarray] = ()) -> None:
        """Takes a network for the centre; weights alone are compared, without any spread."""
        fixed, parts = cut(self.symmetry, [leaf[None] for leaf in leaves])
        self._fixed_centre = fixed[0] if self._first is None else self._mean_of_fixed()
        self._centre = {key: np.concatenate(each, axis=-1)[0] for key, each in parts.items()}
        self._stale = {f.name: np.ones((self.count, f.size), bool) for f in self.symmetry.factors}
        self._sums = {key: np.zeros(shape) for key, shape in self._shapes.items()}
        self._summed = np.zeros(self.count, bool)

    def _mean_of_fixed(self) -> np.ndarray:
        """The mean of what cannot move, draw by draw, so that it is the same however it is held."""
        total = np.zeros(self._fixed_of(0).shape)
        for draw in range(self.count if total.size else 0):
            total += self._fixed_of(draw)
        return (total / self.count).astype(self._fixed_of(0).dtype)

    def round(self, states: State, number: int, progress: Progress | None) -> tuple[State, float]:
        """The best match of every draw with the centre, and the sum of squared distances."""
        found = states.copy()
        # One thread per draw: those of a single product would wait for one another.
        with (
            one_blas_thread(),
            concurrent.futures.ThreadPoolExecutor(self._threads) as pool,
        ):
            ended: Iterable[Any] = self._visits(states, found, pool)
            if progress is not None:
                ended = progress(ended, f"round {number + 1}", self.count)
            gained = sum(ended)
        if self._first is None:
            gained += sum(
                float(np.vdot(self._fixed_of(draw), self._fixed_centre))
                for draw in range(self.count if self._fixed_centre.size else 0)
            )
            centres = (self._fixed_centre, *self._centre.values())
            squares = self.count * sum(float(np.vdot(c, c)) for c in centres)
            return found, squares + float(self._norms.sum()) - 2 * gained
        squares = sum(float(np.vdot(total, total)) for total in self._sums.values()) / self.count
        squares += self.count * float(np.vdot(self._fixed_centre, self._fixed_centre))
        return found, float(self._norms.sum()) - squares

    def _visits(
        self, states: State, found: State, pool: concurrent.futures.Executor
    ) -> Iterator[float]:
        """Matches all draws in place, a few with the same centre; yields what each gained."""
        # A centre that stays is the same for all: as many as keep every core at work.
        size = TOGETHER if self._first is not None else TOGETHER * self._threads
        for at in range(0, self.count, size):
            some = self._order[at : at + size]
            gained = self._side_by_side(pool, lambda draw: self._visit(found, draw), some)
            if self._first is not None:
                self._follow(states, found, some)
            yield from gained

    def _follow(self, held: State, found: State, some: Sequence[int]) -> None:
        """Moves the mean by what some draws have changed; draws not yet in it come in."""
        new = [draw for draw in some if not self._summed[draw]]
        self._summed[some] = True
        # Rows that are not kept are cut for those draws alone that have moved.
        turned = [draw for draw in some if draw in new or _moved(held, found, draw)]
        own = {draw: self._rows_of(draw) for draw in turned}
        for name in found.permutations:
            moves = _moves(name, held, found, some)
            moves[[draw in new for draw in some]] = True
            stale = np.full(moves.shape[1], True) if new else moves.any(axis=0)
            if not stale.any():
                continue
            for key in self._keys(name):
                total = self._sums[key]
                for draw, moved in zip(some, moves, strict=True):
                    units = np.flatnonzero(moved)
                    if not len(units):
                        continue
                    total[units] += _taken(own[draw][key], key, found, draw, units)
                    if draw not in new:
                        total[units] -= _taken(own[draw][key], key, held, draw, units)
                self._centre[key][stale] = total[stale] / self._summed.sum()
            self._stale[name] |= stale

    def _visit(self, found: State, draw: int) -> float:
        """Matches one draw with the centre, in place; returns what it gained."""
        gained = 0.0
        rows: dict[Key, np.ndarray] = {}
        for name, columns in found.permutations.items():
            if self._kept and not self._stale[name][draw].any():
                continue
            rows = rows or self._rows_of(draw)
            gains = self._gains(name, draw, rows)
            totals, signs = best_signs(gains, self.symmetry.factor(name).signs)
            columns[draw] = self._solve(totals)
            gained += float(value(totals, columns[draw]))
            if name in found.signs:
                found.signs[name][draw] = signs[np.arange(len(totals)), columns[draw]]
        return gained

    def _side_by_side(
        self,
        pool: concurrent.futures.Executor,
        work: Callable[[int], Any],
        draws: Sequence[int],
    ) -> list[Any]:
        """What work finds for each draw, an equal part of them on every thread.

        One part is done here and each other is handed over once: for narrow networks, to hand over
        draws one by one takes longer than to match them.
        """
        parts = [draws[i :: self._threads] for i in range(self._threads)]
        away = [pool.submit(_each, work, part) for part in parts[1:]]
        found: list[Any] = [None] * len(draws)
        for i, own in enumerate([_each(work, parts[0]), *(task.result() for task in away)]):
            found[i :: self._threads] = own
        return found

    def _keys(self, name: str) -> list[Key]:
        return [key for key in self._shapes if key[0] == name]

    def _gains(self, name: str, draw: int, own: dict[Key, np.ndarray]) -> Gains:
        """Gains [i, j] of one draw by signature."""
        found: Gains = {}
        stale = np.flatnonzero(self._stale[name][draw])
        for key in self._keys(name):
            rows, centre = own[key], self._centre[key]
            if not self._kept:
                found[key[1]] = centre @ rows.T
                continue
            kept = self._kept[key][draw]
            if len(stale) == len(kept):
                np.matmul(centre, rows.T, out=kept)
            else:
                kept[stale] = centre[stale] @ rows.T
            found[key[1]] = kept
        self._stale[name][draw] = False
        return found


def _each(work: Callable[[int], Any], draws: Sequence[int]) -> list[Any]:
    return [work(draw) for draw in draws]


def _moves(name: str, held: State, found: State, some: Sequence[int]) -> np.ndarray:
    """Which units of some draws differ between two states, [draw, unit]."""
    moved = held.permutations[name][some] != found.permutations[name][some]
    if name in found.signs:
        moved |= (held.signs[name][some] != found.signs[name][some]).any(axis=-1)
    return moved


def _moved(held: State, found: State, draw: int) -> bool:
    """Whether a draw stands elsewhere than it did."""
    return any(
        not np.array_equal(old[name][draw], new[name][draw])
        for old, new in ((held.permutations, found.permutations), (held.signs, found.signs))
        for name in old
    )


def _taken(rows: np.ndarray, key: Key, states: State, draw: int, units: np.ndarray) -> np.ndarray:
    """The rows that some units of a draw hold in a state."""
    name, signature = key
    taken = rows[states.permutations[name][draw, units]]
    if signature:
        taken = taken * states.signs[name][draw, units][:, sorted(signature)].prod(axis=-1)[:, None]
    return taken
