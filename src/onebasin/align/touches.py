"""Which factor touches which box of which parameter, and how: boxes in order of use."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator, Sequence

from onebasin.symmetry import Symmetry
from onebasin.symmetry.elements import Block, Weighting


@dataclasses.dataclass(frozen=True, slots=True)
class Touch:
    """A factor at one place of a box.

    Attributes:
        factor: Its name.
        places: The positions of its index sets among the sides of the box.
        pattern: The exponents of its generators there.
    """

    factor: str
    places: tuple[int, ...]
    pattern: tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """A box of a parameter, and the scalings and signs that touch it.

    Attributes:
        leaf: The number of its parameter.
        block: Where it lies in the parameter, and the index sets of its sides.
        scalings: What scales it, one touch per factor and place.
        signs: What flips it.
        kernel: The number of the box whose bias this is, None if it is no bias.
    """

    leaf: int
    block: Block
    scalings: tuple[Touch, ...]
    signs: tuple[Touch, ...]
    kernel: int | None = None


def boxes_of(symmetry: Symmetry) -> tuple[Box, ...]:
    """All boxes of the parameters that the model uses, in order of use.

    A box is a *bias* of another, its kernel, if the kernel has all its sides and more, and if along
    these sides both change in the same way. So the bias of a dense layer and the running mean of a
    BatchNorm are biases; the gain of a LayerNorm is none, for no kernel scales as it does.
    """
    counts = {f.name: (f.scalings, f.signs) for f in symmetry.factors}
    found = []
    for number in order_of_use(symmetry):
        for block in symmetry.leaves[number].blocks:
            scalings = _touches(block.scalings, {name: k for name, (k, _) in counts.items()})
            signs = _touches(block.signs, {name: m for name, (_, m) in counts.items()})
            found.append(Box(number, block, scalings, signs))
    return tuple(
        dataclasses.replace(box, kernel=_kernel(number, found)) for number, box in enumerate(found)
    )


def order_of_use(symmetry: Symmetry) -> list[int]:
    """The numbers of the leaves, by where the model first uses them.

    Each permutable factor lists its sites in that order; this merges the lists into one. Leaves of
    which the lists say nothing come in the order of the tree.
    """
    number = {leaf.path: i for i, leaf in enumerate(symmetry.leaves)}
    chains = [
        list(dict.fromkeys(number[site.path] for site in factor.sites))
        for factor in symmetry.factors
        if "permutation" in factor.kinds
    ]
    rank = {leaf: i for i, leaf in enumerate(dict.fromkeys(itertools.chain(*chains)))}
    rank |= {leaf: len(rank) + leaf for leaf in range(len(number)) if leaf not in rank}
    after: dict[int, set[int]] = {leaf: set() for leaf in rank}
    for chain in chains:
        for a, b in itertools.pairwise(chain):
            after[a].add(b)
    waits = dict.fromkeys(rank, 0)
    for later in itertools.chain(*after.values()):
        waits[later] += 1
    ready = [(r, leaf) for leaf, r in rank.items() if not waits[leaf]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, leaf = heapq.heappop(ready)
        order.append(leaf)
        for later in after[leaf]:
            waits[later] -= 1
            if not waits[later]:
                heapq.heappush(ready, (rank[later], later))
    done = set(order)
    return order + sorted((leaf for leaf in rank if leaf not in done), key=rank.__getitem__)


def _touches(weightings: Sequence[Weighting], counts: dict[str, int]) -> tuple[Touch, ...]:
    patterns: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    for w in weightings:
        pattern = patterns.setdefault((w.factor, w.places), [0.0] * counts[w.factor])
        pattern[w.generator] += w.exponent
    return tuple(
        Touch(factor, places, tuple(pattern))
        for (factor, places), pattern in patterns.items()
        if any(pattern)
    )


def _kernel(number: int, boxes: Sequence[Box]) -> int | None:
    """The last box before, else the first one after, of which this one is a bias."""
    candidates = [*range(number - 1, -1, -1), *range(number + 1, len(boxes))]
    return next((i for i in candidates if _is_bias(boxes[number], boxes[i])), None)


def _is_bias(box: Box, kernel: Box) -> bool:
    return any(
        _along(box.scalings, range(len(image)), image) == _along(kernel.scalings, image, image)
        and _along(box.signs, range(len(image)), image) == _along(kernel.signs, image, image)
        for image in _embeddings(box.block.sides, kernel.block.sides)
    )


def _along(
    touches: Sequence[Touch], sides: Sequence[int], image: Sequence[int]
) -> set[tuple[str, tuple[int, ...], tuple[float, ...]]]:
    """What the touches do along some sides, named by the sides that these are mapped to."""
    to = dict(zip(sides, image, strict=True))
    return {
        (t.factor, tuple(to[p] for p in t.places), t.pattern)
        for t in touches
        if all(p in to for p in t.places)
    }


def _embeddings(small: Sequence[str], large: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """The ways to find the sides of a smaller box among those of a larger one."""
    if len(small) >= len(large) or not set(small) <= set(large):
        return
    places = [[i for i, name in enumerate(large) if name == side] for side in small]
    for image in itertools.product(*places):
        if len(set(image)) == len(image):
            yield image
