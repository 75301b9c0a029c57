"""Many draws without their scalings, and rounds in which each is matched on its own."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin._core.cores import num_cores
from onebasin.align import channels
from onebasin.align.assignment import Assignment
from onebasin.align.budget import Budget
from onebasin.align.checks import (
    check_choice,
    check_data,
    check_finite,
    check_group,
    check_population,
    check_same_model,
)
from onebasin.align.data_cost import DataCost
from onebasin.align.data_objective import DataObjective
from onebasin.align.descent import descend
from onebasin.align.gauge import scaling_elements, size_of
from onebasin.align.match import COSTS, DATA_COSTS
from onebasin.align.on_demand import ScaledLeaf
from onebasin.align.pairing import Pairing
from onebasin.align.search import search
from onebasin.align.settling import settle
from onebasin.align.state import State
from onebasin.align.task import leaves_of
from onebasin.posterior import Draws, Gaussian, Mixture, push_forward
from onebasin.symmetry import Element, Symmetry
from onebasin.symmetry.elements import compose
from onebasin.symmetry.host import each, from_host, to_host

# Draws that one program measures at work; their products lie in memory together.
GROUP = 16
Progress = Callable[[Iterable[Any], str, int], Iterable[Any]]


@dataclasses.dataclass(eq=False)
class Population:
    """The draws after scalings are gone.

    Attributes:
        symmetry: The group.
        cost: The name of the cost.
        original: The draws as they came, `Draws` or a `Mixture`.
        gauges: The elements that took the scalings away, stacked.
        means: Stacked parameters without scalings, leaf by leaf; or what makes some of them.
        stds: Their standard deviations, where the cost compares Gaussians.
        structure: The tree that the leaves come from.
        data: The cost on the networks at work, where it is one.
    """

    symmetry: Symmetry
    cost: str
    original: Any
    gauges: Element
    means: Sequence[Any]
    stds: list[np.ndarray] | None
    structure: Any
    data: DataCost | None

    @classmethod
    def of(
        cls,
        symmetry: Symmetry,
        draws: Any,
        cost: str,
        apply_fn: Callable[[Any, Any], Any] | None,
        inputs: Any,
        scaling: str | None,
        batch_size: int,
        sizes: Any = None,
        budget: Budget | None = None,
    ) -> Population:
        """Checks the draws and takes their scalings away: those of `sizes`, if it is given.

        Within a budget that is lean they are taken away again whenever a draw is looked at.
        """
        check_group(symmetry)
        check_population(symmetry, draws)
        check_choice("cost", cost, COSTS)
        check_data(cost, apply_fn, inputs, DATA_COSTS)
        if isinstance(draws, Mixture):
            means = _stack([c.mean for c in draws.components])
            spread = _stack([jax.tree.map(jnp.sqrt, c.variance()) for c in draws.components])
            sizes = _stack([size_of(c) for c in draws.components])
        else:
            draws = draws if isinstance(draws, Draws) else Draws(draws)
            means, spread = draws.params, None
            sizes = means if sizes is None else sizes
            if cost in channels.GAUSSIAN_COSTS:
                raise ValueError(
                    f"cost {cost!r} compares distributions and draws are points: pass a Mixture "
                    "of Gaussians, or use cost='weights'"
                )
        means, spread = to_host(means), to_host(spread)
        if len(jax.tree.leaves(means)[0]) == 0:
            raise ValueError("there are no draws to align: the population is empty")
        check_same_model(symmetry, "the first draw", jax.tree.map(lambda x: x[0], means))
        check_finite("the draws", means)
        check_finite("the spread of the draws", spread)
        block = None if budget is None else budget.block
        gauges = scaling_elements(symmetry, to_host(sizes), scaling, block)
        free = scaling is not None and symmetry.scaling_dimension()
        lean = free and budget is not None and budget.lean
        scaled = symmetry.act_many(gauges, means) if free and not lean else means
        stds = None
        if cost in channels.GAUSSIAN_COSTS:
            plain = gauges._replace(signs={})
            stds = leaves_of(symmetry.act_many(plain, spread) if free else spread)
        data = None
        if cost in DATA_COSTS:
            assert apply_fn is not None
            example = jax.tree.map(lambda x: x[0], scaled)
            if lean:
                one = jax.tree.map(lambda x: x[0], gauges)
                example = symmetry.act(one, example)
            data = DataCost(symmetry, cost, apply_fn, example, inputs, batch_size)
        structure, leaves = jax.tree.structure(scaled), leaves_of(scaled)
        if lean:
            scales = to_host(gauges)
            leaves = [ScaledLeaf(symmetry, n, x, scales) for n, x in enumerate(leaves)]
        return cls(symmetry, cost, draws, gauges, leaves, stds, structure, data)

    @property
    def count(self) -> int:
        return len(self.means[0])

    def draw(self, number: int) -> list[np.ndarray]:
        """One draw, leaf by leaf."""
        return [leaf[number] for leaf in self.means]

    def spread(self, number: int) -> list[np.ndarray]:
        """The standard deviations of one draw, where the cost compares them; else none."""
        return [leaf[number] for leaf in self.stds or []]

    def identity(self) -> State:
        """The state, stacked, in which no draw has moved."""
        one = State.identity(self.symmetry)
        return State(*(_repeated(kind, self.count) for kind in (one.permutations, one.signs)))

    def elements(self, states: State) -> Element:
        """The elements that take the draws as they came to where the states put them."""
        if not self.symmetry.factors:
            return self.gauges
        gauges = to_host(self.gauges)
        scales = jax.tree.map(np.zeros_like, gauges.log_scales)
        join = each(lambda a, b: compose(self.symmetry, a, b, np), np)
        return from_host(join(Element(states.permutations, scales, states.signs), gauges))

    def moved(self, elements: Element) -> Any:
        """The draws as they came, moved."""
        if isinstance(self.original, Draws):
            return push_forward(self.symmetry, elements, self.original)
        one_by_one = [jax.tree.map(lambda x, i=i: x[i], elements) for i in range(self.count)]
        return push_forward(self.symmetry, one_by_one, self.original)


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


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def _repeated(arrays: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    return {k: np.repeat(v[None], count, axis=0) for k, v in arrays.items()}


def mean_of(moved: Any) -> Any:
    """The mean of aligned draws: parameters, or for a mixture the Gaussian of mean and std."""
    if isinstance(moved, Draws):
        return moved.mean()
    stacked = [(c.mean, jax.tree.map(jnp.sqrt, c.variance())) for c in moved.components]
    mean, std = jax.tree.map(lambda *x: jnp.mean(jnp.stack(x), axis=0), *stacked)
    return Gaussian(mean, std)
