"""Products of the terms that a bilinear objective is made of, kept while nothing in them moves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from onebasin.align.signs import Signature
from onebasin.align.state import State, num_roaming
from onebasin.align.terms import (
    Term,
    flat,
    front,
    inner_product,
    spread,
    take,
    take_all,
    two_sided,
)
from onebasin.symmetry import Symmetry

# Numbers that are moved and summed at a time: they stay in the cache.
PART = 2**15


@dataclasses.dataclass(eq=False, slots=True)
class _Kept:
    """A product as it was last computed, and the state of its other side at that time."""

    product: np.ndarray
    permutation: np.ndarray
    signs: np.ndarray | None

    def changed(self, permutation: np.ndarray, signs: np.ndarray | None) -> np.ndarray:
        """The units that stand elsewhere now, or are flipped."""
        moved = self.permutation != permutation
        if signs is not None and self.signs is not None:
            moved |= self.signs != signs
        return np.flatnonzero(moved)


class TermProducts:
    """Terms, and what the units of a factor give in each of them.

    A product is kept, and brought up to date, in place, only for the units that have moved since:
    what was asked for last is good until the same is asked for again.
    """

    def __init__(self, symmetry: Symmetry):
        self.symmetry = symmetry
        self.terms: list[Term] = []
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._constant: dict[tuple[int, int], np.ndarray] = {}
        self._rooms: dict[tuple[tuple[int, ...], np.dtype], np.ndarray] = {}

    def product(self, number: int, axis: int, state: State) -> np.ndarray:
        """The part of a factor's gains that one term gives, [parents.., i, j]."""
        term = self.terms[number]
        other = self._only_other_side(term, axis)
        if other is not None:
            return self._kept_product(number, axis, other, state)
        if (number, axis) in self._constant:
            return self._constant[number, axis]
        product = self.new_product(number, axis, state)
        if self.stands_alone(term, axis):
            self._constant[number, axis] = product
        return product

    def new_product(self, number: int, axis: int, state: State) -> np.ndarray:
        """A product that nothing is kept of, in memory of its own."""
        term = self.terms[number]
        name = term.sides[axis]
        at = [term.sides.index(parent) for parent in self.symmetry.parents[name]]
        a = front(self._flipped(term, axis, state, {axis}), at, axis)
        if (*self.symmetry.parents[name], name) in map(self.symmetry.parents.get, term.sides):
            return self._product_by_place(term, axis, state)
        b = front(self.moved(term, state, skip={axis}), at, axis)
        return np.matmul(a, b.transpose(0, 2, 1)).reshape(*self.copies(name), *[a.shape[1]] * 2)

    def _kept_product(self, number: int, axis: int, other: int, state: State) -> np.ndarray:
        term = self.terms[number]
        name = term.sides[other]
        permutation = state.permutations[name]
        signs = self._side_signs(term, name, other, state)
        kept = self._kept.get((number, axis))
        changed = np.arange(len(permutation))
        if kept is not None:
            changed = kept.changed(permutation, signs)
            if not len(changed):
                return kept.product
        a = two_sided(term.reference, axis, other)
        if kept is not None and len(changed) < len(permutation) // 2:
            b = two_sided(term.moving, axis, other)
            new = take(b, permutation, signs, changed)
            new = new - take(b, kept.permutation, kept.signs, changed)
            kept.product += flat(a[:, changed]) @ flat(new).T
            kept.permutation, kept.signs = permutation.copy(), signs
            return kept.product
        like = term.moving.shape, term.moving.dtype
        if like not in self._rooms:
            self._rooms[like] = np.empty(*like)
        whole = take_all(term.moving, other, permutation, signs, self._rooms[like])
        room = None if kept is None else kept.product
        product = np.matmul(flat(a), flat(two_sided(whole, axis, other)).T, out=room)
        self._kept[number, axis] = _Kept(product, permutation.copy(), signs)
        return product

    def _product_by_place(self, term: Term, axis: int, state: State) -> np.ndarray:
        """The part of a parent's gains that a term gives which dependants of it are sides of."""
        name = term.sides[axis]
        parents = self.symmetry.parents
        below = [side for side in term.sides if parents.get(side) == (*parents[name], name)]
        at = [term.sides.index(parent) for parent in parents[name]]
        a = front(self._flipped(term, axis, state, {axis}), at, axis)
        copies, n = self.copies(name), a.shape[1]
        product = np.empty((len(a), n, n), a.dtype)
        for number, place in enumerate(np.ndindex(*copies, n)):
            there = self._held_at(place, below, state)
            row = number // n, number % n
            b = front(self.moved(term, there, skip={axis}), at, axis)[row[0]]
            product[row] = np.einsum("jr,r->j", b, a[row])
        return product.reshape(*copies, n, n)

    def outer_product(
        self, number: int, axis: int, at: list[int], state: State, steps: Sequence[int] = ()
    ) -> np.ndarray:
        """One term's products for every pair of parents, [s, p, q, i, j]; q of those that roam.

        Args:
            number: Which term.
            axis: The side of the units.
            at: The sides of their parents.
            state: Where all else stands.
            steps: Sides along which nothing is summed: s.
        """
        term = self.terms[number]
        skip = {axis, *at, *steps}
        count = math.prod(term.block.shape[side] for side in steps)
        roam = num_roaming(self.symmetry, term.sides[axis])

        def apart(array: np.ndarray) -> np.ndarray:
            whole = front(array, [*steps, *at], axis)
            return whole.reshape(count, -1, roam, *whole.shape[1:])

        a = apart(self._flipped(term, axis, state, skip))
        siblings = [side for side in self._siblings(term, axis) if side in state.permutations]
        if not siblings or not self.symmetry.parents[term.sides[axis]]:
            b = apart(self.moved(term, state, skip=skip))
            found = np.einsum("stpir,stqjr->stpqij", a, b, optimize=True)
            return found.reshape(count, -1, *found.shape[3:])
        parts = []
        for number, parent in enumerate(np.ndindex(*self.copies(term.sides[axis]))):
            there = self._held_at(parent, siblings, state)
            still, place = divmod(number, roam)
            b = apart(self.moved(term, there, skip=skip))[:, still]
            parts.append(np.einsum("sir,sqjr->sqij", a[:, still, place], b, optimize=True))
        return np.stack(parts, axis=1)

    def value(self, term: Term, state: State) -> float:
        """What one term gives to the objective."""
        orders = [state.permutations.get(side) for side in term.sides]
        flipped = term.signed and term.block.signs
        if flipped or not orders or any(order is not None and order.ndim > 1 for order in orders):
            return inner_product(term.reference, self.moved(term, state))
        first = np.arange(len(term.moving)) if orders[0] is None else orders[0]
        total, rows = 0.0, max(1, PART * len(first) // max(term.moving.size, 1))
        for i in range(0, len(first), rows):
            part = term.moving[first[i : i + rows]]
            for axis, order in enumerate(orders):
                part = part if order is None or not axis else take_all(part, axis, order)
            total += inner_product(term.reference[i : i + rows], part)
        return total

    def moved(
        self,
        term: Term,
        state: State,
        skip: set[int] | frozenset[int] = frozenset(),
        without: tuple[str, tuple[int, ...]] | None = None,
    ) -> np.ndarray:
        """The moving block under the state, but for the sides in `skip` and the signs `without`."""
        moved = term.moving
        parents = self.symmetry.parents
        movable = [i for i, side in enumerate(term.sides) if side in state.permutations]
        for axis in sorted(movable, key=lambda i: len(parents[term.sides[i]])):
            if axis in skip:
                continue
            name = term.sides[axis]
            permutation = state.permutations[name]
            if permutation.ndim == 1:
                moved = take_all(moved, axis, permutation)
            else:
                places = [*(term.sides.index(p) for p in parents[name]), axis]
                moved = np.take_along_axis(moved, spread(permutation, places, moved.ndim), axis)
        if term.signed:
            for w in term.block.signs:
                if (w.factor, w.places) == without or (w.places and w.places[-1] in skip):
                    continue
                sign = spread(state.signs[w.factor][..., w.generator], w.places, moved.ndim)
                moved = moved * sign.astype(moved.dtype)
        return moved

    def _flipped(self, term: Term, axis: int, state: State, skip: set[int]) -> np.ndarray:
        """The reference under the signs of other factors than that of `axis` along `skip`.

        These belong to the place where a unit ends, and not to the unit that is moved there.
        """
        flipped = term.reference
        for w in term.block.signs if term.signed else ():
            if w.places and w.places[-1] in skip and w.factor != term.sides[axis]:
                sign = spread(state.signs[w.factor][..., w.generator], w.places, flipped.ndim)
                flipped = flipped * sign.astype(flipped.dtype)
        return flipped

    def signature(self, term: Term, name: str, axis: int) -> Signature:
        if not term.signed:
            return frozenset()
        return frozenset(
            w.generator for w in term.block.signs if w.factor == name and w.places[-1] == axis
        )

    def _side_signs(self, term: Term, name: str, axis: int, state: State) -> np.ndarray | None:
        signature = self.signature(term, name, axis)
        if not signature:
            return None
        return np.prod(state.signs[name][..., sorted(signature)], axis=-1)

    def copies(self, name: str) -> tuple[int, ...]:
        return tuple(self.symmetry.sizes[parent] for parent in self.symmetry.parents[name])

    def _siblings(self, term: Term, axis: int) -> list[str]:
        """The other sides of a term that depend on the same parents."""
        parents = self.symmetry.parents
        own = parents[term.sides[axis]]
        return [
            side
            for i, side in enumerate(term.sides)
            if i != axis and side in parents and parents[side] == own
        ]

    def _held_at(self, parent: tuple[int, ...], names: list[str], state: State) -> State:
        """The state with factors as they are where a parent ends, whichever one is moved there."""
        there = State(dict(state.permutations), dict(state.signs))
        for name in names:
            for kind in (there.permutations, there.signs):
                if name in kind:
                    kind[name] = np.broadcast_to(kind[name][parent], kind[name].shape)
        return there

    def stands_alone(self, term: Term, axis: int) -> bool:
        """Whether nothing but this side of a term can move."""
        movers = [i for i, side in enumerate(term.sides) if side in self.symmetry.permutable]
        signers = {w.factor for w in term.block.signs} if term.signed else set()
        return movers == [axis] and signers <= {term.sides[axis]}

    def _only_other_side(self, term: Term, axis: int) -> int | None:
        """The one other side that moves, where a product can be kept; None else."""
        if self.symmetry.parents[term.sides[axis]]:
            return None
        others = [
            i for i, side in enumerate(term.sides) if i != axis and side in self.symmetry.permutable
        ]
        own = term.sides[axis]
        if len(others) != 1 or term.sides[others[0]] == own:
            return None
        if self.symmetry.parents[term.sides[others[0]]]:
            return None
        allowed = {own, term.sides[others[0]]}
        if term.signed and any(w.factor not in allowed for w in term.block.signs):
            return None
        return others[0]
