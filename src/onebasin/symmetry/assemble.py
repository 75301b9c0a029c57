"""Puts the findings of the passes together into a group: factors, generators, names, layouts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

from onebasin.symmetry import axes
from onebasin.symmetry.axes import Atom
from onebasin.symmetry.blocks import MAX_BLOCKS, Key, Layout, Planner
from onebasin.symmetry.degrees import Exponents, Index, Spot
from onebasin.symmetry.elements import Block, Weighting
from onebasin.symmetry.factors import Factor, Leaf, Site
from onebasin.symmetry.group import Symmetry
from onebasin.symmetry.nullspace import Eliminator, Row, reduce_mod
from onebasin.symmetry.steps import Value


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A parameter, or one entry of it along an axis where its entries lead separate lives."""

    leaf: int
    value: Value
    axis: int | None = None
    place: int = 0


Generators = dict[Index, list[Row]]
Owners = dict[tuple[str, Index, int], tuple[str, int]]
"""(kind, index, number of the generator) -> (its factor, its number there)."""


def assemble(
    *,
    paths: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    parts: Sequence[Part],
    order: Sequence[int],
    planner: Planner,
    parents: dict[Atom, set[Atom]],
    scalings: Exponents,
    signs: Exponents,
    unused: tuple[str, ...],
) -> tuple[Symmetry, dict[Atom, str]]:
    """Builds the group and names its index sets; `order` lists the parts by first use."""
    house = _House(paths, parts, order, planner, scalings)
    generators = {
        "scaling": _generators(scalings, house),
        "sign": _generators(signs, house),
    }
    dimensions = (_dimension(scalings), _dimension(signs))
    for found in generators.values():
        for index in found:
            for atom in index:
                # A generator along b alone would leave the group when copies of b move apart.
                if atom in parents and not parents[atom] <= set(index):
                    parents[atom] &= set(index)
    ancestry = _ancestry(house, parents)
    names = _names(house)
    factors, owners = _factors(house, ancestry, names, generators)
    index_of = {factor.name: factor.index for factor in factors}
    weightings = {
        kind: _weightings(kind, own, owners, index_of, names, house)
        for kind, own in generators.items()
    }
    blocks: list[list[Block]] = [[] for _ in paths]
    for number, part in enumerate(parts):
        blocks[part.leaf] += house.blocks(number, names, weightings)
    leaves = tuple(
        Leaf(path, shape, tuple(own))
        for path, shape, own in zip(paths, shapes, blocks, strict=True)
    )
    symmetry = Symmetry(
        factors=tuple(factors),
        leaves=leaves,
        sizes={names[atom]: atom.size for atom in house.atoms},
        parents={
            names[atom]: tuple(names[a] for a in ancestry.get(atom, ())) for atom in house.atoms
        },
        dimensions=dimensions,
        unused=unused,
    )
    return symmetry, names


class _House:
    """The parameters with their settled blocks."""

    def __init__(
        self,
        paths: Sequence[str],
        parts: Sequence[Part],
        order: Sequence[int],
        planner: Planner,
        exponents: Exponents,
    ):
        self.paths, self.parts = paths, parts
        self.layouts = [planner.layout(part.value) for part in parts]
        seen = {
            (spot.part, spot.key)
            for name, spot in exponents.sites.items()
            if name in exponents.seen
        }
        self.sites: dict[Atom, list[tuple[int, int]]] = {}
        first: dict[Atom, None] = {}
        for number in order:
            layout = self.layouts[number]
            if layout.count > MAX_BLOCKS:
                for product in layout.products:
                    axes.pin(product)
                continue
            for key in layout.block_keys():
                used = (number, key) in seen
                for (axis, _), atom in layout.atoms(key).items():
                    first[atom] = None
                    place = (parts[number].leaf, axis)
                    if used and place not in self.sites.setdefault(atom, []):
                        self.sites[atom].append(place)
        self.atoms = list(first)
        self.permutable = [
            atom for atom in first if not atom.pinned and atom.size > 1 and self.sites.get(atom)
        ]

    def sides(self, number: int, key: tuple[int, ...]) -> dict[tuple, int]:
        """Position -> number of the side in the block reshaped to one axis per atom."""
        return {p: i for i, p in enumerate(self.layouts[number].atoms(key))}

    def blocks(
        self,
        number: int,
        names: dict[Atom, str],
        weightings: dict[str, dict[tuple[int, Key], list[Weighting]]],
    ) -> list[Block]:
        layout, part = self.layouts[number], self.parts[number]
        if layout.count > MAX_BLOCKS or 0 in part.value.shape:
            return []
        found = []
        for key in layout.block_keys():
            own = {kind: tuple(found.get((number, key), ())) for kind, found in weightings.items()}
            box = box_of(layout, key, part.value.shape, names)
            if part.axis is not None:
                ranges = list(box.ranges)
                ranges[part.axis] = (part.place, part.place + 1)
                box = dataclasses.replace(box, ranges=tuple(ranges))
            found.append(dataclasses.replace(box, scalings=own["scaling"], signs=own["sign"]))
        return found


def box_of(layout: Layout, key: Key, shape: tuple[int, ...], names: dict[Atom, str]) -> Block:
    """Where a block of a value lies; axes without index sets are sides without a name."""
    ranges: list[tuple[int, int]] = []
    picks: list[tuple[int, ...] | None] = []
    sides: list[str] = []
    sizes: list[int] = []
    for axis, (terms, chosen, n) in enumerate(zip(layout.terms, key, shape, strict=False)):
        if not isinstance(layout.products[axis], tuple):
            ranges.append((0, n))
            picks.append(None)
            sides.append("")
            sizes.append(n)
            continue
        span, pick = layout.spans(axis)[chosen]
        ranges.append(span)
        picks.append(pick)
        sides += [names.get(atom, "") for atom in terms[chosen]]
        sizes += [atom.size for atom in terms[chosen]]
    return Block(tuple(ranges), tuple(picks), tuple(sides), tuple(sizes))


def _weightings(
    kind: str,
    generators: Generators,
    owners: Owners,
    index_of: dict[str, tuple[str, ...]],
    names: dict[Atom, str],
    house: _House,
) -> dict[tuple[int, Key], list[Weighting]]:
    """What generators do to each block, by its part and its key."""
    found: dict[tuple[int, Key], list[Weighting]] = {}
    for index, vectors in generators.items():
        for generator, vector in enumerate(vectors):
            owner, place = owners[kind, index, generator]
            for spot, exponent in vector.items():
                atoms = house.layouts[spot.part].atoms(spot.key)
                sides = house.sides(spot.part, spot.key)
                side = {names[atoms[p]]: sides[p] for p in spot.positions}
                places = tuple(side[name] for name in index_of[owner])
                weighting = Weighting(owner, place, places, float(exponent))
                found.setdefault((spot.part, spot.key), []).append(weighting)
    return found


def _restrict(vector: Row, index: Index, house: _House) -> Row:
    """A generator along a larger index, held uniform along what `index` lacks."""
    total: Row = {}
    for spot, value in vector.items():
        atoms = house.layouts[spot.part].atoms(spot.key)
        kept = frozenset(p for p in spot.positions if atoms[p] in index)
        held = Spot(spot.part, spot.key, kept)
        total[held] = total.get(held, 0) + value
    return reduce_mod(total, None)


def _generators(exponents: Exponents, house: _House) -> Generators:
    """Independent generators by index set, without those that a larger index set gives already."""
    solutions = exponents.solutions()
    found: Generators = {}
    for index in sorted(solutions, key=len, reverse=True):
        known = Eliminator(exponents.modulus)
        for larger, vectors in solutions.items():
            if set(index) < set(larger):
                for vector in vectors:
                    known.insert(_restrict(vector, index, house))
        fresh = [_tidy(v, exponents.modulus) for v in solutions[index] if known.insert(v)]
        if fresh:
            found[index] = fresh
    return found


def _dimension(exponents: Exponents) -> int:
    """Exact dimension: sum over index sets T of generators(T) times the product of (size - 1)."""
    total = 0
    for index, vectors in exponents.solutions().items():
        total += len(vectors) * math.prod(atom.size - 1 for atom in index)
    return total


def _tidy(vector: Row, modulus: int | None) -> Row:
    """Whole exponents without a common divisor, the first one positive."""
    if modulus:
        return vector
    fractions = [Fraction(v) for v in vector.values()]
    scale = Fraction(math.lcm(*(f.denominator for f in fractions)))
    whole = [int(f * scale) for f in fractions]
    divisor = math.gcd(*whole) * (1 if whole[0] > 0 else -1)
    return {spot: w // divisor for spot, w in zip(vector, whole, strict=True)}


def _ancestry(house: _House, parents: dict[Atom, set[Atom]]) -> dict[Atom, list[Atom]]:
    """All ancestors of each permutable index set, outermost first."""
    permutable = set(house.permutable)

    def up(atom: Atom) -> set[Atom]:
        direct = parents.get(atom, set()) if atom in permutable else set()
        return direct.union(*(up(parent) for parent in direct))

    ancestors = {atom: up(atom) for atom in house.permutable}
    return {
        atom: sorted(found, key=lambda a: (len(ancestors.get(a, ())), a.number))
        for atom, found in ancestors.items()
    }


def _names(house: _House) -> dict[Atom, str]:
    """Readable names from where an index set is first used; the axis is added where needed."""
    wanted: dict[str, list[Atom]] = {}
    where: dict[Atom, tuple[str, int]] = {}
    for atom in house.atoms:
        number, axis = (house.sites.get(atom) or _all_sites(house, atom))[0]
        path = _short(house, house.paths[number])
        where[atom] = (path, axis)
        wanted.setdefault(path.rsplit("/", 1)[0], []).append(atom)
    names: dict[Atom, str] = {}
    permutable = set(house.permutable)
    for base, group in wanted.items():
        movable = [atom for atom in group if atom in permutable]
        for atom in group:
            path, axis = where[atom]
            alone = movable == [atom] or len(group) == 1
            names[atom] = base if alone else f"{path}[{axis}]"
    taken: dict[str, int] = {}
    for atom, name in names.items():
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:
            names[atom] = f"{name}.{taken[name]}"
    return names


def _short(house: _House, path: str) -> str:
    """A path without the collection that every path begins with in Flax."""
    collections = {"params", "batch_stats"}
    flax = all("/" in p and p.split("/")[0] in collections for p in house.paths)
    return path.split("/", 1)[1] if flax else path


def _all_sites(house: _House, atom: Atom) -> list[tuple[int, int]]:
    return [
        (house.parts[number].leaf, axis)
        for number, layout in enumerate(house.layouts)
        for key in layout.block_keys()
        for (axis, _), other in layout.atoms(key).items()
        if other is atom
    ]


def _factors(
    house: _House,
    ancestry: dict[Atom, list[Atom]],
    names: dict[Atom, str],
    generators: dict[str, Generators],
) -> tuple[list[Factor], Owners]:
    """One factor per permutable index set and per index set of generators."""
    indices: dict[frozenset[Atom], list[Atom]] = {}
    for atom in house.permutable:
        index = [*ancestry[atom], atom]
        indices[frozenset(index)] = index
    for found in generators.values():
        for members in found:
            if members:
                indices.setdefault(frozenset(members), list(members))
    factors: list[Factor] = []
    owners: Owners = {}
    place = {atom: number for number, atom in enumerate(house.atoms)}
    for together, index in sorted(
        indices.items(), key=lambda item: [place[a] for a in reversed(item[1])]
    ):
        key = tuple(sorted(together, key=lambda a: a.number))
        counts = {kind: len(found.get(key, ())) for kind, found in generators.items()}
        own = index[-1]
        moves = index == [*ancestry.get(own, ()), own] and own in ancestry
        kinds = {kind for kind, count in counts.items() if count}
        simple = moves or len(index) == 1
        name = names[own] if simple else " x ".join(names[a] for a in index)
        for kind, count in counts.items():
            owners |= {(kind, key, number): (name, number) for number in range(count)}
        factors.append(
            Factor(
                name=name,
                size=own.size,
                copies=math.prod(a.size for a in index[:-1]),
                kinds=frozenset(kinds | {"permutation"} if moves else kinds),
                sites=_sites(house, own if moves else None, own, key, generators),
                index=tuple(names[a] for a in index),
                scalings=counts["scaling"],
                signs=counts["sign"],
            )
        )
    return [*factors, *_whole_factors(house, names, generators, owners)], owners


def _whole_factors(
    house: _House, names: dict[Atom, str], generators: dict[str, Generators], owners: Owners
) -> list[Factor]:
    """Changes of whole parameters by one number, along no index: one factor each."""
    together: dict[frozenset[tuple], dict[str, int]] = {}
    for kind, found in generators.items():
        for number, vector in enumerate(found.get((), ())):
            support = frozenset((spot.part, spot.key) for spot in vector)
            if kind in together.get(support, {}):
                support |= {(kind, number)}
            together.setdefault(support, {})[kind] = number
    factors = []
    taken = set(names.values())
    for numbers in together.values():
        vector = generators[next(iter(numbers))][()][next(iter(numbers.values()))]
        sites = tuple(
            dict.fromkeys(Site(house.paths[house.parts[spot.part].leaf], None) for spot in vector)
        )
        base = name = f"whole {_short(house, sites[0].path)}"
        repeat = 1
        while name in taken:
            repeat += 1
            name = f"{base}.{repeat}"
        taken.add(name)
        owners |= {(kind, (), number): (name, 0) for kind, number in numbers.items()}
        factors.append(
            Factor(
                name=name,
                size=1,
                copies=1,
                kinds=frozenset(numbers),
                sites=sites,
                index=(),
                scalings=int("scaling" in numbers),
                signs=int("sign" in numbers),
            )
        )
    return factors


def _sites(
    house: _House,
    moved: Atom | None,
    own: Atom,
    key: Index,
    generators: dict[str, Generators],
) -> tuple[Site, ...]:
    places: dict[tuple[int, int], None] = {}
    if moved is not None:
        places |= dict.fromkeys(house.sites[moved])
    for found in generators.values():
        for vector in found.get(key, ()):
            for spot in vector:
                atoms = house.layouts[spot.part].atoms(spot.key)
                leaf = house.parts[spot.part].leaf
                places |= {(leaf, p[0]): None for p in spot.positions if atoms[p] is own}
    return tuple(Site(house.paths[number], axis) for number, axis in places)
