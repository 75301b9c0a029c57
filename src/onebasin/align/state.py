"""Where a search stands: a permutation and signs for every factor, in NumPy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry import Element, Symmetry


@dataclasses.dataclass(eq=False, slots=True)
class State:
    """Permutations [parents.., n] and signs [index.., m] by factor name."""

    permutations: dict[str, np.ndarray]
    signs: dict[str, np.ndarray]

    @classmethod
    def identity(cls, symmetry: Symmetry) -> State:
        element = symmetry.identity(np)
        return cls(
            {k: np.array(v) for k, v in element.permutations.items()},
            {k: np.array(v) for k, v in element.signs.items()},
        )

    @classmethod
    def random(cls, symmetry: Symmetry, rng: np.random.Generator) -> State:
        """Uniform permutations, no sign flipped: signs follow from the first visit."""
        state = cls.identity(symmetry)
        state.permutations = {k: rng.permuted(v, axis=-1) for k, v in state.permutations.items()}
        return state

    @classmethod
    def stack(cls, states: Sequence[State]) -> State:
        """The states of many draws as one, with the axis of the draws in front."""
        return cls(
            {k: np.stack([s.permutations[k] for s in states]) for k in states[0].permutations},
            {k: np.stack([s.signs[k] for s in states]) for k in states[0].signs},
        )

    def of(self, draw: int) -> State:
        """The state of one draw out of stacked ones."""
        return State(
            {k: v[draw] for k, v in self.permutations.items()},
            {k: v[draw] for k, v in self.signs.items()},
        )

    def differences(self, other: State) -> int:
        """How many draws two stacked states differ in."""
        pairs = [
            (x[name], y[name])
            for x, y in ((self.permutations, other.permutations), (self.signs, other.signs))
            for name in x
        ]
        odd = [(a != b).reshape(len(a), -1).any(axis=1) for a, b in pairs]
        return int(np.logical_or.reduce(odd).sum()) if odd else 0

    def copy(self) -> State:
        return State(
            {k: v.copy() for k, v in self.permutations.items()},
            {k: v.copy() for k, v in self.signs.items()},
        )

    def element(self, symmetry: Symmetry) -> Element:
        """As a group element without scaling."""
        plain = symmetry.identity()
        return Element(
            jax.tree.map(jnp.asarray, self.permutations),
            plain.log_scales,
            jax.tree.map(jnp.asarray, self.signs),
        )


def roaming(symmetry: Symmetry, name: str) -> tuple[str, ...]:
    """The parents of a factor that may trade places, and all that come after the first of these.

    Those before it, as the layers of a loop, stay where they are, so that products of units under
    one of them with units under another are never asked for. Combinations of parents are numbered
    with the last one running fastest: roaming ones fill blocks of consecutive numbers, even where
    one of them stays.
    """
    parents = symmetry.parents[name]
    movable = [number for number, p in enumerate(parents) if p in symmetry.permutable]
    return parents[movable[0] :] if movable else ()


def num_roaming(symmetry: Symmetry, name: str) -> int:
    """How many combinations of units of roaming parents there are."""
    return math.prod(symmetry.sizes[p] for p in roaming(symmetry, name))


def matches(symmetry: Symmetry, name: str, state: State) -> np.ndarray:
    """For each combination of parents' units, [parents..], which one ends there.

    By its number among those that roam, q of the products [p, q, i, j].
    """
    parents, free = symmetry.parents[name], roaming(symmetry, name)
    grids = dict(zip(parents, np.indices([symmetry.sizes[p] for p in parents]), strict=True))
    found = np.zeros([symmetry.sizes[p] for p in parents], int)
    for parent in free:
        at = grids[parent]
        if parent in state.permutations:
            at = state.permutations[parent][(*(grids[p] for p in symmetry.parents[parent]), at)]
        found = found * symmetry.sizes[parent] + at
    return found


def paired(symmetry: Symmetry, name: str, full: np.ndarray, state: State) -> np.ndarray:
    """Products [p, q, i, j] of a dependant for pairs of a parent's units, [parents.., a, b, i, j].

    Its other parents are where they are.
    """
    n, matched = symmetry.sizes[name], matches(symmetry, name, state)
    apart = full.reshape(matched.size, n, num_roaming(symmetry, name), n, *full.shape[2:])
    found = apart[np.arange(matched.size), :, matched.ravel()]
    return found.reshape(*matched.shape, n, n, *full.shape[2:])
