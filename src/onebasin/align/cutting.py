"""Stacked draws cut into rows: what belongs to one unit, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onebasin.align.signs import Signature
from onebasin.symmetry import Symmetry
from onebasin.symmetry.elements import Block

Key = tuple[str, Signature]
"""A factor, and which of its signs flip a row."""


def movable_sides(symmetry: Symmetry, block: Block) -> list[str]:
    """The sides of a block whose units trade places, those that depend on others last."""
    movable = [side for side in block.sides if side in symmetry.permutable]
    return sorted(movable, key=lambda side: len(symmetry.parents[side]))


def cut(
    symmetry: Symmetry, leaves: Sequence[np.ndarray]
) -> tuple[np.ndarray, dict[Key, list[np.ndarray]]]:
    """What cannot move, [draw, weight], and parts of rows, [draw, parents.., unit, weight].

    In every block at most one factor moves, together with those that it depends on.
    """
    count = len(leaves[0])
    fixed = [np.zeros((count, 0), np.float32)]
    rows: dict[Key, list[np.ndarray]] = {}
    for leaf, array in zip(symmetry.leaves, leaves, strict=True):
        if not leaf.blocks:
            fixed.append(array.reshape(count, -1))
        for block in leaf.blocks:
            box = array[(slice(None), *block.at())].reshape(count, *block.shape)
            movable = movable_sides(symmetry, block)
            if not movable:
                fixed.append(box.reshape(count, -1))
                continue
            name = movable[-1]
            chain = [*symmetry.parents[name], name]
            axes = [block.sides.index(side) + 1 for side in chain]
            units = np.moveaxis(box, axes, range(1, len(axes) + 1))
            key = name, frozenset(w.generator for w in block.signs)
            rows.setdefault(key, []).append(units.reshape(*units.shape[: len(axes) + 1], -1))
    return np.concatenate(fixed, axis=1), rows
