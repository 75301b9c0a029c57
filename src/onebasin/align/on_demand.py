"""Stacked draws without their scalings, made when they are looked at."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from onebasin.symmetry import Element, Symmetry
from onebasin.symmetry.elements import act_on_leaf


class ScaledLeaf:
    """One parameter of all draws, of which some are asked for at a time.

    Args:
        symmetry: The group.
        number: Which parameter.
        stacked: It as it came, (draw, ...).
        scales: The stacked elements that take scalings away, in NumPy.
    """

    def __init__(self, symmetry: Symmetry, number: int, stacked: np.ndarray, scales: Element):
        self._symmetry, self._blocks = symmetry, symmetry.leaves[number].blocks
        self._stacked, self._scales = stacked, scales
        self.shape, self.dtype = stacked.shape, stacked.dtype

    def __len__(self) -> int:
        return len(self._stacked)

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, int | np.integer):
            own = jax.tree.map(lambda x: x[index], self._scales)
            return act_on_leaf(self._symmetry, own, self._stacked[index], self._blocks, np)
        numbers = np.arange(len(self))[index]
        found = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for place, number in enumerate(numbers):
            found[place] = self[number]
        return found
