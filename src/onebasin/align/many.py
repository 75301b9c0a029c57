"""Aligning many networks, or many Gaussians, to one another.

Generalised Procrustes: align every draw to the mean, average, and go on until the mean stops. Each
half-step can only lower the sum of squared distances to the mean, so the objective never rises.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from onebasin.align.assignment import Assignment
from onebasin.align.blocks import Blocks, Common
from onebasin.align.budget import Budget, Sizes, Way, plan
from onebasin.align.certificate import Outcome
from onebasin.align.chains import Chains, are_chains
from onebasin.align.checks import (
    check_choice,
    check_group,
    check_population,
    check_posterior,
)
from onebasin.align.gauge import scaling_element, size_of
from onebasin.align.margins import Margins, margins_of
from onebasin.align.population import Population, Progress, Visits, mean_of
from onebasin.align.rows import Rows, are_rows
from onebasin.align.state import State
from onebasin.align.task import leaves_of, push
from onebasin.align.task import mean_of as network_of
from onebasin.engine import Engine
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.symmetry import Element, Symmetry

REFERENCES = ("mean", "first", "leave-one-out")
SETTLED = 5e-4
"""A tolerance: rounds that gain less than this share do not change what is made of the draws."""


class Rounds(Protocol):
    """What goes on between the draws and a centre; states are stacked, one per draw."""

    def aim(self, leaves: list[np.ndarray], spread: Sequence[np.ndarray] = ()) -> None: ...
    def round(
        self, states: State, number: int, progress: Progress | None
    ) -> tuple[State, float]: ...


@dataclasses.dataclass(frozen=True, eq=False)
class ManyAlignment(Outcome):
    """The outcome of `align_many`.

    Attributes:
        draws: The aligned draws (a `Mixture` if Gaussians were aligned).
        elements: The group element that moved each draw, stacked along the leading axis.
        reference: What they were aligned to: the mean of the aligned draws, or what was given.
        history: The sum of the draws' costs after each round; it never rises.
        moved: How many draws changed their permutation in each round.
        cost_name: Which cost was used.
        measure: Works out the `margins`.
    """

    made_by = "align_many"
    holds = "draws"

    draws: Any
    elements: Element
    reference: Any
    history: tuple[float, ...]
    moved: tuple[int, ...]
    cost_name: str
    measure: Callable[[Any, Any], Margins]

    def margins(self) -> Margins:
        """How much each draw's matches gain over the best other partners.

        By the cost that was used, with the reference where it ended. A factor of small or negative
        margins is one whose units could as well have been relabelled: what is made of the aligned
        draws rests on chance there. It takes about as long as a round of matching draw by draw.
        """
        return self.measure(self.draws, self.reference)

    def __str__(self) -> str:
        many = self.draws
        count = len(many) if isinstance(many, Draws) else len(many.components)
        first, last = (f"{h:.6g}" for h in (self.history[0], self.history[-1]))
        rounds = len(self.moved)
        if rounds == 1:
            gone = f"in one round: a sum of costs of {last}"
        else:
            gone = (
                f"in {rounds} rounds: a sum of costs of {first} after the first, {last} at the end"
            )
        moved = ", ".join(map(str, self.moved))
        return (
            f"{count} draws aligned by {self.cost_name} {gone} (draws that moved by round: {moved})"
        )

    def __repr__(self) -> str:
        return (
            f"ManyAlignment({self.draws!r}, {self.cost_name}: {self.history[0]:.6g} -> "
            f"{self.history[-1]:.6g} in {len(self.moved)} rounds)"
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
    max_rounds: int = 50,
    tolerance: float = 0.0,
    first: int = 0,
    seed: int = 0,
    assignment: str | None = None,
    batch_size: int = 1000,
    memory: int | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> ManyAlignment:
    """Moves many draws into one basin.

    Args:
        symmetry: The model's group.
        draws: `Draws`, a tree of stacked parameters (leading axis = draw), or a `Mixture` of
            Gaussians for the costs that compare distributions.
        reference: "mean" (iterated), "first" (one of the draws), "leave-one-out" (each draw against
            the mean of the others), or given parameters, or a given `Gaussian`: the costs that
            compare distributions need that.
        cost: As for `align`.
        apply_fn: The model, for costs that look at data.
        inputs: Data for such costs.
        scaling: How scalings are removed from every draw first; None leaves them.
        max_rounds: Most rounds of aligning and averaging.
        tolerance: Ends the rounds when one lowers the sum of costs by less than this share; 0 goes
            on until no draw moves, or a round would raise the sum, as it may where draws are
            matched on data.
        first: The draw that all are matched to in the first round: where the mean ends depends on
            it, and the objective hardly tells a good end from a bad one.
        seed: Seed of the order of visits.
        assignment: Assignment solver; None takes the fastest there is.
        batch_size: Examples at a time for costs that look at data.
        memory: Bytes to work in, beside the draws that came and those that are returned: what does
            not fit is made again when it is looked at, which takes longer and changes nothing.
            Costs on data take what 16 networks at work take, on top. None keeps whatever makes it
            quicker, some three times what the draws take.
        progress: progress(work, text, total) wraps what is done in every round (draws, or batches
            of draws) and hands it on, as `tqdm` does.
        engine: Where blocks of draws run as tasks; None for here. The mean then moves once a
            round, not after every few draws: rounds are more, and may end elsewhere.

    Returns:
        The aligned draws with the elements that moved them.
    """
    budget = None
    if memory is not None:
        budget = _budget(symmetry, draws, memory, scaling, engine, (cost, reference))
    population = Population.of(
        symmetry, draws, cost, apply_fn, inputs, scaling, batch_size, budget=budget
    )
    return align_population(
        population,
        budget=budget,
        reference=reference,
        apply_fn=apply_fn,
        inputs=inputs,
        scaling=scaling,
        max_rounds=max_rounds,
        tolerance=tolerance,
        first=first,
        seed=seed,
        assignment=assignment,
        batch_size=batch_size,
        progress=progress,
        engine=engine,
    )


def way_of(symmetry: Symmetry, cost: str, reference: Any) -> Way:
    """How draws are matched with a centre: all at once where the group lets them."""
    given = not isinstance(reference, str)
    if cost != "weights" or not (given or reference != "leave-one-out"):
        return "visits"
    return "rows" if are_rows(symmetry) else "chains" if are_chains(symmetry) else "visits"


def _budget(
    symmetry: Symmetry,
    draws: Any,
    memory: int,
    scaling: str | None,
    engine: Engine | None,
    task: tuple[str, Any],
) -> Budget:
    """How to stay within the memory."""
    if engine is not None:
        raise ValueError(
            "got memory= with engine=, whose workers each hold a block of draws: leave memory= out "
            "and give the engine networks_per_task="
        )
    if isinstance(draws, Mixture):
        raise ValueError(
            "got memory= with a Mixture, whose components are stacked as a whole: leave it out"
        )
    check_group(symmetry)
    check_population(symmetry, draws)
    stacked = draws.params if isinstance(draws, Draws) else Draws(draws).params
    scales = scaling is not None and symmetry.scaling_dimension() > 0
    return plan(Sizes.of(symmetry, stacked), memory, way_of(symmetry, *task), scales)


def align_population(
    population: Population,
    *,
    budget: Budget | None = None,
    reference: Any = "mean",
    apply_fn: Callable[[Any, Any], Any] | None = None,
    inputs: Any = None,
    scaling: str | None = "min-mass",
    max_rounds: int = 50,
    tolerance: float = 0.0,
    first: int = 0,
    seed: int = 0,
    assignment: str | None = None,
    batch_size: int = 1000,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> ManyAlignment:
    """Rounds of matching and averaging, with the arguments of `align_many`."""
    symmetry, cost = population.symmetry, population.cost
    solver = Assignment(assignment).name
    given = not isinstance(reference, str)
    if not 0 <= first < population.count:
        raise ValueError(
            f"got first={first}, expected the number of a draw below {population.count}"
        )
    if max_rounds < 1:
        raise ValueError(f"got max_rounds={max_rounds}, expected at least one")
    centre, spread = population.draw(first), population.spread(first)
    if given:
        check_posterior(symmetry, "the reference", reference, cost)
        gauge = scaling_element(symmetry, size_of(reference), scaling)
        target = push(symmetry, gauge, reference)
        centre = leaves_of(network_of(target))
        spread = [np.sqrt(v) for v in leaves_of(target.variance())] if spread else []
    else:
        check_choice("reference", reference, REFERENCES)
    alone = given or reference == "first"
    rounds: Rounds
    way = way_of(symmetry, cost, reference)
    limits: dict[str, Any] = {}
    if budget is not None:
        limits = {
            "rows": {"lean": budget.lean, "kept_bytes": budget.kept, "threads": budget.threads},
            "chains": {"lean": budget.lean, "part": budget.part},
            "visits": {"threads": budget.threads},
        }[way]
    if engine is not None:
        example = jax.tree.unflatten(population.structure, population.draw(0))
        model = (apply_fn, inputs, batch_size) if apply_fn and population.data else None
        leave_out = reference == "leave-one-out"
        common = Common(
            symmetry, cost, way, solver, seed, leave_out, population.count, example, model
        )
        rounds = Blocks(engine, population, common)
    elif way == "rows":
        rounds = Rows(symmetry, population.means, solver, None if alone else first, **limits)
    elif way == "chains":
        rounds = Chains(symmetry, population.means, solver, **limits)
    else:
        rounds = Visits(population, solver, seed, reference == "leave-one-out", **limits)
    rounds.aim(centre, spread)
    states = population.identity()
    history: list[float] = []
    moved: list[int] = []
    for number in range(max_rounds):
        fresh, total = rounds.round(states, number, progress)
        # A difference of large numbers: below 0 it is rounding.
        total = max(total, 0.0)
        if history and total > history[-1]:
            break
        moved.append(states.differences(fresh))
        history.append(total)
        states = fresh
        if alone or (number and not moved[-1]):
            break
        if number and history[-2] - history[-1] < tolerance * abs(history[-2]):
            break
    # What they kept is as large as the draws that are made next, in memory that can be theirs.
    del rounds
    elements = population.elements(states)
    if given and symmetry.factors:
        back = symmetry.inverse(gauge)
        elements = jax.vmap(lambda g: symmetry.compose(back, g))(elements)
    aligned = population.moved(elements)
    if reference == "first":
        reference = jax.tree.unflatten(population.structure, centre)
        if spread:
            reference = Gaussian(reference, jax.tree.unflatten(population.structure, spread))
    elif not given:
        reference = mean_of(aligned)
    options = cost, apply_fn, inputs, batch_size
    measure = functools.partial(margins_of, symmetry, options=options)
    return ManyAlignment(aligned, elements, reference, tuple(history), tuple(moved), cost, measure)
