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
from onebasin.align.cutting import Key, cut
from onebasin.align.population import Progress
from onebasin.align.signs import Gains, best_signs
from onebasin.align.state import State
from onebasin.symmetry import Symmetry

KEPT_BYTES = 2**30
# Draws that are matched with one centre, side by side, before the mean follows.
TOGETHER = 4


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
    """

    def __init__(
        self,
        symmetry: Symmetry,
        leaves: Sequence[np.ndarray],
        solver: str,
        first: int | None,
        kept_bytes: int = KEPT_BYTES,
    ):
        self.symmetry = symmetry
        self.count = len(leaves[0])
        self._solve = Assignment(solver, threads=1)
        self._fixed, parts = cut(symmetry, leaves)
        self._rows = {key: np.empty(*_joined(each)) for key, each in parts.items()}
        self._norms = np.empty(self.count)
        with concurrent.futures.ThreadPoolExecutor(num_cores()) as pool:
            _side_by_side(pool, lambda draw: self._take_in(parts, draw), range(self.count))
        self._first = first
        self._order = sorted(range(self.count), key=lambda draw: draw != first)
        shapes = {key: (self.count, x.shape[1], x.shape[1]) for key, x in self._rows.items()}
        self._kept: dict[Key, np.ndarray] = {}
        if 4 * sum(int(np.prod(shape)) for shape in shapes.values()) <= kept_bytes:
            self._kept = {key: np.empty(shape, np.float32) for key, shape in shapes.items()}

    def _take_in(self, parts: dict[Key, list[np.ndarray]], draw: int) -> None:
        """Lays the rows of one draw side by side."""
        own = [self._fixed[draw]]
        for key, each in parts.items():
            np.concatenate([part[draw] for part in each], axis=-1, out=self._rows[key][draw])
            own.append(self._rows[key][draw])
        self._norms[draw] = sum(float(np.square(x, dtype=np.float64).sum()) for x in own)

    def aim(self, leaves: Sequence[np.ndarray], spread: Sequence[np.ndarray] = ()) -> None:
        """Takes a network for the centre; weights alone are compared, without any spread."""
        fixed, parts = cut(self.symmetry, [leaf[None] for leaf in leaves])
        self._fixed_centre = fixed[0] if self._first is None else self._fixed.mean(axis=0)
        self._centre = {key: np.concatenate(each, axis=-1)[0] for key, each in parts.items()}
        self._stale = {f.name: np.ones((self.count, f.size), bool) for f in self.symmetry.factors}
        self._sums = {key: np.zeros(x.shape[1:]) for key, x in self._rows.items()}
        self._summed = np.zeros(self.count, bool)

    def round(self, states: State, number: int, progress: Progress | None) -> tuple[State, float]:
        """The best match of every draw with the centre, and the sum of squared distances."""
        found = states.copy()
        # One thread per draw: those of a single product would wait for one another.
        with (
            one_blas_thread(),
            concurrent.futures.ThreadPoolExecutor(num_cores()) as pool,
        ):
            ended: Iterable[Any] = self._visits(states, found, pool)
            if progress is not None:
                ended = progress(ended, f"round {number + 1}", self.count)
            gained = sum(ended)
        if self._first is None:
            gained += float((self._fixed @ self._fixed_centre).sum())
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
        size = TOGETHER if self._first is not None else TOGETHER * num_cores()
        for at in range(0, self.count, size):
            some = self._order[at : at + size]
            gained = _side_by_side(pool, lambda draw: self._visit(found, draw), some)
            if self._first is not None:
                self._follow(states, found, some)
            yield from gained

    def _follow(self, held: State, found: State, some: Sequence[int]) -> None:
        """Moves the mean by what some draws have changed; draws not yet in it come in."""
        new = [draw for draw in some if not self._summed[draw]]
        self._summed[some] = True
        for name in found.permutations:
            moves = _moves(name, held, found, some)
            moves[[draw in new for draw in some]] = True
            stale = np.full(moves.shape[1], True) if new else moves.any(axis=0)
            if not stale.any():
                continue
            for key in self._keys(name):
                total, x = self._sums[key], self._rows[key]
                for draw, moved in zip(some, moves, strict=True):
                    units = np.flatnonzero(moved)
                    total[units] += _taken(x[draw], key, found, draw, units)
                    if draw not in new:
                        total[units] -= _taken(x[draw], key, held, draw, units)
                self._centre[key][stale] = total[stale] / self._summed.sum()
            self._stale[name] |= stale

    def _visit(self, found: State, draw: int) -> float:
        """Matches one draw with the centre, in place; returns what it gained."""
        gained = 0.0
        for name, columns in found.permutations.items():
            if self._kept and not self._stale[name][draw].any():
                continue
            gains = self._gains(name, draw)
            totals, signs = best_signs(gains, self.symmetry.factor(name).signs)
            columns[draw] = self._solve(totals)
            gained += float(value(totals, columns[draw]))
            if name in found.signs:
                found.signs[name][draw] = signs[np.arange(len(totals)), columns[draw]]
        return gained

    def _keys(self, name: str) -> list[Key]:
        return [key for key in self._rows if key[0] == name]

    def _gains(self, name: str, draw: int) -> Gains:
        """Gains [i, j] of one draw by signature."""
        found: Gains = {}
        stale = np.flatnonzero(self._stale[name][draw])
        for key in self._keys(name):
            rows, centre = self._rows[key][draw], self._centre[key]
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


def _side_by_side(
    pool: concurrent.futures.Executor, work: Callable[[int], Any], draws: Sequence[int]
) -> list[Any]:
    """What work finds for each draw, an equal part of them on every core.

    One part is done here and each other is handed over once: for narrow networks, to hand over
    draws one by one takes longer than to match them.
    """
    cores = num_cores()
    parts = [draws[i::cores] for i in range(cores)]
    away = [pool.submit(_each, work, part) for part in parts[1:]]
    found: list[Any] = [None] * len(draws)
    for i, own in enumerate([_each(work, parts[0]), *(task.result() for task in away)]):
        found[i::cores] = own
    return found


def _each(work: Callable[[int], Any], draws: Sequence[int]) -> list[Any]:
    return [work(draw) for draw in draws]


def _moves(name: str, held: State, found: State, some: Sequence[int]) -> np.ndarray:
    """Which units of some draws differ between two states, [draw, unit]."""
    moved = held.permutations[name][some] != found.permutations[name][some]
    if name in found.signs:
        moved |= (held.signs[name][some] != found.signs[name][some]).any(axis=-1)
    return moved


def _joined(parts: list[np.ndarray]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and kind of what parts of rows make side by side."""
    return (*parts[0].shape[:-1], sum(x.shape[-1] for x in parts)), np.result_type(*parts)


def _taken(rows: np.ndarray, key: Key, states: State, draw: int, units: np.ndarray) -> np.ndarray:
    """The rows that some units of a draw hold in a state."""
    name, signature = key
    taken = rows[states.permutations[name][draw, units]]
    if signature:
        taken = taken * states.signs[name][draw, units][:, sorted(signature)].prod(axis=-1)[:, None]
    return taken
