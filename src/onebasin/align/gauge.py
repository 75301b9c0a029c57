"""Scalings out of the way: the element that brings a network to canonical scale."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from onebasin.align.canonical import SCALINGS, canonical_element
from onebasin.align.checks import check_choice
from onebasin.symmetry import Element, Symmetry


def scaling_element(symmetry: Symmetry, params: Any, scaling: str | None) -> Element:
    """Canonical scales of one network; the identity where nothing scales or nothing is asked."""
    if scaling is not None:
        check_choice("scaling", scaling, SCALINGS)
    if scaling is None or not symmetry.scaling_dimension():
        return symmetry.identity()
    return canonical_element(symmetry, params, scaling, None, signs=False)[0]  # type: ignore[arg-type]


def scaling_elements(symmetry: Symmetry, stacked: Any, scaling: str | None) -> Element:
    """Canonical scales of stacked draws, one element per draw."""
    if scaling is not None and symmetry.scaling_dimension():
        return scaling_element(symmetry, stacked, scaling)
    count = len(jax.tree.leaves(stacked)[0])
    one = symmetry.identity(np)
    return jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), one)
