"""Elements that show what is wrong with a group."""

from __future__ import annotations

import numpy as np

from onebasin.symmetry.elements import Element
from onebasin.symmetry.group import Factor, Symmetry

# A factor of 3,000: beyond the clips and below the thresholds and epsilons that models have.
FARTHEST = 8.0


def random_element(
    symmetry: Symmetry, rng: np.random.Generator, previous: Element | None
) -> Element:
    """Like `Symmetry.random`, in NumPy: nothing to compile for models with many factors.

    The first time a permutation leaves no unit where it was, lest it be one that is not like the
    others; that is one cycle, so the next time it is any but the identity. A sign that was not
    flipped last time is flipped now.
    """
    identity = symmetry.identity(np)

    def permute(plain: np.ndarray) -> np.ndarray:
        drawn = rng.permuted(plain, axis=-1)
        if previous is not None:
            same = np.all(drawn == plain, axis=-1, keepdims=True)
            return np.where(same, np.roll(plain, 1, axis=-1), drawn)
        cycle = np.empty_like(plain)
        np.put_along_axis(cycle, drawn, np.roll(drawn, 1, axis=-1), axis=-1)
        return cycle

    def flip(name: str, plain: np.ndarray) -> np.ndarray:
        if previous is not None:
            return -previous.signs[name]
        if plain.shape[-2:-1] in ((), (1,)):
            return -plain
        return rng.choice(np.array([-1, 1], plain.dtype), plain.shape)

    return Element(
        {k: permute(v) for k, v in identity.permutations.items()},
        {k: 0.5 * rng.standard_normal(v.shape) for k, v in identity.log_scales.items()},
        {k: flip(k, v) for k, v in identity.signs.items()},
    )


def far_element(symmetry: Symmetry, rng: np.random.Generator, room: float) -> Element:
    """An element of scales alone, as large as parameters can be whose logarithms have that room."""
    degree = max(
        (sum(abs(w.exponent) for w in b.scalings) for leaf in symmetry.leaves for b in leaf.blocks),
        default=0.0,
    )
    most = min(FARTHEST, room / max(degree, 1.0))

    def draw(plain: np.ndarray) -> np.ndarray:
        size = rng.uniform(0.75 * most, most, plain.shape)
        return size * rng.choice([-1, 1], plain.shape)

    identity = symmetry.identity(np)
    return identity._replace(log_scales={k: draw(v) for k, v in identity.log_scales.items()})


def times(element: Element, number: float) -> Element:
    """An element of scales alone, some times over."""
    scales = {name: number * values for name, values in element.log_scales.items()}
    return element._replace(log_scales=scales)


def only(element: Element, factor: Factor) -> Element:
    """The part of an element that belongs to one factor."""
    name = factor.name
    return Element(*({k: own[k] for k in own if k == name} for own in element))
