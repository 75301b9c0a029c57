"""Puts the findings of the passes together into a group: factors, generators, names, layouts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from onebasin.symmetry import axes
from onebasin.symmetry.axes import Atom, Product
from onebasin.symmetry.blocks import MAX_BLOCKS, Planner
from onebasin.symmetry.degrees import Exponents, Index, Spot
from onebasin.symmetry.elements import AxisLayout, Block, Weighting
from onebasin.symmetry.group import Factor, Leaf, Site, Symmetry
from onebasin.symmetry.nullspace import Eliminator, Row, add_multiple
from onebasin.symmetry.steps import Value

Generators = dict[Index, list[Row]]


def assemble(
    *,
    paths: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    values: dict[int, Value],
    order: Sequence[int],
    planner: Planner,
    parents: dict[Atom, set[Atom]],
    scalings: Exponents,
    signs: Exponents,
    unused: tuple[str, ...],
) -> Symmetry:
    """Builds the group. `order` lists the leaves by first use, from which factors take their names."""
    house = _House(paths, shapes, values, order, planner, scalings)
    generators = {
        "scaling": _generators(scalings, house),
        "sign": _generators(signs, house),
    }
    dimensions = (_dimension(scalings, house), _dimension(signs, house))
    for found in generators.values():
        for index in found:
            for atom in index:
                # A generator along b alone would leave the group when copies of b move apart.
                if atom in parents and not parents[atom] <= set(index):
                    parents[atom] &= set(index)
    ancestry = _ancestry(house, parents)
    names = _names(house)
    factors, owners = _factors(house, ancestry, names, generators)
    leaves = tuple(house.leaf(number, names, generators, owners, factors) for number in range(len(paths)))
    return Symmetry(
        factors=tuple(factors),
        leaves=leaves,
        sizes={names[atom]: atom.size for atom in house.atoms},
        parents={
            names[atom]: tuple(names[a] for a in ancestry.get(atom, ())) for atom in house.atoms
        },
        dimensions=dimensions,
        unused=unused,
    )


class _House:
    """The parameters with their settled blocks."""

    def __init__(
        self,
        paths: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        values: dict[int, Value],
        order: Sequence[int],
        planner: Planner,
        exponents: Exponents,
    ):
        self.paths, self.shapes = paths, shapes
        self.layouts = {number: planner.layout(value) for number, value in values.items()}
        seen = {
            (spot.leaf, spot.key)
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
            for key in layout.keys():
                used = (number, key) in seen
                for (axis, _), atom in layout.atoms(key).items():
                    first[atom] = None
                    if used and (number, axis) not in self.sites.setdefault(atom, []):
                        self.sites[atom].append((number, axis))
        self.atoms = list(first)
        self.permutable = [
            atom for atom in first if not atom.pinned and atom.size > 1 and self.sites.get(atom)
        ]

    def sides(self, number: int, key: tuple[int, ...]) -> dict[tuple, int]:
        """Position -> number of the side in the block reshaped to one axis per atom."""
        return {p: i for i, p in enumerate(self.layouts[number].atoms(key))}

    def leaf(
        self,
        number: int,
        names: dict[Atom, str],
        generators: dict[str, Generators],
        owners: dict[Index, str],
        factors: Sequence[Factor],
    ) -> Leaf:
        layout, shape = self.layouts[number], self.shapes[number]
        if layout.count > MAX_BLOCKS or 0 in shape:
            plain = tuple(AxisLayout(((),), (n,)) for n in shape)
            return Leaf(self.paths[number], shape, plain, ())
        axis_layouts = tuple(
            _axis_layout(product, names, n)
            for product, n in zip(layout.products, shape, strict=True)
        )
        index_of = {factor.name: factor.index for factor in factors}
        blocks = []
        for key in layout.keys():
            atoms = layout.atoms(key)
            weightings = {
                kind: _weightings(number, key, found, owners, index_of, names, self)
                for kind, found in generators.items()
            }
            blocks.append(
                Block(
                    key,
                    tuple(names[a] for a in atoms.values()),
                    tuple(a.size for a in atoms.values())
                    if all(isinstance(p, tuple) for p in layout.products)
                    else shape,
                    weightings["scaling"],
                    weightings["sign"],
                )
            )
        return Leaf(self.paths[number], shape, axis_layouts, tuple(blocks))


def _weightings(
    number: int,
    key: tuple[int, ...],
    generators: Generators,
    owners: dict[Index, str],
    index_of: dict[str, tuple[str, ...]],
    names: dict[Atom, str],
    house: _House,
) -> tuple[Weighting, ...]:
    atoms = house.layouts[number].atoms(key)
    sides = house.sides(number, key)
    found = []
    for index, vectors in generators.items():
        owner = owners[index]
        for generator, vector in enumerate(vectors):
            for spot, exponent in vector.items():
                if (spot.leaf, spot.key) != (number, key):
                    continue
                side = {names[atoms[p]]: sides[p] for p in spot.positions}
                places = tuple(side[name] for name in index_of[owner])
                found.append(Weighting(owner, generator, places, float(exponent)))
    return tuple(found)


def _axis_layout(product: Product, names: dict[Atom, str], length: int) -> AxisLayout:
    if not isinstance(product, tuple):
        return AxisLayout(((),), (length,))
    positions = _positions(product)
    flat = np.concatenate(positions)
    return AxisLayout(
        tuple(tuple(names[a] for a in term) for term in axes.terms(product)),
        tuple(len(p) for p in positions),
        None if np.array_equal(flat, np.arange(length)) else tuple(flat.tolist()),
    )


def _positions(product: Product) -> list[np.ndarray]:
    """For each term of an axis, the flat positions of its entries in row-major order."""
    found = [np.zeros(1, int)]
    for item in product:
        if isinstance(item, Atom):
            parts = [np.arange(item.size)]
        else:
            parts, start = [], 0
            for segment in item.segments:
                parts += [start + p for p in _positions(segment)]
                start += axes.size(segment)
        found = [(f[:, None] * item.size + p).ravel() for f in found for p in parts]
    return found


def _restrict(vector: Row, index: Index, house: _House) -> Row:
    """A generator along a larger index, held uniform along what `index` lacks."""
    total: Row = {}
    for spot, value in vector.items():
        atoms = house.layouts[spot.leaf].atoms(spot.key)
        kept = frozenset(p for p in spot.positions if atoms[p] in index)
        total = add_multiple(total, {Spot(spot.leaf, spot.key, kept): value}, 1, None)
    return total


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


def _dimension(exponents: Exponents, house: _House) -> int:
    """Exact dimension: sum over index sets T of rank(T) times the product of (size - 1)."""
    total = 0
    for index, vectors in exponents.solutions().items():
        rank = Eliminator(exponents.modulus)
        count = sum(rank.insert(vector) for vector in vectors)
        total += count * math.prod(atom.size - 1 for atom in index)
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
        return direct.union(*(up(parent) for parent in direct)) if direct else set()

    ancestors = {atom: up(atom) for atom in house.permutable}
    return {
        atom: sorted(found, key=lambda a: (len(ancestors.get(a, ())), a.number))
        for atom, found in ancestors.items()
    }


def _names(house: _House) -> dict[Atom, str]:
    """Readable names from where an index set is first used; the axis is added where needed."""
    roots = {path.split("/")[0] for path in house.paths if "/" in path}
    strip = roots <= {"params", "batch_stats"}
    wanted: dict[str, list[Atom]] = {}
    where: dict[Atom, tuple[str, int]] = {}
    for atom in house.atoms:
        number, axis = (house.sites.get(atom) or _all_sites(house, atom))[0]
        path = house.paths[number]
        if strip and "/" in path:
            path = path.split("/", 1)[1]
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


def _all_sites(house: _House, atom: Atom) -> list[tuple[int, int]]:
    return [
        (number, axis)
        for number, layout in house.layouts.items()
        for key in layout.keys()
        for (axis, _), other in layout.atoms(key).items()
        if other is atom
    ]


def _factors(
    house: _House,
    ancestry: dict[Atom, list[Atom]],
    names: dict[Atom, str],
    generators: dict[str, Generators],
) -> tuple[list[Factor], dict[Index, str]]:
    indices: dict[frozenset[Atom], list[Atom]] = {}
    permutable = set(house.permutable)
    for atom in house.permutable:
        index = [*ancestry[atom], atom]
        indices[frozenset(index)] = index
    for found in generators.values():
        for index_set in found:
            indices.setdefault(frozenset(index_set), list(index_set))
    factors, owners = [], {}
    place = {atom: number for number, atom in enumerate(house.atoms)}
    for members, index in sorted(
        indices.items(), key=lambda item: [place[a] for a in reversed(item[1])]
    ):
        key = tuple(sorted(members, key=lambda a: a.number))
        counts = {kind: len(found.get(key, ())) for kind, found in generators.items()}
        own = index[-1] if index else None
        moves = own in permutable and index == [*ancestry[own], own]
        kinds = {kind for kind, count in counts.items() if count} | ({"permutation"} if moves else set())
        name = names[own] if own is not None and (moves or len(index) == 1) else " x ".join(
            names[a] for a in index
        )
        name = name or "global"
        owners[key] = name
        factors.append(
            Factor(
                name=name,
                size=own.size if own else 1,
                copies=math.prod(a.size for a in index[:-1]),
                kinds=frozenset(kinds),
                sites=_sites(house, own, moves, key, generators),
                index=tuple(names[a] for a in index),
                scalings=counts["scaling"],
                signs=counts["sign"],
            )
        )
    return factors, owners


def _sites(
    house: _House,
    own: Atom | None,
    moves: bool,
    key: Index,
    generators: dict[str, Generators],
) -> tuple[Site, ...]:
    places: dict[tuple[int, int | None], None] = {}
    if moves and own is not None:
        places |= dict.fromkeys(house.sites[own])
    for found in generators.values():
        for vector in found.get(key, ()):
            for spot in vector:
                atoms = house.layouts[spot.leaf].atoms(spot.key)
                axis = next((p[0] for p in spot.positions if atoms[p] is own), None)
                places[spot.leaf, axis] = None
    return tuple(Site(house.paths[number], axis) for number, axis in places)
