"""One alignment problem under whatever scales its two sides are given."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from onebasin.align import channels
from onebasin.align.data_cost import DataCost
from onebasin.align.descent import Objective
from onebasin.align.gauge import scaling_element, size_of
from onebasin.align.nearest import gain_of_scales
from onebasin.align.pairing import Pairing
from onebasin.align.search import Found
from onebasin.align.solvers import solve
from onebasin.align.state import State
from onebasin.align.task import Task, mean_of, parts_of, push
from onebasin.symmetry import Element, Symmetry

WEIGHT_COSTS = ("weights", *channels.GAUSSIAN_COSTS)
DATA_COSTS = ("activations", "correlation", "contributions", "preactivations")
COSTS = (*WEIGHT_COSTS, *DATA_COSTS)
DISTANCES = ("weights", "wasserstein")
COST_OPTIONS = ("cost", "apply_fn", "inputs", "batch_size")
# The part of a distance that scales must promise to take away, of matched units and of units that
# they may keep from being matched; and the part that rounding may be.
WORTHWHILE = 1e-3
ASTRAY = 2e-2
LAST_BITS = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Match:
    """An alignment problem under scales that were taken off both sides.

    Attributes:
        params: What is moved, and `to` the reference, as they came.
        gauge: The scales that `params` has in the task; None for its own.
        own_gauge: The scales that the reference has there; None for its own.
        task: The problem under these scales.
        price: The cost as a function of the objective.
        shared: What tasks under all scales have in common.
    """

    params: Any
    to: Any
    gauge: Element | None
    own_gauge: Element | None
    task: Task
    price: Callable[[float], float]
    shared: dict[str, Any]

    @classmethod
    def under(cls, scaling: str | None, params: Any, to: Any, shared: dict[str, Any]) -> Match:
        """The problem in canonical scales, or as it is."""
        symmetry = shared["symmetry"]
        if scaling is None or not symmetry.scaling_dimension():
            return cls._made(params, to, None, None, shared)
        gauges = [scaling_element(symmetry, size_of(q), scaling) for q in (params, to)]
        return cls._made(params, to, gauges[0], gauges[1], shared)

    @classmethod
    def _made(
        cls,
        params: Any,
        to: Any,
        gauge: Element | None,
        own_gauge: Element | None,
        shared: dict[str, Any],
    ) -> Match:
        symmetry = shared["symmetry"]
        scaled = params if gauge is None else push(symmetry, gauge, params)
        target = to if own_gauge is None else push(symmetry, own_gauge, to)
        options = (shared[name] for name in COST_OPTIONS)
        objective, price = objective_for(symmetry, scaled, target, *options)
        task = Task(objective=objective, moving=scaled, reference=target, **shared)
        return cls(params, to, gauge, own_gauge, task, price, shared)

    def element(self, state: State) -> Element:
        """What moves the parameters as they came onto the reference as it came."""
        symmetry = self.task.symmetry
        element = state.element(symmetry)
        if self.gauge is not None:
            element = symmetry.compose(element, self.gauge)
        if self.own_gauge is not None:
            element = symmetry.compose(symmetry.inverse(self.own_gauge), element)
        return element

    def moved(self, state: State) -> tuple[Element, Any]:
        """That element, and what it makes of the parameters."""
        element = self.element(state)
        return element, push(self.task.symmetry, element, self.params)

    def cost(self, state: State) -> float:
        """The cost of a state."""
        return self.price(self.task.objective.objective(state))

    def unscaled(self, state: State) -> Match:
        """The problem with the reference as it came, under the scales that take a state there."""
        symmetry = self.task.symmetry
        back = symmetry.inverse(state.element(symmetry))
        gauge = symmetry.compose(back, self.element(state))
        return self._made(self.params, self.to, gauge, None, self.shared)


def scales_matter(match: Match, found: Found, moved: Any) -> bool:
    """Whether scales keep what was moved from its reference."""
    pairs = list(zip(parts_of(moved), parts_of(match.to), strict=True))
    if match.task.cost == "weights":
        pairs = pairs[:1]
    gain = gain_of_scales(match.task.symmetry, pairs)
    rounding = LAST_BITS * abs(match.price(0.0))
    distance = match.price(found.best.objective)
    return gain.matched > WORTHWHILE * distance + rounding or (
        gain.at_best > ASTRAY * distance + rounding
    )


def nearest(match: Match, found: Found, canonical: Match) -> tuple[Match, Found]:
    """The nearest of what was matched as it is, and what is matched in canonical scales."""
    ended = [(match, found)]
    for each in (solve(canonical.task, "descent", None, None), found):
        back = canonical.unscaled(each.best.state)
        ended.append((back, back.task.found(each.best.state, each.start, each.best.sweeps)))
    return min(ended, key=lambda each: each[0].price(each[1].best.objective))


def objective_for(
    symmetry: Symmetry,
    moving: Any,
    reference: Any,
    cost: str,
    apply_fn: Callable[[Any, Any], Any] | None,
    inputs: Any,
    batch_size: int,
) -> tuple[Objective, Callable[[float], float]]:
    """The objective of a cost, and the cost as a function of it."""
    if cost in DATA_COSTS:
        assert apply_fn is not None
        at_work = DataCost(symmetry, cost, apply_fn, mean_of(moving), inputs, batch_size)
        data = at_work.objective(mean_of(reference), mean_of(moving))
        return data, data.cost
    own, other = parts_of(reference), parts_of(moving)
    if cost == "weights":
        found = channels.weights(own[0], other[0])
    else:
        found = channels.GAUSSIAN_COSTS[cost](*own, *other)
    return Pairing(symmetry, found.channels, cost in DISTANCES, found.most), found.cost
