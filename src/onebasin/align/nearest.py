r"""Whether scales are what keeps two matched networks apart.

For a unit of the moved network with masses a_p of its weights of exponent p, and inner products b_p
with those of its partner, a log-scale delta changes the squared distance by

    sum_p a_p (exp(2 p delta) - 1) - 2 b_p (exp(p delta) - 1).

Asked is the delta that gives the unit its partner's balance of masses, not the one that makes this
least: that would shrink whatever is not matched well.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from onebasin.align.canonical import minimum_mass_recipe
from onebasin.align.minimum_mass import Row, pull, unit_step
from onebasin.align.touches import Box, Touch
from onebasin.symmetry import Symmetry

Leaves = Sequence[np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class ScaleGain:
    """How much nearer scales could bring what was moved to its reference, in squared distance.

    Attributes:
        matched: If each unit takes over the balance of the partner that it has.
        at_best: If partners are those that balances suggest, and all that keeps them apart. A
            match that scales led astray shows here.
    """

    matched: float
    at_best: float


def gain_of_scales(symmetry: Symmetry, pairs: Sequence[tuple[Leaves, Leaves]]) -> ScaleGain:
    """How much nearer moved units come if each takes over a partner's balance of masses.

    Every factor is looked at by itself, so that this is an estimate.

    Args:
        symmetry: The group.
        pairs: Moved leaves and those of the reference, unit by unit: weights, or means and standard
            deviations.
    """
    recipe = minimum_mass_recipe(symmetry)
    boxes = recipe.boxes
    matched = 0.0
    # What a minimum of mass leaves open, no balance tells.
    at_best = math.inf if recipe.leftover else 0.0
    for row in recipe.rows:
        own, other, both = (
            np.stack([_products(boxes[n], t, pairs, *sides) for n, t in row.terms], axis=-1)
            for sides in ((0, 0), (1, 1), (0, 1))
        )
        # Units without weights on one side have no balance: what is not finite is left out.
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = (_to_balance(np.log(mass), row) for mass in (own, other))
        scale = np.exp(np.nan_to_num(first - second, nan=0.0) @ row.patterns.T)
        matched += float(np.sum(own * (1 - scale**2) - 2 * both * (1 - scale)))
        scale = np.exp(np.nan_to_num(_apart(first, second), nan=0.0) @ row.patterns.T)
        at_best += float(np.sum(own * (1 - scale) ** 2))
    return ScaleGain(matched, at_best)


def _apart(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Log-scales [..., unit, generator] less those of the unit of equal rank on the other side."""
    if first.ndim == 1:
        return first - second
    order = np.argsort(first, axis=-2)
    apart = np.empty_like(first)
    ranked = np.take_along_axis(first, order, -2) - np.sort(second, axis=-2)
    np.put_along_axis(apart, order, ranked, -2)
    return apart


def _to_balance(logs: np.ndarray, row: Row) -> np.ndarray:
    """The log-scales that bring the masses of every unit into balance; NaN where none do."""
    pulled, free = pull(logs, row.patterns, np)
    return np.where(free, unit_step(logs, row.patterns, pulled, free, np) / row.share, np.nan)


def _products(
    box: Box, touch: Touch, pairs: Sequence[tuple[Leaves, Leaves]], first: int, second: int
) -> np.ndarray:
    """Inner products of a box with itself, or with that of the other network, by unit."""
    total = np.zeros([box.block.shape[place] for place in touch.places])
    for pair in pairs:
        a, b = (pair[n][box.leaf][box.block.at()].reshape(box.block.shape) for n in (first, second))
        axes = list(range(a.ndim))
        total += np.einsum(a, axes, b, axes, list(touch.places))
    return total
