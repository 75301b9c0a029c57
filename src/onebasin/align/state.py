"""Where a search stands: a permutation and signs for every factor, in NumPy."""

from __future__ import annotations

import dataclasses
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
