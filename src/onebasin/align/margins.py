"""How sure matches are: what each gains over the best other partner."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from typing import Any

import jax
import numpy as np

from onebasin._core.cores import num_cores, one_blas_thread
from onebasin.align.assignment import margin
from onebasin.align.descent import Objective
from onebasin.align.match import objective_for
from onebasin.align.signs import best_signs
from onebasin.align.state import State
from onebasin.align.telling import table
from onebasin.posterior import Draws
from onebasin.symmetry import Symmetry


@dataclasses.dataclass(frozen=True, eq=False)
class Margins:
    """How sure the matches of many draws with their reference are.

    Attributes:
        least: By factor, the least margin over the units of each draw, (draw,).
        median: By factor, the median margin over the units of each draw, (draw,).
        doubtful: By factor, how many units of each draw have a margin of 0 or less, (draw,).
    """

    least: dict[str, np.ndarray]
    median: dict[str, np.ndarray]
    doubtful: dict[str, np.ndarray]

    def __str__(self) -> str:
        header = ("factor", "median margin", "least margin", "units in doubt per draw")
        rows = [
            (
                name,
                f"{np.median(self.median[name]):.3g}",
                f"{least.min():.3g}",
                f"{self.doubtful[name].mean():.3g}",
            )
            for name, least in self.least.items()
        ]
        return table([header, *rows])

    def __repr__(self) -> str:
        draws = len(next(iter(self.least.values()), ()))
        return f"Margins({len(self.least)} factors, {draws} draws)"


def margins_of(
    symmetry: Symmetry, aligned: Any, reference: Any, options: tuple[Any, ...]
) -> Margins:
    """The margins of draws, or components, that stand where they were matched.

    Args:
        symmetry: The group.
        aligned: `Draws` or a `Mixture`.
        reference: What they were aligned to.
        options: Cost, model, inputs and batch size.
    """
    count = len(aligned) if isinstance(aligned, Draws) else len(aligned.components)
    identity = State.identity(symmetry)

    def of(number: int) -> dict[str, np.ndarray]:
        own = aligned[number] if isinstance(aligned, Draws) else aligned.components[number]
        return margins(objective_for(symmetry, own, reference, *options)[0], identity)

    with one_blas_thread(), concurrent.futures.ThreadPoolExecutor(num_cores()) as pool:
        found = [jax.tree.map(np.ravel, each) for each in pool.map(of, range(count))]
    names = list(found[0])
    return Margins(
        {name: np.array([each[name].min() for each in found]) for name in names},
        {name: np.array([np.median(each[name]) for each in found]) for name in names},
        {name: np.array([np.sum(each[name] <= 0) for each in found]) for name in names},
    )


def margins(objective: Objective, state: State) -> dict[str, np.ndarray]:
    """Per factor and unit, how much closer its match is than the best other partner, others held.

    Closeness is the cost's own: a large partner is no better for being large.
    """
    symmetry = objective.symmetry
    found = {}
    for name in objective.factors():
        if name not in state.permutations:
            continue
        totals, _ = best_signs(objective.gains(name, state), symmetry.factor(name).signs)
        norms = objective.moving_norms(name)
        columns = state.permutations[name]
        for axis, parent in enumerate(symmetry.parents[name]):
            if parent in state.permutations and state.permutations[parent].ndim == 1:
                norms = np.take(norms, state.permutations[parent], axis=axis)
        found[name] = margin(2 * totals - norms[..., None, :], columns)
    return found
