"""Where the factors of a network are read while it runs, and which signs flip what is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry import Symmetry
from onebasin.symmetry.capture import Captured, Contraction, Probe
from onebasin.symmetry.elements import Block, Weighting
from onebasin.symmetry.factors import Factor

Turns = tuple[tuple[str, int], ...]
"""Sign generators (factor, generator) that flip a value as a whole, or all units of a parent."""


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A place where a factor is read: a captured value's block, and its partner if it is wanted.

    Attributes:
        factor: The factor.
        value: What is read.
        block: The part of it that has the factor.
        partner: What it is multiplied by.
        partner_block: The part of that.
        instead: How, in words, a factor is compared that the cost as asked for does not see.
        steps: Sides of the block that are steps of loops, each to be compared by itself.
        partner_steps: The same sides of the partner's block.
    """

    factor: str
    value: Captured
    block: Block
    partner: Captured | None = None
    partner_block: Block | None = None
    instead: str = ""
    steps: tuple[int, ...] = ()
    partner_steps: tuple[int, ...] = ()

    @property
    def layers(self) -> tuple[str, ...]:
        """The index sets of the steps."""
        return tuple(self.block.sides[side] for side in self.steps)


def find_sites(symmetry: Symmetry, probe: Probe, cost: str) -> list[Site]:
    """Every place where a movable factor is read (for preactivations: made).

    A factor that no contraction reads (the pieces of a maxout, units that are sorted) is compared
    where it is made, and one that none makes where it is read. Where it is only seen together with
    another's units (the tokens of a mixer), these are summed.
    """
    sites = _sites(symmetry, probe, cost, symmetry.permutable)
    other = "activations" if cost == "preactivations" else "preactivations"
    place = "where read" if cost == "preactivations" else "where made"
    for kind, together, instead in ((other, False, place), (cost, True, "with others summed")):
        unseen = frozenset(_uncovered(symmetry, sites))
        more = _sites(symmetry, probe, kind, unseen, together) if unseen else []
        sites += [dataclasses.replace(site, instead=instead) for site in more]
    return sites


def _sites(
    symmetry: Symmetry, probe: Probe, cost: str, names: frozenset[str], together: bool = False
) -> list[Site]:
    sites = []
    for contraction in probe.contractions:
        for value, partner in _compared(contraction, cost):
            for block in value.blocks:
                for name in dict.fromkeys(block.sides):
                    if name not in names or not _plain(symmetry, name, block, together):
                        continue
                    if cost == "preactivations" or name in contraction.over:
                        sites += _at(symmetry, contraction, name, value, block, partner, cost)
    return sites


def _at(
    symmetry: Symmetry,
    contraction: Contraction,
    name: str,
    value: Captured,
    block: Block,
    partner: Captured | None,
    cost: str,
) -> list[Site]:
    """The sites of a factor at one block: one, or several where the partner is in pieces."""
    if cost == "contributions":
        assert partner is not None
        return [
            Site(name, value, own, partner, other, "", steps, others)
            for own, other, steps, others in _together(symmetry, contraction, name, value, block)
            if not partner.data or _plain(symmetry, name, other)
        ]
    if cost == "correlation" and not _other(contraction, value).data:
        pieces = {
            own.ranges: Site(name, value, own, steps=steps)
            for own, _, steps, _ in _together(symmetry, contraction, name, value, block)
        }
        if pieces:
            return list(pieces.values())
    return [Site(name, value, block, steps=_signed_layers(symmetry, name, block))]


def _signed_layers(symmetry: Symmetry, name: str, block: Block) -> tuple[int, ...]:
    """The sides of a block that are layers of a loop with signs of their own."""
    signed = {side for f in symmetry.factors if f.signs for side in f.index}
    kept = {*symmetry.permutable, *symmetry.parents[name], ""}
    return tuple(n for n, side in enumerate(block.sides) if side in signed - kept)


def _other(contraction: Contraction, value: Captured) -> Captured:
    left, right = contraction.operands
    return right if value is left else left


def _together(
    symmetry: Symmetry, contraction: Contraction, name: str, value: Captured, block: Block
) -> list[tuple[Block, Block, tuple[int, ...], tuple[int, ...]]]:
    """A block with what it is multiplied by: (block, partner's block, steps, partner's steps).

    Where both change from step to step of a loop, steps are told apart, and the block has the index
    sets that the partner has there; where the partner is in pieces along a loop, so is the block.
    """
    own, other = (0, 1) if value is contraction.operands[0] else (1, 0)
    partner = contraction.operands[other]
    blocks = [b for b in partner.blocks if name in b.sides]
    if any(b.sides.count(name) > 1 for b in blocks):
        return []
    if len(blocks) > 1:
        along = _along(block, contraction.axes[own])
        blocks = [b for b in blocks if _along(b, contraction.axes[other]) == along]
    mine, theirs = contraction.loops[own], contraction.loops[other]
    axes = [(mine.index(loop), theirs.index(loop)) for loop in mine if loop in theirs]
    found = []
    for counterpart in blocks:
        cut = _cut(block, counterpart, axes)
        if cut is None:
            continue
        sides, others = cut.sides_of_axes(), counterpart.sides_of_axes()
        pairs = [p for a, b in axes for p in zip(sides[a], others[b], strict=True)]
        pairs = [p for p in pairs if cut.sides[p[0]] not in symmetry.parents[name]]
        steps, partner_steps = (tuple(p[n] for p in pairs) for n in (0, 1))
        found.append((cut, counterpart, steps, partner_steps))
    apart = {(tuple(_along(cut, [a for a, _ in axes]))) for cut, *_ in found}
    return found if len(apart) == len(found) else []


def _cut(block: Block, other: Block, axes: list[tuple[int, int]]) -> Block | None:
    """The part of a block at the steps of another, along axes (own, other's) that are loops."""
    ranges, picks = list(block.ranges), list(block.picks)
    sides, shape = [], []
    partner = dict(axes)
    there = other.sides_of_axes()
    for axis, own in enumerate(block.sides_of_axes()):
        names = [block.sides[side] for side in own]
        if axis not in partner:
            sides += names
            shape += [block.shape[side] for side in own]
            continue
        theirs = there[partner[axis]]
        wanted = [other.sides[side] for side in theirs]
        at = other.ranges[partner[axis]], other.picks[partner[axis]]
        if any(names) and (names, (ranges[axis], picks[axis])) != (wanted, at):
            return None
        if not (ranges[axis][0] <= at[0][0] and at[0][1] <= ranges[axis][1]):
            return None
        ranges[axis], picks[axis] = at
        sides += wanted
        shape += [other.shape[side] for side in theirs]
    return dataclasses.replace(
        block, ranges=tuple(ranges), picks=tuple(picks), sides=tuple(sides), shape=tuple(shape)
    )


def _along(block: Block, axes: Sequence[int]) -> list[object]:
    return [(block.ranges[axis], block.picks[axis]) for axis in axes]


def _compared(contraction: Contraction, cost: str) -> list[tuple[Captured, Captured | None]]:
    """The values of a contraction that a cost compares, with their partners if it wants them."""
    left, right = contraction.operands
    if cost == "preactivations":
        return [(contraction.result, None)] if contraction.result.data else []
    if cost == "contributions":
        first, second = (left, right) if left.data else (right, left)
        return [(first, second)] if first.data else []
    return [(operand, None) for operand in (left, right) if operand.data]


def _plain(symmetry: Symmetry, name: str, block: Block, together: bool = False) -> bool:
    """Whether a block has the factor and its parents once, and nothing else that moves."""
    once = all(block.sides.count(n) == 1 for n in (name, *symmetry.parents[name]))
    return once and (together or not _others(symmetry, name, block))


def _others(symmetry: Symmetry, name: str, block: Block) -> set[str]:
    """What moves in a block, but for a factor and its parents."""
    return set(block.sides) & symmetry.permutable - {name, *symmetry.parents[name]}


def check_covered(symmetry: Symmetry, sites: list[Site], cost: str) -> None:
    missing = _uncovered(symmetry, sites)
    if missing:
        raise ValueError(
            f"cost {cost!r} cannot see factor {missing[0]!r} at work (it is read inside a `cond` "
            "or a `while`, or only together with another's units, which flip, or is fetched by an "
            "index in a loop): use cost='weights'"
        )


def _uncovered(symmetry: Symmetry, sites: list[Site]) -> list[str]:
    """Factors that no site reads, nor any of a factor that depends on them."""
    covered = {site.factor for site in sites}
    covered |= {p for name in covered for p in symmetry.parents[name]}
    return [f.name for f in symmetry.factors if "permutation" in f.kinds and f.name not in covered]


def front(
    symmetry: Symmetry, name: str, block: Block, array: Any, steps: tuple[int, ...] = ()
) -> Any:
    """[steps and parents, units, everything else]; the units of another factor are summed."""
    sides = block.sides
    at = [*steps, *(sides.index(p) for p in symmetry.parents[name]), sides.index(name)]
    others = _others(symmetry, name, block)
    whole = array[block.at()].reshape(block.shape)
    if others:
        axes = tuple(axis for axis, side in enumerate(sides) if side in others)
        whole = whole.sum(axes, keepdims=True)
    moved = jnp.moveaxis(whole, at, range(len(at)))
    copies = int(np.prod(moved.shape[: len(at) - 1], dtype=int))
    return moved.reshape(copies, moved.shape[len(at) - 1], -1)


@dataclasses.dataclass(eq=False, slots=True)
class Flips:
    """What sign generators do to a site, found by flipping them.

    Attributes:
        own: Those of its factor that flip the value.
        turns: Those that flip the value as a whole, or all units of a parent or of a step.
        partner_turns: The same of what the value is multiplied by, if that is data.
        partner_signs: All that flip what it is multiplied by, if that is made of parameters.
        cancelled: Those that flip units of the value in each step by itself, and what it is
            multiplied by as well.
        loose: Those that flip the value alone in such a way.
        torn: Whether units of another factor that are summed have signs of their own there.
    """

    own: set[int] = dataclasses.field(default_factory=set)
    turns: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    partner_turns: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    partner_signs: list[Weighting] = dataclasses.field(default_factory=list)
    cancelled: set[tuple[str, int]] = dataclasses.field(default_factory=set)
    loose: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    torn: bool = False


def find_flips(
    symmetry: Symmetry, probe: Probe, sites: list[Site], params: Any, inputs: Any
) -> list[Flips]:
    """Which sign generators flip what is read at each site."""
    found = [Flips() for _ in sites]
    read = {site.factor for site in sites}
    read |= {parent for name in read for parent in symmetry.parents[name]}
    read = read.union(*(_others(symmetry, site.factor, site.block) for site in sites))
    read |= {f.name for f in symmetry.factors if any(_apart(f, site) for site in sites)}
    if any(_is_made(site) for site in sites):
        read |= {factor.name for factor in symmetry.factors}
    signed = [f for f in symmetry.factors if f.signs and (f.name in read or not f.index)]
    run = jax.jit(lambda p: probe.values(p, inputs))
    plain = run(params) if signed and sites else []
    identity = symmetry.identity()
    for name, generator in [(f.name, g) for f in signed for g in range(f.signs) if sites]:
        flipped = identity.signs[name].at[..., generator].set(-1)
        element = identity._replace(signs=identity.signs | {name: flipped})
        moved = run(symmetry.act(element, params))

        def turned(value: Captured, block: Block, b: list[Any] = moved) -> bool:
            x, y = (v[value.number][block.at()] for v in (plain, b))
            return float(jnp.vdot(x, y)) < 0

        index = symmetry.factor(name).index
        for site, flips in zip(sites, found, strict=True):
            partner, block = site.partner, site.partner_block
            whole = {*site.layers, *symmetry.parents[site.factor]}
            if site.factor == name:
                if turned(site.value, site.block):
                    flips.own.add(generator)
            elif whole.issuperset(index):
                if turned(site.value, site.block):
                    flips.turns.append((name, generator))
                if partner and partner.data and block and turned(partner, block):
                    flips.partner_turns.append((name, generator))
            elif name in _others(symmetry, site.factor, site.block):
                flips.torn |= turned(site.value, site.block)
            elif _apart(symmetry.factor(name), site) and turned(site.value, site.block):
                if partner and block and turned(partner, block):
                    flips.cancelled.add((name, generator))
                    continue
                flips.loose.append((name, generator))
            if partner and block and _is_made(site) and turned(partner, block):
                places = tuple(block.sides.index(side) for side in index if side in block.sides)
                flips.partner_signs.append(Weighting(name, generator, places, 1.0))
    return found


def _apart(factor: Factor, site: Site) -> bool:
    """Whether a factor is signs of a site's units that are others for each step of a loop."""
    index = set(factor.index)
    return site.factor in index and factor.name not in index and index <= set(site.block.sides)


def _is_made(site: Site) -> bool:
    """Whether a value is multiplied by something made of parameters that is none as it stands."""
    return site.partner is not None and not site.partner.data and site.partner.leaf is None
