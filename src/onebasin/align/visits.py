"""Rounds in which each of many draws is matched on its own, by coordinate descent."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from onebasin._core.cores import num_cores
from onebasin.align import channels
from onebasin.align.assignment import Assignment
from onebasin.align.data_objective import DataObjective
from onebasin.align.descent import descend
from onebasin.align.pairing import Pairing
from onebasin.align.population import Population, Progress
from onebasin.align.search import search
from onebasin.align.settling import settle
from onebasin.align.state import State
from onebasin.symmetry import Element

# Draws that one program measures at work; their products lie in memory together.
GROUP = 16


class Visits:
    """Rounds in which each draw is matched with the centre by coordinate descent.

    Args:
        population: The draws.
        solver: The assignment solver.
        seed: Seed of the order of visits.
        leave_out: Whether, from the second round on, each draw is matched with the mean of the
            others.
        among: The number of the first of these draws, and of how many they are a part; by default
            they are all.
        threads: How many draws are visited side by side; by default one per core.
    """

    def __init__(
        self,
        population: Population,
        solver: str,
        seed: int,
        leave_out: bool,
        among: tuple[int, int] | None = None,
        threads: int | None = None,
    ):
        self.population = population
        self._threads = threads or num_cores()
        self._first, self._total = (0, population.count) if among is None else among
        self._solve = Assignment(solver, threads=1)
        self._seed, self._leave_out = seed, leave_out

    def aim(self, leaves: list[np.ndarray], spread: Sequence[np.ndarray] = ()) -> None:
        """Takes a network, or a Gaussian with its spread, for the centre."""
        self._centre, self._averaged, self._follows = leaves, False, True
        self._spread = list(spread)

    def aim_between(
        self, leaves: list[np.ndarray], spread: list[np.ndarray], averaged: bool
    ) -> None:
        """Takes what others found for the centre, and leaves it there."""
        self._centre, self._spread, self._averaged = leaves, spread, averaged
        self._follows = False

    def _recentre(self, states: State) -> None:
        """Takes the mean of the moved draws for the centre."""
        self._centre, self._averaged = self._average(self.population.means, states), True
        if self.population.stds is not None:
            unsigned = State(states.permutations, {})
            self._spread = self._average(self.population.stds, unsigned)

    def _average(self, stacked: Sequence[Any], states: State) -> list[np.ndarray]:
        total = [np.zeros(leaf.shape[1:], np.result_type(leaf, np.float32)) for leaf in stacked]
        for i in range(self.population.count):
            for x, y in zip(total, self.placed(stacked, states, i), strict=True):
                x += y
        return [x / x.dtype.type(self.population.count) for x in total]

    def placed(self, stacked: Sequence[Any], states: State, draw: int) -> list[np.ndarray]:
        own = states.of(draw)
        element = Element(own.permutations, {}, own.signs)
        leaves = [leaf[draw] for leaf in stacked]
        return self.population.symmetry.act_on_leaves(element, leaves, np)

    def round(self, states: State, number: int, progress: Progress | None) -> tuple[State, float]:
        """Every draw brought to its optimum against the centre, and the sum of their costs.

        From the second round on the centre is the mean of where the draws stand.
        """
        if number and self._follows:
            self._recentre(states)
        count = self.population.count
        alone = self.population.data is None or (self._leave_out and self._averaged)

        def visits(pool: concurrent.futures.Executor) -> Iterator[tuple[State, float]]:
            if alone:
                yield from pool.map(
                    lambda i: self._visit(states, number, i, self._objective(states, i)),
                    range(count),
                )
                return
            # One program measures a group of draws at the centre; the host matches them.
            for some in self._groups():
                found = self._measured(some)
                yield from pool.map(lambda i: self._visit(states, number, *i), found.items())

        with concurrent.futures.ThreadPoolExecutor(self._threads) as pool:
            ended: Iterable[Any] = visits(pool)
            if progress is not None:
                ended = progress(ended, f"round {number + 1}", count)
            results = list(ended)
        found = State.stack([state for state, _ in results])
        return found, float(sum(cost for _, cost in results))

    def _groups(self) -> list[np.ndarray]:
        """Draws that are measured together, of one size, so that one program is compiled."""
        count = self.population.count
        size = min(count, GROUP)
        return [np.minimum(np.arange(i, i + size), count - 1) for i in range(0, count, size)]

    def _measured(self, some: np.ndarray) -> dict[int, Any]:
        """The objectives of a group of draws at the centre."""
        population = self.population
        assert population.data is not None
        pair = [
            jax.tree.unflatten(population.structure, leaves)
            for leaves in (self._centre, [leaf[some] for leaf in population.means])
        ]
        found = population.data.objectives(*pair)
        return dict(zip(some.tolist(), found, strict=True))

    def _objective(self, states: State, draw: int) -> Any:
        """One draw's objective, at the centre or at the mean of the other draws."""
        population = self.population
        target, own = self._centre, [leaf[draw] for leaf in population.means]
        if self._leave_out and self._averaged:
            n = self._total
            moved = self.placed(population.means, states, draw)
            target = [(n * t - m) / max(n - 1, 1) for t, m in zip(target, moved, strict=True)]
        if population.data is not None:
            pair = [jax.tree.unflatten(population.structure, leaves) for leaves in (target, own)]
            return population.data.objective(*pair)
        if population.stds is None:
            return channels.weights(target, own)
        std = [leaf[draw] for leaf in population.stds]
        return channels.GAUSSIAN_COSTS[population.cost](target, self._spread, own, std)

    def _visit(self, states: State, number: int, draw: int, found: Any) -> tuple[State, float]:
        if isinstance(found, DataObjective):
            objective: Any = found
        else:
            objective = Pairing(self.population.symmetry, found.channels)
        if number == 0:
            result = search(objective, self._solve, seed=self._seed, kicks=0).best
        else:
            rng = np.random.default_rng((self._seed, number, self._first + draw))
            result = descend(objective, states.of(draw), self._solve, rng)
        settle(objective, result.state, self._solve)
        return result.state, found.cost(result.objective)
