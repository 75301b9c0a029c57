"""Many draws without their scalings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align import channels
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
from onebasin.align.gauge import scaling_elements, size_of
from onebasin.align.match import COSTS, DATA_COSTS
from onebasin.align.on_demand import ScaledLeaf
from onebasin.align.state import State
from onebasin.align.task import leaves_of
from onebasin.posterior import Draws, Gaussian, Mixture, push_forward
from onebasin.symmetry import Element, Symmetry
from onebasin.symmetry.elements import compose
from onebasin.symmetry.host import each, from_host, to_host

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
        structure = jax.tree.structure(scaled)
        leaves: Sequence[Any] = leaves_of(scaled)
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
