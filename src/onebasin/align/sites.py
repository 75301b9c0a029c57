"""Where the factors of a network are read while it runs, and which signs flip what is read."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry import Symmetry
from onebasin.symmetry.capture import Captured, Contraction, Probe
from onebasin.symmetry.elements import Block, Weighting
from onebasin.symmetry.group import Factor

SUMS = ("activations", "preactivations")
"""Costs that are sums over all that is read, whichever steps of a loop it is read in."""

Turns = tuple[tuple[str, int], ...]
"""Sign generators (factor, generator) that flip a value as a whole, or all units of a parent."""


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A place where a factor is read: a captured value's block, and its partner if it is wanted.

    `instead` says in words how a factor is compared that the cost as asked for does not see. In
    `steps`, index sets of loops: each step is another layer, and is compared by itself.
    """

    factor: str
    value: Captured
    block: Block
    partner: Captured | None = None
    partner_block: Block | None = None
    instead: str = ""
    steps: tuple[str, ...] = ()


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
                    if cost != "preactivations" and name not in contraction.over:
                        continue
                    own, steps = block, tuple[str, ...]()
                    if cost not in SUMS:
                        own, steps = _by_layer(symmetry, contraction, name, value, block)
                    if partner is None:
                        sites.append(Site(name, value, own, steps=steps))
                        continue
                    other = _counterpart(contraction, name, value, block, partner)
                    if other is not None and (not partner.data or _plain(symmetry, name, other)):
                        sites.append(Site(name, value, own, partner, other, steps=steps))
    return sites


def _by_layer(
    symmetry: Symmetry, contraction: Contraction, name: str, value: Captured, block: Block
) -> tuple[Block, tuple[str, ...]]:
    """The block with loops named whose steps multiply it by weights of their own, and these."""
    own = 0 if value is contraction.operands[0] else 1
    other = contraction.operands[1 - own]
    sides, steps = list(block.sides), []
    loops, others = (
        _sides_of_loops(b, contraction.loops[n])
        for b, n in ((block, own), (other.blocks[0], 1 - own))
    )
    for loop, place in () if other.data else others.items():
        layer = other.blocks[0].sides[place]
        if layer not in ("", *symmetry.parents[name]) and loop in loops:
            sides[loops[loop]] = layer
            steps.append(layer)
    return dataclasses.replace(block, sides=tuple(sides)), tuple(steps)


def _sides_of_loops(block: Block, loops: tuple[int, ...]) -> dict[int, int]:
    """By loop, the side of a block that is its steps; one step alone has no side."""
    several = [
        loop for loop, (start, stop) in zip(loops, block.ranges, strict=False) if stop - start > 1
    ]
    return {loop: side for side, loop in enumerate(several)}


def _counterpart(
    contraction: Contraction, name: str, value: Captured, block: Block, partner: Captured
) -> Block | None:
    """The block of the partner that a block of the value is multiplied by."""
    found = [b for b in partner.blocks if b.sides.count(name) == 1]
    if any(b.sides.count(name) > 1 for b in partner.blocks):
        return None
    if len(found) > 1:
        own, other = (
            contraction.axes if value is contraction.operands[0] else contraction.axes[::-1]
        )
        found = [b for b in found if _along(b, other) == _along(block, own)]
    return found[0] if len(found) == 1 else None


def _along(block: Block, axes: tuple[int, ...]) -> list[object]:
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
            "or a `while`, or only together with another's units, which flip): use cost='weights'"
        )


def _uncovered(symmetry: Symmetry, sites: list[Site]) -> list[str]:
    """Factors that no site reads, nor any of a factor that depends on them."""
    covered = {site.factor for site in sites}
    covered |= {p for name in covered for p in symmetry.parents[name]}
    return [f.name for f in symmetry.factors if "permutation" in f.kinds and f.name not in covered]


def front(
    symmetry: Symmetry, name: str, block: Block, array: Any, steps: tuple[str, ...] = ()
) -> Any:
    """[steps and parents, units, everything else]; the units of another factor are summed."""
    sides = block.sides
    at = [*(sides.index(p) for p in (*steps, *symmetry.parents[name])), sides.index(name)]
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
        turns: Those that flip the value as a whole, or all units of a parent.
        partner_turns: The same of what the value is multiplied by, if that is data.
        partner_signs: All that flip what it is multiplied by, if that is made of parameters.
        torn: Whether units of another factor that are summed have signs of their own there, or
            units of this one have others in each step of a loop.
    """

    own: set[int] = dataclasses.field(default_factory=set)
    turns: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    partner_turns: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    partner_signs: list[Weighting] = dataclasses.field(default_factory=list)
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
            if site.factor == name:
                if turned(site.value, site.block):
                    flips.own.add(generator)
            elif not index or name in symmetry.parents[site.factor]:
                if turned(site.value, site.block):
                    flips.turns.append((name, generator))
                if partner and partner.data and block and turned(partner, block):
                    flips.partner_turns.append((name, generator))
            elif name in _others(symmetry, site.factor, site.block) or _apart(
                symmetry.factor(name), site
            ):
                flips.torn |= turned(site.value, site.block)
            if partner and block and _is_made(site) and turned(partner, block):
                places = tuple(block.sides.index(side) for side in index if side in block.sides)
                flips.partner_signs.append(Weighting(name, generator, places, 1.0))
    return found


def _apart(factor: Factor, site: Site) -> bool:
    """Whether a factor is one of signs that a site's units have, others at each of its steps."""
    index = set(factor.index)
    return site.factor in index and factor.name not in index and index <= set(site.block.sides)


def _is_made(site: Site) -> bool:
    """Whether a value is multiplied by something made of parameters that is none as it stands."""
    return site.partner is not None and not site.partner.data and site.partner.leaf is None
