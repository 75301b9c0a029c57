"""Sign flips inside an assignment: a unit matches its counterpart or the negative of it."""

from __future__ import annotations

import itertools

import numpy as np

Signature = frozenset[int]
"""Which sign generators of a factor flip a product."""

Gains = dict[Signature, np.ndarray]
ENUMERATED = 4


def signs_at(signs: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The signs [..., i, j, generator] at the column of every row."""
    return np.take_along_axis(signs, columns[..., None, None], axis=-2)[..., 0, :]


def best_signs(gains: Gains, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest total over `count` signs, entry by entry: (totals, signs [..., count])."""
    shape = next(iter(gains.values())).shape
    plain = gains.get(frozenset(), np.zeros(shape, np.float32))
    if count == 0:
        return plain, np.ones((*shape, 0), np.int8)
    if count == 1:
        flipped = gains.get(frozenset([0]), np.zeros(shape, np.float32))
        signs = np.where(flipped < 0, -1, 1).astype(np.int8)
        return plain + np.abs(flipped), signs[..., None]
    if count <= ENUMERATED:
        choices = all_signs(count)
        totals = np.stack([total_of(gains, choice, shape) for choice in choices])
        best = totals.argmax(axis=0)
        return totals.max(axis=0), np.stack(choices)[best]
    signs = np.ones((*shape, count), np.int8)
    for _ in range(4):
        before = signs.copy()
        for generator in range(count):
            pull = np.zeros(shape, np.float32)
            for signature, gain in gains.items():
                if generator in signature:
                    others = sorted(signature - {generator})
                    pull = pull + gain * np.prod(signs[..., others], axis=-1)
            signs[..., generator] = np.where(pull < 0, -1, 1)
        if np.array_equal(before, signs):
            break
    return total_of(gains, signs, shape), signs


def all_signs(count: int) -> list[np.ndarray]:
    """Every choice of `count` signs, none flipped first."""
    return [np.array(c, np.int8) for c in itertools.product((1, -1), repeat=count)]


def total_of(gains: Gains, signs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The total at given signs."""
    total = np.zeros(shape, np.float32)
    for signature, gain in gains.items():
        total = total + gain * np.prod(signs[..., sorted(signature)], axis=-1)
    return total
