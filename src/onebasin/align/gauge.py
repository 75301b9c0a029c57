"""Scalings out of the way: the element that brings a network to canonical scale.

A Gaussian goes by the root mean square of its weights: its minimum mass is the least expected mass
of a network that is drawn from it. Its mean alone would not do: a unit that the data say nothing
about has a mean near zero, of no particular scale, and all of its mass is spread.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from onebasin.align.canonical import SCALINGS, canonical_element
from onebasin.align.checks import check_choice
from onebasin.posterior import Gaussian
from onebasin.symmetry import Element, Symmetry
from onebasin.symmetry.host import from_host, to_host


def scaling_element(symmetry: Symmetry, params: Any, scaling: str | None) -> Element:
    """Canonical scales of one network; the identity where nothing scales or nothing is asked."""
    if scaling is not None:
        check_choice("scaling", scaling, (*SCALINGS, None))
    if scaling is None or not symmetry.scaling_dimension():
        return symmetry.identity()
    return canonical_element(symmetry, params, scaling, None, signs=False)[0]  # type: ignore[arg-type]


def size_of(posterior: Any) -> Any:
    """The root mean square of every weight of a Gaussian; of a network, its weights."""
    if not isinstance(posterior, Gaussian):
        return posterior
    return jax.tree.map(root_mean_square, posterior.mean, posterior.variance())


def root_mean_square(mean: Any, variance: Any) -> Any:
    """Of a normal variable."""
    return (mean**2 + variance) ** 0.5


def scaling_elements(
    symmetry: Symmetry, stacked: Any, scaling: str | None, block: int | None = None
) -> Element:
    """Canonical scales of stacked draws, one element per draw, found for a block at a time."""
    count = len(jax.tree.leaves(stacked)[0])
    if scaling is not None and symmetry.scaling_dimension():
        size = block or count
        parts = [
            scaling_element(
                symmetry, jax.tree.map(lambda x, at=at: x[at : at + size], stacked), scaling
            )
            for at in range(0, count, size)
        ]
        if len(parts) == 1:
            return parts[0]
        # Of any number of parts of any size, a compiled concatenation would be compiled each time.
        return from_host(jax.tree.map(lambda *x: np.concatenate(x), *map(to_host, parts)))
    one = symmetry.identity(np)
    return jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), one)
