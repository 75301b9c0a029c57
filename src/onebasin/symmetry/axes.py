"""Axis expressions: what an array axis is made of, and how two axes are made one.

An axis is a row-major product of items. An item is an `Atom` (an index set that may turn out to be
permutable) or a `Sum` of several products laid end to end. Reshapes make products, concatenation
and slicing make sums. An atom can be bound to an expression; every axis that mentions it is refined
by that alone, so parameters seen long before a reshape learn of it without a second pass.

Two markers stand for axes without structure: `ANY`, along which a value is uniform (it agrees with
every axis and ties nothing), and `FIXED`, whose positions are told apart by something that is not a
parameter (inputs, constants, windows): whatever meets it is pinned.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Sequence

MAX_SEGMENTS = 512


class Marker(enum.Enum):
    """Axes that carry no index set of their own."""

    ANY = "any"
    FIXED = "fixed"


ANY = Marker.ANY
FIXED = Marker.FIXED


class Atom:
    """An index set that is not known to be composite; `pinned` when its order matters."""

    __slots__ = ("bound", "number", "pinned", "size")
    _numbers = itertools.count()

    def __init__(self, size: int, pinned: bool = False):
        self.size = int(size)
        self.pinned = pinned
        self.bound: Product | None = None
        self.number = next(Atom._numbers)

    def __repr__(self) -> str:
        return f"{'!' if self.pinned else ''}a{self.number}:{self.size}"


class Sum:
    """Two or more products laid end to end along one axis."""

    __slots__ = ("segments",)

    def __init__(self, segments: tuple[Product, ...]):
        self.segments = segments

    @property
    def size(self) -> int:
        return sum(size(segment) for segment in self.segments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and self.segments == other.segments

    def __hash__(self) -> int:
        return hash(self.segments)

    def __repr__(self) -> str:
        return "(" + " + ".join(map(repr, self.segments)) + ")"


class Shuffled:
    """An axis in another order: at place i stands what is at `order[i]` of the product.

    Made when all else is settled, so that it is never refined.
    """

    __slots__ = ("order", "product")

    def __init__(self, product: Product, order: tuple[int, ...]):
        self.product, self.order = product, order

    @property
    def size(self) -> int:
        return len(self.order)

    def __eq__(self, other: object) -> bool:
        own = (self.product, self.order)
        return isinstance(other, Shuffled) and own == (other.product, other.order)

    def __hash__(self) -> int:
        return hash((self.product, self.order))


Item = Atom | Sum | Shuffled
Product = tuple[Item, ...]
Axis = Product | Marker


def fresh(length: int, pinned: bool = False) -> Product:
    """A new index set of the given length; length 1 is the empty product."""
    return () if length == 1 else (Atom(length, pinned),)


def size(product: Product) -> int:
    return math.prod(item.size for item in product)


def atoms(product: Product) -> list[Atom]:
    """All atoms of a resolved product, in order of appearance."""
    found: list[Atom] = []
    for item in product:
        if isinstance(item, Atom):
            found.append(item)
        elif isinstance(item, Shuffled):
            found.extend(atoms(item.product))
        else:
            for segment in item.segments:
                found.extend(atoms(segment))
    return found


def concatenate(parts: Iterable[Product]) -> Product:
    """Products laid end to end, with nested sums spliced and empty ranges dropped."""
    segments: list[Product] = []
    for part in parts:
        if len(part) == 1 and isinstance(part[0], Sum):
            segments.extend(part[0].segments)
        elif size(part):
            segments.append(part)
    if len(segments) < 2:
        return segments[0] if segments else fresh(0)
    return (Sum(tuple(segments)),)


def resolve(product: Product) -> Product:
    """The canonical form: bindings substituted, sums distributed over what follows them."""
    items: list[Item] = []
    changed = False
    for item in product:
        if isinstance(item, Atom):
            if item.bound is None:
                items.append(item)
            else:
                item.bound = resolve(item.bound)
                items.extend(item.bound)
                changed = True
        elif isinstance(item, Shuffled):
            items.append(Shuffled(resolve(item.product), item.order))
            changed |= items[-1] != item
        else:
            segments = tuple(resolve(segment) for segment in item.segments)
            if segments == item.segments:
                items.append(item)
            else:
                items.extend(concatenate(segments))
                changed = True
    for place, item in enumerate(items[:-1]):
        if isinstance(item, Sum):
            rest = tuple(items[place + 1 :])
            spread = concatenate(segment + rest for segment in item.segments)
            return resolve((*items[:place], *spread))
    return tuple(items) if changed else product


def pin(axis: Axis) -> None:
    """Marks every index set of the axis as one whose order matters."""
    if isinstance(axis, tuple):
        for atom in atoms(resolve(axis)):
            atom.pinned = True


def _bind(atom: Atom, product: Product) -> None:
    atom.bound = product
    if atom.pinned:
        pin(product)


def cut(product: Product, position: int) -> tuple[Product, Product]:
    """Refines a product so that it falls apart at `position`; returns both sides."""
    product = resolve(product)
    if position == 0:
        return fresh(0), product
    if position == size(product):
        return product, fresh(0)
    head = product[0]
    if isinstance(head, Sum):
        if len(head.segments) >= MAX_SEGMENTS:
            raise Clash
        left: list[Product] = []
        segments = list(head.segments)
        while position >= size(segments[0]):
            position -= size(segments[0])
            left.append(segments.pop(0))
        if position:
            first, second = cut(segments[0], position)
            left.append(first)
            segments[0] = second
        return concatenate(left), concatenate(segments)
    if isinstance(head, Shuffled):
        raise Clash
    rest = product[1:]
    if not rest:
        first, second = fresh(position), fresh(head.size - position)
        _bind(head, concatenate([first, second]))
        return first, second
    whole, part = divmod(position, size(rest))
    before, after = cut((head,), whole)
    if not part:
        return resolve(before + rest), resolve(after + rest)
    _middle, after = cut(after, 1)
    first, second = cut(rest, part)
    rest = resolve(rest)
    pieces_before = [resolve(before + rest)] if size(before) else []
    pieces_after = [resolve(after + rest)] if size(after) else []
    return concatenate([*pieces_before, first]), concatenate([second, *pieces_after])


def split(product: Product, outer: int) -> tuple[Product, Product]:
    """Refines a product into an outer factor of the given size and the inner rest."""
    product = resolve(product)
    if not size(product) or size(product) % outer:
        raise Clash
    taken: list[Item] = []
    while outer > 1:
        head, rest = product[0], product[1:]
        if isinstance(head, Sum):
            inner = size(product) // outer
            if any(size(segment) % inner for segment in head.segments):
                raise Clash
            pairs = [split(segment, size(segment) // inner) for segment in head.segments]
            for _, other in pairs[1:]:
                unify(pairs[0][1], other)
            outers = concatenate(first for first, _ in pairs)
            return resolve(tuple(taken) + outers), resolve(pairs[0][1])
        if isinstance(head, Shuffled):
            raise Clash
        if outer % head.size == 0:
            taken.append(head)
            outer //= head.size
            product = resolve(rest)
        elif head.size % outer == 0:
            first, second = fresh(outer), fresh(head.size // outer)
            _bind(head, first + second)
            taken.extend(first)
            product = resolve(second + rest)
            outer = 1
        else:
            raise Clash
    return resolve(tuple(taken)), resolve(product)


class Clash(Exception):
    """Two factorings of one axis have no common refinement; the caller pins them."""


def unify(left: Product, right: Product) -> None:
    """Makes two axes one index set, refining both as far as needed.

    Raises:
        Clash: if neither divisors nor cuts give a common refinement.
    """
    while True:
        left, right = resolve(left), resolve(right)
        if left == right:
            return
        if not left or not right:
            raise Clash
        a, b = left[0], right[0]
        if a == b:
            left, right = left[1:], right[1:]
        elif _is_whole(left, right) or _is_whole(right, left):
            atom, parts = (a, right) if isinstance(a, Atom) else (b, left)
            assert isinstance(atom, Atom)
            _bind(atom, parts)
            return
        elif isinstance(a, Sum) or isinstance(b, Sum):
            for first, second in _common_cuts(left, right):
                unify(first, second)
            return
        elif isinstance(a, Shuffled) or isinstance(b, Shuffled):
            raise Clash
        elif a.size == b.size:
            old, new = (a, b) if a.number > b.number else (b, a)
            new.pinned |= old.pinned
            old.bound = (new,)
        elif a.size % b.size == 0:
            _bind(a, fresh(b.size) + fresh(a.size // b.size))
        elif b.size % a.size == 0:
            _bind(b, fresh(a.size) + fresh(b.size // a.size))
        else:
            raise Clash


def _is_whole(left: Product, right: Product) -> bool:
    """Whether one is an index set of which nothing is known, and the other a sum."""
    head = right[0]
    if len(left) != 1 or not isinstance(left[0], Atom) or not isinstance(head, Sum):
        return False
    return len(head.segments) < MAX_SEGMENTS


def _common_cuts(left: Product, right: Product) -> list[tuple[Product, Product]]:
    positions = sorted(set(_boundaries(left)) | set(_boundaries(right)))
    pairs = []
    for position in reversed(positions):
        left, tail_left = cut(left, position)
        right, tail_right = cut(right, position)
        pairs.append((tail_left, tail_right))
    pairs.append((left, right))
    return pairs


def _boundaries(product: Product) -> Sequence[int]:
    head = product[0]
    if not isinstance(head, Sum):
        return ()
    return list(itertools.accumulate(size(segment) for segment in head.segments))[:-1]


def meet(axes: Iterable[Axis]) -> Axis:
    """The axis of an elementwise result: all made one, pinned where something tells them apart."""
    result: Axis = ANY
    for axis in axes:
        if axis is ANY:
            continue
        if result is ANY:
            result = axis
        elif axis is FIXED or result is FIXED:
            pin(axis)
            pin(result)
            result = axis if result is FIXED else result
        else:
            assert isinstance(result, tuple) and isinstance(axis, tuple)
            try:
                unify(result, axis)
            except Clash:
                pin(result)
                pin(axis)
    return result


Term = tuple[Atom, ...]


def terms(product: Product) -> list[Term]:
    """The blocks of a resolved axis: one tuple of atoms per choice of segments, row-major."""
    choices: list[list[Term]] = []
    for item in product:
        if isinstance(item, Atom):
            choices.append([(item,)])
        elif isinstance(item, Shuffled):
            choices.append(terms(item.product))
        else:
            choices.append([term for segment in item.segments for term in terms(segment)])
    return [tuple(itertools.chain.from_iterable(pick)) for pick in itertools.product(*choices)]
