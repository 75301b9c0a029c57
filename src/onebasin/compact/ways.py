"""How draws may be aligned before they are fitted, and what is left to choose."""

from __future__ import annotations

import numpy as np

from onebasin.compact.selecting import Way
from onebasin.symmetry import Symmetry

NUM_STARTS = 4


def settled(scaling: str | None) -> str | None:
    """The scaling where nothing chooses between several."""
    return "min-mass" if scaling == "auto" else scaling


def wanted(
    symmetry: Symmetry,
    cost: str | None,
    scaling: str | None,
    covariance: str | None,
    temperature: float | None,
) -> tuple[str, ...]:
    """What is left to be chosen."""
    open_to = {
        "cost": cost is None,
        "scaling": scaling == "auto" and symmetry.scaling_dimension() > 0,
        "covariance": covariance is None,
        "temperature": temperature is None,
        "stretch of the mean": True,
    }
    return tuple(name for name, is_open in open_to.items() if is_open)


def ways(
    symmetry: Symmetry, count: int, cost: str | None, scaling: str | None, num_starts: int
) -> list[Way]:
    """How to try to align.

    Contributions do not see the scaling, and cost the most: beside weights they get one start.
    """
    auto = scaling == "auto" and symmetry.scaling_dimension()
    gauges = ("min-mass", "unit-norm") if auto else (settled(scaling),)
    costs = ("weights", "contributions") if cost is None else (cost,)
    starts = np.unique(np.linspace(0, count - 1, num_starts + 1)[:-1].astype(int)).tolist()
    return [
        Way(name, gauge, first)
        for name in costs
        for gauge in (gauges[:1] if name == "contributions" else gauges)
        for first in (starts if name == costs[0] else starts[:1])
    ]
