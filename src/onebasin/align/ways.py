"""How many draws are matched with a centre, and within which budget."""

from __future__ import annotations

from typing import Any

from onebasin.align.budget import Budget, Sizes, Way, plan
from onebasin.align.chains import are_chains
from onebasin.align.checks import check_group, check_population
from onebasin.align.rows import are_rows
from onebasin.engine import Engine
from onebasin.posterior import Draws, Mixture
from onebasin.symmetry import Symmetry


def way_of(symmetry: Symmetry, cost: str, reference: Any) -> Way:
    """How draws are matched with a centre: all at once where the group lets them."""
    given = not isinstance(reference, str)
    if cost != "weights" or not (given or reference != "leave-one-out"):
        return "visits"
    return "rows" if are_rows(symmetry) else "chains" if are_chains(symmetry) else "visits"


def budget_of(
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
