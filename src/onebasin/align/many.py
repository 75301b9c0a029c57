"""Aligning many networks, or many Gaussians, to one another.

Generalised Procrustes: align every draw to the mean, average, and go on until the mean stops. Each
half-step can only lower the sum of squared distances to the mean, so the objective never rises.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align import channels
from onebasin.align.activations import DataCost, DataObjective
from onebasin.align.assignment import Assignment, value
from onebasin.align.checks import check_choice, check_data, check_finite, check_same_model
from onebasin.align.descent import descend
from onebasin.align.gauge import scaling_element, scaling_elements
from onebasin.align.matching import COSTS, DATA_COSTS
from onebasin.align.pairing import Pairing
from onebasin.align.search import search
from onebasin.align.signs import Gains, best_signs
from onebasin.align.state import State
from onebasin.align.task import leaves_of, same
from onebasin.posterior import Draws, Gaussian, Mixture, push_forward
from onebasin.symmetry import Element, Symmetry
from onebasin.symmetry.group import Leaf

REFERENCES = ("mean", "first", "leave-one-out")
CHUNK_BYTES = 2**28
Progress = Callable[[Iterable[Any], str, int], Iterable[Any]]


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
        stacked = jax.tree.leaves(self.elements)
        count = len(stacked[0]) if stacked else 0
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
    assignment: str | None = None,
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
        assignment: Assignment solver; None takes the fastest there is.
        batch_size: Examples at a time for costs that look at data.
        progress: progress(work, text, total) wraps what is done in every round (draws, or batches
            of draws) and hands it on, as `tqdm` does.

    Returns:
        The aligned draws with the elements that moved them.
    """
    work = _Work.of(symmetry, draws, cost, apply_fn, inputs, scaling, batch_size)
    solve = Assignment(assignment, threads=1)
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
        changed = sum(not same(a, b) for a, b in zip(states, fresh, strict=True))
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
        free = scaling is not None and symmetry.scaling_dimension()
        scaled = symmetry.act_many(gauges, means) if free else means
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
        return self.tree(self._average(self.means, states))

    def _average(self, stacked: list[np.ndarray], states: list[State]) -> list[np.ndarray]:
        """The mean of the moved draws; in NumPy, where permuting is a copy."""
        total: list[np.ndarray] | None = None
        for i, state in enumerate(states):
            element = Element(state.permutations, {}, state.signs)
            moved = self.symmetry.act_on_leaves(element, [leaf[i] for leaf in stacked], np)
            if total is None:
                total = [x.astype(np.result_type(x, np.float32)) for x in moved]
            else:
                for x, y in zip(total, moved, strict=True):
                    x += y
        assert total is not None
        return [x / x.dtype.type(len(states)) for x in total]

    def _spread(self, states: list[State]) -> list[np.ndarray]:
        assert self.stds is not None
        plain = [dataclasses.replace(s, signs=_unsigned(s.signs)) for s in states]
        return self._average(self.stds, plain)

    def _stacked(self, states: list[State]) -> Element:
        permutations = {
            k: np.stack([s.permutations[k] for s in states]) for k in states[0].permutations
        }
        signs = {k: np.stack([s.signs[k] for s in states]) for k in states[0].signs}
        return Element(permutations, jax.tree.map(jnp.zeros_like, self.gauges.log_scales), signs)

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
        if self.simple and mode == "common":
            return self._round_at_once(centre, solve, number, progress)
        spread = self._spread(states) if self.stds is not None else None
        visit = partial(self._visit, centre, spread, states, mode, solve, seed, number)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            ended: Iterable[Any] = pool.map(visit, range(self.count))
            if progress is not None:
                ended = progress(ended, f"round {number + 1}", self.count)
            results = list(ended)
        return [state for state, _ in results], [cost for _, cost in results]

    @functools.cached_property
    def simple(self) -> bool:
        """Whether one batch of products decides all: points, one movable side per block."""
        if self.data is not None or self.stds is not None:
            return False
        movable = self.symmetry.permutable
        return all(
            "permutation" in f.kinds and len(f.index) == 1 and f.signs <= 1
            for f in self.symmetry.factors
        ) and all(
            sum(side in movable for side in block.sides) <= 1
            for leaf in self.symmetry.leaves
            for block in leaf.blocks
        )

    def _round_at_once(
        self, centre: Any, solve: Assignment, number: int, progress: Progress | None
    ) -> tuple[list[State], list[float]]:
        """All draws of a chunk in one product per block, then their assignments on all threads."""
        target = leaves_of(centre)
        constant = float(sum(np.sum(np.square(x), dtype=np.float64) for x in target))
        size = max(1, CHUNK_BYTES // max(4 * f.size**2 for f in self.symmetry.factors))
        chunks: Iterable[int] = range(0, self.count, size)
        if progress is not None:
            chunks = progress(chunks, f"round {number + 1}", -(-self.count // size))
        every = Assignment(solve.name)
        states: list[State] = []
        costs: list[float] = []
        for start in chunks:
            own = [leaf[start : start + size] for leaf in self.means]
            gains: dict[str, Gains] = {}
            fixed = np.zeros(len(own[0]))
            for leaf, a, b in zip(self.symmetry.leaves, target, own, strict=True):
                fixed += _batched(self.symmetry, leaf, a, b, gains)
            found = [State.identity(self.symmetry) for _ in range(len(own[0]))]
            gained = fixed
            for name, parts in gains.items():
                totals, signs = best_signs(parts, self.symmetry.factor(name).signs)
                columns = every(totals)
                gained = gained + value(totals, columns)
                for i, state in enumerate(found):
                    state.permutations[name] = columns[i]
                    if self.symmetry.factor(name).signs:
                        state.signs[name] = signs[i][np.arange(len(columns[i])), columns[i]]
            norms = sum(np.square(x).reshape(len(x), -1).sum(axis=1, dtype=np.float64) for x in own)
            costs += list(constant + norms - 2 * gained)
            states += found
        return states, costs

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


def _batched(
    symmetry: Symmetry, leaf: Leaf, a: np.ndarray, b: np.ndarray, gains: dict[str, Gains]
) -> np.ndarray:
    """Adds a leaf's products to the gains [draw, i, j]; returns what no permutation changes."""
    fixed = np.zeros(len(b))
    if not leaf.blocks:
        return np.tensordot(b.reshape(len(b), -1), a.ravel(), axes=1).astype(np.float64)
    for block in leaf.blocks:
        at = block.at()
        x = a[at].reshape(block.shape)
        y = np.stack([each[at].reshape(block.shape) for each in b]) if len(leaf.blocks) > 1 else b
        y = y.reshape(len(b), *block.shape)
        movable = [i for i, side in enumerate(block.sides) if side in symmetry.permutable]
        if not movable:
            fixed += y.reshape(len(b), -1) @ x.ravel()
            continue
        axis = movable[0]
        n = block.shape[axis]
        rows = np.moveaxis(y, axis + 1, 1).reshape(len(b) * n, -1)
        product = (rows @ np.moveaxis(x, axis, 0).reshape(n, -1).T).reshape(len(b), n, n)
        signature = frozenset(w.generator for w in block.signs)
        held = gains.setdefault(block.sides[axis], {})
        product = product.transpose(0, 2, 1)
        held[signature] = held[signature] + product if signature in held else product
    return fixed


def _unsigned(signs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.ones_like(value) for name, value in signs.items()}
