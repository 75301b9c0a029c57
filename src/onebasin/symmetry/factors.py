"""What a group is made of: its factors, the places where they act, and the boxes of parameters."""

from __future__ import annotations

import dataclasses

from onebasin.symmetry.elements import Block

KINDS = ("permutation", "scaling", "sign")


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A place where a factor acts: an axis of a parameter (None: the parameter as a whole)."""

    path: str
    axis: int | None

    def __str__(self) -> str:
        return self.path if self.axis is None else f"{self.path}[{self.axis}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Factor:
    """One index set of the model and what may be done along it.

    Attributes:
        name: Where the factor is made, readable and unique.
        size: Number of units.
        copies: Number of independent elements: the number of indices of its parents, 1 without any.
        kinds: Which of "permutation", "scaling" and "sign" act on the units.
        sites: The parameters and axes that it moves.
        index: The index sets that its arrays run along: its parents, then itself.
        scalings: Number of independent positive scales of each unit.
        signs: Number of independent sign flips of each unit.
    """

    name: str
    size: int
    copies: int
    kinds: frozenset[str]
    sites: tuple[Site, ...]
    index: tuple[str, ...]
    scalings: int = 0
    signs: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """A parameter: where it stands in the tree, and the boxes it falls into."""

    path: str
    shape: tuple[int, ...]
    blocks: tuple[Block, ...]
