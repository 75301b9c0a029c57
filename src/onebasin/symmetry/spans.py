"""Where the terms of an axis lie along it."""

from __future__ import annotations

import numpy as np

from onebasin.symmetry import axes
from onebasin.symmetry.axes import Atom, Product, Shuffled

Span = tuple[tuple[int, int], tuple[int, ...] | None]
"""A range of positions, and those that count where not all of them do."""


def spans(product: Product) -> list[Span]:
    """For each term of an axis its range, and its positions where they are not that range."""
    found: list[Span] = []
    for positions in _positions(product):
        first, last = int(positions.min()), int(positions.max()) + 1
        plain = np.array_equal(positions, np.arange(first, last))
        found.append(((first, last), None if plain else tuple(positions.tolist())))
    return found


def _positions(product: Product) -> list[np.ndarray]:
    """For each term of an axis, the flat positions of its entries in row-major order."""
    found = [np.zeros(1, int)]
    for item in product:
        if isinstance(item, Atom):
            parts, length = [np.arange(item.size)], item.size
        elif isinstance(item, Shuffled):
            back, length = np.argsort(item.order), item.size
            parts = [back[p] for p in _positions(item.product)]
        else:
            parts, length = [], 0
            for segment in item.segments:
                parts += [length + p for p in _positions(segment)]
                length += axes.size(segment)
        found = [(f[:, None] * length + p).ravel() for f in found for p in parts]
    return found
