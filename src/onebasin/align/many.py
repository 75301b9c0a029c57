"""Aligning many networks, or many Gaussians, to one another.

Generalised Procrustes: align every draw to the mean, average, and go on until the mean stops. Each
half-step can only lower the sum of squared distances to the mean, so the objective never rises.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align import channels
from onebasin.align.activations import DataCost, DataObjective
from onebasin.align.assignment import Assignment
from onebasin.align.checks import check_choice, check_data, check_finite, check_same_model
from onebasin.align.descent import descend
from onebasin.align.gauge import scaling_element, scaling_elements
from onebasin.align.matching import COSTS, DATA_COSTS, leaves_of
from onebasin.align.pairing import Pairing
from onebasin.align.search import search
from onebasin.align.state import State
from onebasin.posterior import Draws, Gaussian, Mixture, push_forward
from onebasin.symmetry import Element, Symmetry

REFERENCES = ("mean", "first", "leave-one-out")
Progress = Callable[[Iterable[int], str], Iterable[int]]


@dataclasses.dataclass(frozen=True, eq=False)
class ManyAlignment:
    """The outcome of `align_many`.

    Attributes:
        draws: The aligned draws (a `Mixture` if Gaussians were aligned).
        elements: The group element that moved each draw, stacked along the leading axis.
        reference: What they were aligned to: the mean of the aligned draws, or what was given.
        history: The sum of the draws' costs after each round; it never rises.
        moved: How many draws changed their permutation in each round.
        cost_name: Which cost was used.
    """

    draws: Any
    elements: Element
    reference: Any
    history: tuple[float, ...]
    moved: tuple[int, ...]
    cost_name: str

    def __str__(self) -> str:
        count = len(jax.tree.leaves(self.elements.permutations)[0]) if self.moved else 0
        gone = " -> ".join(f"{h:.6g}" for h in (self.history[0], self.history[-1]))
        return (
            f"{count} draws aligned by {self.cost_name} in {len(self.moved)} rounds: "
            f"{gone} (draws that moved by round: {', '.join(map(str, self.moved))})"
        )


def align_many(
    symmetry: Symmetry,
    draws: Any,
    *,
    reference: Any = "mean",
    cost: str = "weights",
    apply_fn: Callable[[Any, Any], Any] | None = None,
    inputs: Any = None,
    scaling: str | None = "min-mass",
    max_rounds: int = 20,
    seed: int = 0,
    solver: str | None = None,
    batch_size: int = 1000,
    progress: Progress | None = None,
) -> ManyAlignment:
    """Moves many draws into one basin.

    Args:
        symmetry: The model's group.
        draws: `Draws`, a tree of stacked parameters (leading axis = draw), or a `Mixture` of
            Gaussians for the costs that compare distributions.
        reference: "mean" (iterated), "first" (the first draw), "leave-one-out" (each draw against
            the mean of the others), or given parameters.
        cost: As for `align`.
        apply_fn: The model, for costs that look at data.
        inputs: Data for such costs.
        scaling: How scalings are removed from every draw first; None leaves them.
        max_rounds: Most rounds of aligning and averaging.
        seed: Seed of the order of visits.
        solver: Assignment solver; None takes the fastest there is.
        batch_size: Examples at a time for costs that look at data.
        progress: Wraps the loop over draws of every round, as `tqdm` does.

    Returns:
        The aligned draws with the elements that moved them.
    """
    work = _Work.of(symmetry, draws, cost, apply_fn, inputs, scaling, batch_size)
    solve = Assignment(solver, threads=1)
    given = not isinstance(reference, str)
    if not given:
        check_choice("reference", reference, REFERENCES)
    else:
        check_same_model(symmetry, "the reference", reference)
    own_gauge = scaling_element(symmetry, reference if given else work.first(), scaling)

    states = [State.identity(symmetry) for _ in range(work.count)]
    history: list[float] = []
    moved: list[int] = []
    centre = symmetry.act(own_gauge, reference) if given else work.first()
    for number in range(max_rounds):
        mode = "leave-one-out" if reference == "leave-one-out" and number else "common"
        fresh, costs = work.round(centre, states, mode, solve, seed + number, number, progress)
        changed = sum(not _same(a, b) for a, b in zip(states, fresh, strict=True))
        total = float(sum(costs))
        if number and history and total > history[-1]:
            break
        states = fresh
        history.append(total)
        moved.append(changed)
        if given or reference == "first":
            break
        centre = work.mean(states)
        if number and not changed:
            break
    elements = work.elements(states)
    if given:
        back = symmetry.inverse(own_gauge)
        elements = jax.vmap(lambda g: symmetry.compose(back, g))(elements)
    aligned = work.pushed(elements)
    if not given and reference != "first":
        centre = _mean_of(aligned)
    return ManyAlignment(
        aligned, elements, reference if given else centre, tuple(history), tuple(moved), cost
    )


def _same(a: State, b: State) -> bool:
    return all(
        np.array_equal(a.permutations[k], b.permutations[k]) for k in a.permutations
    ) and all(np.array_equal(a.signs[k], b.signs[k]) for k in a.signs)


def _mean_of(aligned: Any) -> Any:
    if isinstance(aligned, Draws):
        return aligned.mean()
    stacked = [(c.mean, c.std) for c in aligned.components]
    mean, std = jax.tree.map(lambda *x: jnp.mean(jnp.stack(x), axis=0), *stacked)
    return Gaussian(mean, std)


@dataclasses.dataclass(eq=False)
class _Work:
    """The draws after scalings are gone, and how their costs are computed."""

    symmetry: Symmetry
    cost: str
    original: Any
    gauges: Element
    means: list[np.ndarray]
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
    ) -> _Work:
        check_choice("cost", cost, COSTS)
        check_data(cost, apply_fn, inputs, DATA_COSTS)
        if isinstance(draws, Mixture):
            means = jax.tree.map(lambda *x: jnp.stack(x), *[c.mean for c in draws.components])
            spread = jax.tree.map(lambda *x: jnp.stack(x), *[c.std for c in draws.components])
        else:
            draws = draws if isinstance(draws, Draws) else Draws(draws)
            means, spread = draws.params, None
            if cost in channels.GAUSSIAN_COSTS:
                raise ValueError(
                    f"cost {cost!r} compares distributions and draws are points: pass a Mixture "
                    "of Gaussians, or use cost='weights'"
                )
        if len(jax.tree.leaves(means)[0]) == 0:
            raise ValueError("there are no draws to align: the population is empty")
        check_same_model(symmetry, "the first draw", jax.tree.map(lambda x: x[0], means))
        check_finite("the draws", means)
        gauges = scaling_elements(symmetry, means, scaling)
        act = jax.jit(jax.vmap(symmetry.act))
        scaled = act(gauges, means)
        stds = None
        if spread is not None:
            moved = jax.vmap(lambda g, m, s: push_forward(symmetry, g, Gaussian(m, s)).std)
            stds = leaves_of(moved(gauges, means, spread))
        data = None
        if cost in DATA_COSTS:
            assert apply_fn is not None
            example = jax.tree.map(lambda x: x[0], scaled)
            data = DataCost(symmetry, cost, apply_fn, example, inputs, batch_size)
        structure = jax.tree.structure(scaled)
        return cls(symmetry, cost, draws, gauges, leaves_of(scaled), stds, structure, data)

    @property
    def count(self) -> int:
        return len(self.means[0])

    def tree(self, leaves: list[np.ndarray]) -> Any:
        return jax.tree.unflatten(self.structure, leaves)

    def first(self) -> Any:
        return self.tree([leaf[0] for leaf in self.means])

    def mean(self, states: list[State]) -> Any:
        moved = jax.jit(jax.vmap(self.symmetry.act))(self._stacked(states), self.tree(self.means))
        return jax.tree.map(lambda x: np.asarray(x.mean(axis=0)), moved)

    def _spread(self, states: list[State]) -> list[np.ndarray]:
        assert self.stds is not None
        plain = [dataclasses.replace(s, signs=_unsigned(s.signs)) for s in states]
        moved = jax.jit(jax.vmap(self.symmetry.act))(self._stacked(plain), self.tree(self.stds))
        return [np.asarray(x.mean(axis=0)) for x in jax.tree.leaves(moved)]

    def _stacked(self, states: list[State]) -> Element:
        many = [s.element(self.symmetry) for s in states]
        return jax.tree.map(lambda *x: jnp.stack(x), *many)

    def elements(self, states: list[State]) -> Element:
        return jax.vmap(self.symmetry.compose)(self._stacked(states), self.gauges)

    def pushed(self, elements: Element) -> Any:
        if isinstance(self.original, Draws):
            return push_forward(self.symmetry, elements, self.original)
        each = [jax.tree.map(lambda x, i=i: x[i], elements) for i in range(self.count)]
        return push_forward(self.symmetry, each, self.original)

    def round(
        self,
        centre: Any,
        states: list[State],
        mode: str,
        solve: Assignment,
        seed: int,
        number: int,
        progress: Progress | None,
    ) -> tuple[list[State], list[float]]:
        """Every draw brought to its optimum against the centre, from where it stands."""
        spread = self._spread(states) if self.stds is not None else None
        visit = partial(self._visit, centre, spread, states, mode, solve, seed, number)
        which: Iterable[int] = range(self.count)
        if progress is not None:
            which = progress(which, f"round {number + 1}")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(visit, which))
        return [state for state, _ in results], [cost for _, cost in results]

    def _visit(
        self,
        centre: Any,
        spread: list[np.ndarray] | None,
        states: list[State],
        mode: str,
        solve: Assignment,
        seed: int,
        number: int,
        draw: int,
    ) -> tuple[State, float]:
        own = [leaf[draw] for leaf in self.means]
        target = leaves_of(centre)
        if mode == "leave-one-out":
            moved = leaves_of(
                self.symmetry.act(states[draw].element(self.symmetry), self.tree(own))
            )
            n = self.count
            target = [(n * t - m) / max(n - 1, 1) for t, m in zip(target, moved, strict=True)]
        if self.data is not None:
            objective: Any = self.data.objective(self.tree(target), self.tree(own))
            price = objective.cost
        else:
            if spread is None:
                found = channels.weights(target, own)
            else:
                assert self.stds is not None
                std = [leaf[draw] for leaf in self.stds]
                found = channels.GAUSSIAN_COSTS[self.cost](target, spread, own, std)
            objective, price = Pairing(self.symmetry, found.channels), found.cost
        if number == 0:
            result = search(objective, solve, seed=seed).best
        else:
            rng = np.random.default_rng((seed, draw))
            result = descend(objective, states[draw], solve, rng)
        if isinstance(objective, DataObjective):
            objective.settle_signs(result.state)
        return result.state, price(result.objective)


def _unsigned(signs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.ones_like(value) for name, value in signs.items()}
