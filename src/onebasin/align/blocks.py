"""Rounds over many draws on an engine: a block of draws is a task.

A task reads its draws, the centre and where its draws stood, matches each draw with the centre, and
writes where they stand now, with the sum of the moved draws: the driver adds these up for the next
centre and never goes over the draws. No sum depends on where a task ran, so neither does the end.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from onebasin._core.cores import one_blas_thread
from onebasin.align.budget import Way
from onebasin.align.chains import Chains
from onebasin.align.data_cost import DataCost
from onebasin.align.population import Population, Progress, Visits
from onebasin.align.rows import Rows
from onebasin.align.state import State
from onebasin.engine import Engine, Shared, Task, run_tasks
from onebasin.store.fingerprint import fingerprint
from onebasin.store.sealed import Seals, is_sealed, seal
from onebasin.symmetry import Symmetry

MOST = 256
WEIGHTS_PER_TASK = 2**24


@dataclasses.dataclass
class Common:
    """What all tasks of an alignment read.

    Attributes:
        symmetry: The group.
        cost: The name of the cost.
        way: How draws are matched: as "rows", as "chains", or in "visits" to one after the other.
        solver: The assignment solver.
        seed: Seed of the order of visits.
        leave_out: Whether a draw is matched with the mean of the others.
        count: How many draws there are in all.
        example: A network, for its structure.
        model: apply_fn, inputs and batch size, for costs on data.
    """

    symmetry: Symmetry
    cost: str
    way: Way
    solver: str
    seed: int
    leave_out: bool
    count: int
    example: Any
    model: tuple[Callable[[Any, Any], Any], Any, int] | None

    @functools.cached_property
    def data(self) -> DataCost | None:
        """The cost on the networks at work, where it is one."""
        if self.model is None:
            return None
        apply_fn, inputs, size = self.model
        return DataCost(self.symmetry, self.cost, apply_fn, self.example, inputs, size)


@dataclasses.dataclass
class Block:
    """Some of the draws, leaf by leaf, and the number of the first."""

    first: int
    means: list[np.ndarray]
    stds: list[np.ndarray] | None
    _at_once: Rows | Chains | None = dataclasses.field(default=None, init=False)

    def visits(self, common: Common) -> Visits:
        """Rounds over these draws, one by one."""
        structure = jax.tree.structure(common.example)
        own = Population(
            common.symmetry,
            common.cost,
            None,
            common.symmetry.identity(np),
            self.means,
            self.stds,
            structure,
            common.data,
        )
        place = (self.first, common.count)
        return Visits(own, common.solver, common.seed, common.leave_out, place)

    def at_once(self, common: Common) -> Rows | Chains:
        """Rounds over all of these draws; products are not kept, as they depend on the past."""
        if self._at_once is None and common.way == "rows":
            self._at_once = Rows(common.symmetry, self.means, common.solver, None, kept_bytes=0)
        elif self._at_once is None:
            self._at_once = Chains(common.symmetry, self.means, common.solver, follows=False)
        return self._at_once


@dataclasses.dataclass(frozen=True)
class Order:
    """One task: where the draws of a block stand, which round it is, and where the result goes."""

    file: str
    question: str
    number: int
    states: State


class Blocks:
    """Rounds whose blocks are tasks.

    Args:
        engine: Where they run.
        population: The draws.
        common: What all tasks read.
    """

    def __init__(self, engine: Engine, population: Population, common: Common):
        self._engine = engine
        self._common = engine.share(common)
        weights = sum(int(np.prod(leaf.shape[1:])) for leaf in population.means)
        size = engine.networks_per_task or max(1, min(MOST, WEIGHTS_PER_TASK // max(weights, 1)))
        self._places = [
            slice(first, min(first + size, common.count)) for first in range(0, common.count, size)
        ]
        static = fingerprint(common)
        self._blocks = []
        for place in self._places:
            stds = population.stds
            block = Block(
                place.start,
                [leaf[place] for leaf in population.means],
                None if stds is None else [leaf[place] for leaf in stds],
            )
            held = fingerprint(static, place.start, block.means, block.stds)
            self._blocks.append((engine.share(block), held))

    def aim(self, leaves: list[np.ndarray], spread: Sequence[np.ndarray] = ()) -> None:
        """Takes a network, or a Gaussian with its spread, for the centre."""
        self._centre: Centre = (leaves, list(spread), False)

    def _recentre(self) -> None:
        """Takes the mean of the moved draws of the last round for the centre."""
        means, stds, _ = self._centre
        sums = [_summed(self._results, "mean", means), _summed(self._results, "std", stds)]
        count = self._places[-1].stop
        centre, spread = (
            [(total / count).astype(x.dtype) for total, x in zip(part, like, strict=True)]
            for part, like in zip(sums, (means, stds), strict=True)
        )
        self._centre = (centre, spread, True)

    def round(self, states: State, number: int, progress: Progress | None) -> tuple[State, float]:
        """Every draw brought to its optimum against the centre, and the sum of their costs."""
        if number:
            self._recentre()
        aimed = fingerprint(self._centre)
        centre = self._engine.share(self._centre)
        folder = (self._engine.directory / "align").resolve()
        seals = Seals()
        orders = []
        for place, (_, held) in zip(self._places, self._blocks, strict=True):
            own = State(
                *({k: v[place] for k, v in d.items()} for d in (states.permutations, states.signs))
            )
            question = fingerprint(held, aimed, number, own.permutations, own.signs)
            orders.append(
                Order(str(folder / f"{question[:32]}.safetensors"), question, number, own)
            )
        tasks = (
            Task(
                f"align/round-{number}/{i}",
                match_block,
                (self._common, block, centre, self._engine.share(order)),
            )
            for i, (order, (block, _)) in enumerate(zip(orders, self._blocks, strict=True))
            if not seals.is_sealed(Path(order.file), order.question)
        )
        ended = run_tasks(self._engine, tasks, title=f"round {number + 1}", total=len(orders))
        for _ in ended if progress is None else progress(ended, f"round {number + 1}", len(orders)):
            pass
        # Sums of draws are as large as networks, and there is one for each block.
        self._results = [
            seals.unseal(Path(order.file), order.question, mapped=True)[0] for order in orders
        ]
        found = [_state(result) for result in self._results]
        joined = State(
            {k: np.concatenate([s.permutations[k] for s in found]) for k in states.permutations},
            {k: np.concatenate([s.signs[k] for s in found]) for k in states.signs},
        )
        return joined, float(sum(float(result["cost"].sum()) for result in self._results))


Centre = tuple[list[np.ndarray], list[np.ndarray], bool]
"""The leaves, their spread, and whether they are a mean of draws."""


def match_block(
    common: Shared[Common], block: Shared[Block], centre: Shared[Centre], order: Shared[Order]
) -> dict[str, str]:
    """Matches the draws of a block with the centre, and writes where they stand."""
    wanted, everywhere, own = order.get(), common.get(), block.get()
    path = Path(wanted.file)
    if is_sealed(path, wanted.question):
        return {"file": path.name}
    leaves, spread, averaged = centre.get()
    # One thread for a product, here as on a worker: how a sum is cut changes its last digits.
    with one_blas_thread():
        if everywhere.way == "visits":
            visits = own.visits(everywhere)
            visits.aim_between(leaves, spread, averaged)
            found, cost = visits.round(wanted.states, wanted.number, None)
        else:
            at_once = own.at_once(everywhere)
            at_once.aim(leaves)
            found, cost = at_once.round(wanted.states, wanted.number, None)
        sums = _sums(own, everywhere, found)
    arrays = {f"permutation/{k}": v for k, v in found.permutations.items()}
    arrays |= {f"sign/{k}": v for k, v in found.signs.items()}
    seal(path, wanted.question, {**arrays, **sums, "cost": np.array(cost)})
    return {"file": path.name}


def _sums(block: Block, common: Common, found: State) -> dict[str, np.ndarray]:
    """The sums of the moved draws, in double precision."""
    visits = block.visits(dataclasses.replace(common, model=None))
    parts = {"mean": (block.means, found), "std": (block.stds or [], State(found.permutations, {}))}
    sums: dict[str, np.ndarray] = {}
    for name, (stacked, states) in parts.items():
        total = [np.zeros(leaf.shape[1:]) for leaf in stacked]
        for draw in range(len(block.means[0]) if stacked else 0):
            for x, y in zip(total, visits.placed(stacked, states, draw), strict=True):
                x += y
        sums |= {f"{name}/{i}": x for i, x in enumerate(total)}
    return sums


def _summed(results: list[dict[str, np.ndarray]], name: str, like: list[Any]) -> list[np.ndarray]:
    """The sums of all blocks, in the order of the draws."""
    return [
        functools.reduce(np.add, [result[f"{name}/{i}"] for result in results])
        for i in range(len(like))
    ]


def _state(result: dict[str, np.ndarray]) -> State:
    parts: dict[str, dict[str, np.ndarray]] = {"permutation": {}, "sign": {}}
    for name, array in result.items():
        kind, _, factor = name.partition("/")
        if kind in parts:
            parts[kind][factor] = array
    return State(parts["permutation"], parts["sign"])
