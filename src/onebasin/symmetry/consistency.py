"""Whether the parts of a group fit together: what acts is known, and lies where it says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from onebasin.symmetry.elements import Block, Weighting
from onebasin.symmetry.factors import Factor, Leaf

MOST_COMPARED = 2**13
"""Up to how many boxes are compared in pairs."""

_NUMBERED = ("scalings", "signs")
Span = tuple[tuple[int, int], tuple[int, ...] | None]


def misfit(
    factors: Sequence[Factor],
    leaves: Sequence[Leaf],
    sizes: Mapping[str, int],
    parents: Mapping[str, tuple[str, ...]],
    dimensions: tuple[int, int],
    unused: Sequence[str],
) -> str | None:
    """The first thing that does not fit, in a clause; None where all does.

    Args:
        factors: The factors of a group.
        leaves: Its parameters.
        sizes: The sizes of its index sets.
        parents: The index sets that each depends on, outermost first.
        dimensions: How many scales and how many signs are free.
        unused: The paths of parameters that it leaves alone.
    """
    return next(
        itertools.chain(
            _odd_parents(sizes, parents),
            _odd_factors(factors, leaves, sizes, parents),
            *(_odd_leaf(leaf, factors, sizes, parents) for leaf in leaves),
            _odd_generators(factors, leaves),
            _odd_numbers(factors, dimensions),
            _odd_paths(leaves, unused),
        ),
        None,
    )


def _odd_parents(sizes: Mapping[str, int], parents: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    if sizes.keys() != parents.keys():
        yield "its sizes and its parents are of other index sets"
        return
    for name, above in parents.items():
        unknown = [p for p in above if p not in sizes]
        if unknown or name in above or _repeats(above):
            yield f"the parents of {name!r} are {list(above)}"
            continue
        for place, parent in enumerate(above):
            if not set(parents[parent]) <= set(above[:place]):
                yield f"the parents of {name!r} stand in another order than those above them"


def _odd_factors(
    factors: Sequence[Factor],
    leaves: Sequence[Leaf],
    sizes: Mapping[str, int],
    parents: Mapping[str, tuple[str, ...]],
) -> Iterator[str]:
    if _repeats([factor.name for factor in factors]):
        yield "two of its factors have one name"
    ranks = {leaf.path: len(leaf.shape) for leaf in leaves}
    for factor in factors:
        what = f"factor {factor.name!r}"
        if any(name not in sizes for name in factor.index) or _repeats(factor.index):
            yield f"{what} has the index {list(factor.index)}"
            continue
        lengths = [sizes[name] for name in factor.index] or [1]
        if [factor.size, factor.copies] != [lengths[-1], math.prod(lengths[:-1])]:
            yield f"{what} has {factor.copies} x {factor.size} units, and index sets of {lengths}"
        for kind, count in (("scaling", factor.scalings), ("sign", factor.signs)):
            if (kind in factor.kinds) != (count > 0):
                yield f"{what} has {count} {kind}s and the kinds {sorted(factor.kinds)}"
        own = (*parents.get(factor.name, ()), factor.name)
        if "permutation" in factor.kinds and factor.index != own:
            yield f"{what} permutes, and runs along {list(factor.index)}"
        for site in factor.sites:
            whole = site.axis is None
            if site.path not in ranks or (site.axis or 0) >= max(ranks[site.path], 1):
                yield f"{what} acts on {site}, which is no axis of a parameter"
            elif whole != (not factor.index):
                yield f"{what} acts on {site}"


def _odd_leaf(
    leaf: Leaf,
    factors: Sequence[Factor],
    sizes: Mapping[str, int],
    parents: Mapping[str, tuple[str, ...]],
) -> Iterator[str]:
    by_name = {factor.name: factor for factor in factors}
    what = f"a block of {leaf.path!r}"
    for block in leaf.blocks:
        if not _lies_in(block, leaf.shape):
            yield f"{what} lies outside of its shape {leaf.shape}"
        elif not _has_sides(block, sizes):
            yield f"{what} has the sides {list(block.sides)} of {list(block.shape)}"
        elif any(not set(parents[side]) <= set(block.sides) for side in block.sides):
            yield f"{what} lacks an index set that another of its own depends on"
        else:
            for kind in _NUMBERED:
                for weighting in getattr(block, kind):
                    if not _weighs(weighting, block, by_name.get(weighting.factor), kind):
                        yield f"{what} is weighed by what {weighting.factor!r} does not have"
    if all(_lies_in(block, leaf.shape) for block in leaf.blocks):
        entries = sum(math.prod(block.lengths) for block in leaf.blocks)
        if entries > math.prod(leaf.shape) or _overlap(leaf.blocks):
            yield f"the blocks of {leaf.path!r} do not lie side by side"


def _lies_in(block: Block, shape: Sequence[int]) -> bool:
    if not len(block.ranges) == len(block.picks) == len(shape):
        return False
    for (start, stop), pick, n in zip(block.ranges, block.picks, shape, strict=True):
        if not start < stop <= n:
            return False
        if pick is not None and (_repeats(pick) or not _within(pick, start, stop)):
            return False
    return True


def _within(pick: Sequence[int], start: int, stop: int) -> bool:
    return bool(pick) and start <= min(pick) and max(pick) < stop


def _has_sides(block: Block, sizes: Mapping[str, int]) -> bool:
    """Whether each side is an index set as long as it is, and they make up the axes in order."""
    if [sizes.get(side) for side in block.sides] != list(block.shape):
        return False
    lengths = iter(block.shape)
    for length in block.lengths:
        own = 1
        while own < length:
            own *= next(lengths, length + 1)
        if own != length:
            return False
    return all(n == 1 for n in lengths)


def _weighs(weighting: Weighting, block: Block, factor: Factor | None, kind: str) -> bool:
    if factor is None or weighting.generator >= getattr(factor, kind) or not weighting.exponent:
        return False
    if any(place >= len(block.sides) for place in weighting.places) or _repeats(weighting.places):
        return False
    return tuple(block.sides[place] for place in weighting.places) == factor.index


def _overlap(blocks: Sequence[Block]) -> bool:
    """Whether two boxes share an entry: whether they share a position along every axis."""
    if not 1 < len(blocks) <= MOST_COMPARED:
        return False
    shared = np.ones((len(blocks), len(blocks)), bool)
    for axis in range(len(blocks[0].ranges)):
        numbers: dict[Span, int] = {}
        own = [
            numbers.setdefault((block.ranges[axis], block.picks[axis]), len(numbers))
            for block in blocks
        ]
        meets = np.array([[_meet(a, b) for b in numbers] for a in numbers])
        shared &= meets[np.ix_(own, own)]
    np.fill_diagonal(shared, val=False)
    return bool(shared.any())


def _meet(one: Span, other: Span) -> bool:
    """Whether two sets of positions along an axis have any in common."""
    (start, stop), pick = one
    (first, last), others = other
    if max(start, first) >= min(stop, last):
        return False
    if pick is None and others is None:
        return True
    if pick is None or others is None:
        low, high = (first, last) if others is None else (start, stop)
        return any(low <= position < high for position in pick or others or ())
    return not set(pick).isdisjoint(others)


def _odd_generators(factors: Sequence[Factor], leaves: Sequence[Leaf]) -> Iterator[str]:
    """Generators that do nothing, unless to a parameter without entries."""
    if any(0 in leaf.shape for leaf in leaves):
        return
    blocks = [block for leaf in leaves for block in leaf.blocks]
    for kind in _NUMBERED:
        used = {(w.factor, w.generator) for block in blocks for w in getattr(block, kind)}
        for factor in factors:
            if any((factor.name, n) not in used for n in range(getattr(factor, kind))):
                yield f"factor {factor.name!r} has {kind} that do nothing"


def _odd_numbers(factors: Sequence[Factor], dimensions: tuple[int, int]) -> Iterator[str]:
    most = [sum(f.copies * f.size * getattr(f, kind) for f in factors) for kind in _NUMBERED]
    if any(dimension > bound for dimension, bound in zip(dimensions, most, strict=True)):
        yield f"its dimensions are {list(dimensions)}, while its factors have {most}"


def _odd_paths(leaves: Sequence[Leaf], unused: Sequence[str]) -> Iterator[str]:
    paths = [leaf.path for leaf in leaves]
    if _repeats(paths):
        yield "two of its parameters have one path"
    if not set(unused) <= set(paths):
        yield "an unused parameter is none of its parameters"


def _repeats(items: Collection[object]) -> bool:
    return len(set(items)) < len(items)
