r"""The bilinear objective behind every cost that compares weights with weights.

Two networks, seen through one or more channels (means and standard deviations are two), are paired
block by block:

    J(g) = sum over channels c and blocks b of <A_cb, g . B_cb>.

Along one factor, with all others held, J is linear in its permutation: the gain matrix of unit i of
the reference against unit j of the other is a sum of products, one per block that the factor is a
side of. The products are kept, and brought up to date only for the units that have moved since.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from onebasin.align.signs import Gains, Signature
from onebasin.align.state import State
from onebasin.align.terms import Channel, Term, flat, front, spread, take, two_sided
from onebasin.symmetry import Symmetry


@dataclasses.dataclass(eq=False, slots=True)
class _Kept:
    """A product as it was last computed, and the state of its other side at that time."""

    product: np.ndarray
    permutation: np.ndarray
    signs: np.ndarray | None


class Pairing:
    """The objective, its gain matrices, and what is kept of them."""

    def __init__(self, symmetry: Symmetry, channels: list[Channel], squared: bool = True):
        self.symmetry = symmetry
        self._squared = squared
        self.fixed = 0.0
        self.terms: list[Term] = []
        self.places: dict[str, list[tuple[int, int]]] = {f.name: [] for f in symmetry.factors}
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._constant: dict[tuple[int, int], np.ndarray] = {}
        for channel in channels:
            for leaf, a, b in zip(symmetry.leaves, channel.reference, channel.moving, strict=True):
                for block in leaf.blocks:
                    movable = any(side in symmetry.permutable for side in block.sides)
                    if movable or (block.signs and channel.signed):
                        at = block.at()
                        own, other = (
                            np.ascontiguousarray(x[at].reshape(block.shape)) for x in (a, b)
                        )
                        self.add(Term(block, own, other, channel.signed))
                    else:
                        at = block.at()
                        self.fixed += float(np.sum(a[at] * b[at], dtype=np.float64))
                if not leaf.blocks:
                    self.fixed += float(np.sum(a * b, dtype=np.float64))

    @property
    def weights(self) -> Pairing:
        """The pairing of weights with weights that goes with an objective: itself."""
        return self

    def add(self, term: Term) -> None:
        """One more block to be paired."""
        for axis, side in enumerate(term.sides):
            if side in self.symmetry.permutable:
                self.places[side].append((len(self.terms), axis))
        self.terms.append(term)

    def factors(self) -> list[str]:
        """Factors that this objective can tell anything about."""
        return [
            f.name
            for f in self.symmetry.factors
            if self.places[f.name] or (f.signs and self._sign_terms(f.name))
        ]

    def quadratic(self) -> set[str]:
        """Factors along which the objective is not linear.

        Those that are two sides of one block, and those that others depend on.
        """
        twice = {side for term in self.terms for side in term.sides if term.sides.count(side) > 1}
        return twice.union(*self.symmetry.parents.values())

    def exact(self) -> bool:
        """Whether every term has one movable side only, so that one visit is the optimum."""
        return all(
            sum(side in self.symmetry.permutable for side in term.sides) <= 1
            and len({w.factor for w in term.block.signs}) <= 1
            for term in self.terms
        )

    def neighbours(self, name: str) -> set[str]:
        """Factors whose gains change when this one moves."""
        found: set[str] = set()
        for term in self.terms:
            involved = set(term.sides) | {w.factor for w in term.block.signs}
            if name in involved:
                found |= involved
        return found

    def _sign_terms(self, name: str) -> list[int]:
        return [
            number
            for number, term in enumerate(self.terms)
            if term.signed and any(w.factor == name for w in term.block.signs)
        ]

    def objective(self, state: State) -> float:
        return self.fixed + float(
            sum(
                np.sum(term.reference * self._moved(term, state), dtype=np.float64)
                for term in self.terms
            )
        )

    def gains(self, name: str, state: State) -> Gains:
        """Gain of unit i of the reference against unit j, [parents.., i, j], by sign signature."""
        found: Gains = {}
        for number, axis in self.places[name]:
            signature = self._signature(self.terms[number], name, axis)
            product = self.product(number, axis, state)
            found[signature] = found[signature] + product if signature in found else product
        return found

    def moving_norms(self, name: str) -> np.ndarray:
        """Squared norm of every unit of the moving side, where the cost is a squared distance."""
        total = np.zeros((*self._copies(name), self.symmetry.sizes[name]), np.float32)
        if not self._squared:
            return total
        for number, axis in self.places[name]:
            term = self.terms[number]
            at = [term.sides.index(parent) for parent in self.symmetry.parents[name]]
            norms = np.square(front(term.moving, at, axis)).sum(axis=-1)
            total += norms.reshape(total.shape)
        return total

    def partial_gains(self, name: str, state: State, known: set[str]) -> Gains:
        """Like `gains`, from terms whose other movable sides are all in `known`."""
        found: Gains = {}
        for number, axis in self.places[name]:
            term = self.terms[number]
            others = {side for side in term.sides if side in self.symmetry.permutable} - {name}
            if others <= known:
                signature = self._signature(term, name, axis)
                product = self.product(number, axis, state)
                found[signature] = found[signature] + product if signature in found else product
        return found

    def outer_gains(self, name: str, state: State) -> Gains:
        """Like `gains` for a factor with parents, for every pair of parents: [p, q, i, j]."""
        found: Gains = {}
        parents = self.symmetry.parents[name]
        for number, axis in self.places[name]:
            term = self.terms[number]
            signature = self._signature(term, name, axis)
            at = [term.sides.index(parent) for parent in parents]
            product = self.outer_product(number, axis, at, state)
            found[signature] = found[signature] + product if signature in found else product
        return found

    def outer_product(self, number: int, axis: int, at: list[int], state: State) -> np.ndarray:
        """One term's products for every pair of parents, [p, q, i, j]."""
        term = self.terms[number]
        skip = {axis, *at}
        a = front(self._flipped(term, axis, state, skip), at, axis)
        siblings = [side for side in self._siblings(term, axis) if side in state.permutations]
        if not siblings:
            b = front(self._moved(term, state, skip=skip), at, axis)
            return np.einsum("pir,qjr->pqij", a, b, optimize=True)
        parts = []
        for number, parent in enumerate(np.ndindex(*self._copies(term.sides[axis]))):
            there = self._held_at(parent, siblings, state)
            b = front(self._moved(term, there, skip=skip), at, axis)
            parts.append(np.einsum("ir,qjr->qij", a[number], b, optimize=True))
        return np.stack(parts)

    def _siblings(self, term: Term, axis: int) -> list[str]:
        """The other sides of a term that depend on the same parents."""
        parents = self.symmetry.parents
        own = parents[term.sides[axis]]
        return [
            side
            for i, side in enumerate(term.sides)
            if i != axis and side in parents and parents[side] == own
        ]

    def own_gains(self, name: str, state: State) -> Gains:
        """Gains [i, j] of a parent from terms that none of its children are a side of."""
        children = {k for k, up in self.symmetry.parents.items() if name in up}
        found: Gains = {}
        for number, axis in self.places[name]:
            if not children & set(self.terms[number].sides):
                signature = self._signature(self.terms[number], name, axis)
                product = self.product(number, axis, state)
                found[signature] = found[signature] + product if signature in found else product
        return found

    def sign_gains(self, name: str, state: State, known: set[str] | None = None) -> Gains:
        """Products per index at the present permutations, by sign signature.

        With `known`, from terms that the factor flips along one side, and no others but those.
        """
        found: Gains = {}
        for number in self._sign_terms(name):
            term = self.terms[number]
            own = [w for w in term.block.signs if w.factor == name]
            if known is not None and (
                {w.factor for w in term.block.signs} - {name} - known
                or len({w.places for w in own}) > 1
            ):
                continue
            for places in dict.fromkeys(w.places for w in own):
                product = term.reference * self._moved(term, state, without=(name, places))
                rest = tuple(axis for axis in range(product.ndim) if axis not in places)
                product = product.sum(axis=rest).transpose(np.argsort(np.argsort(places)))
                signature = frozenset(w.generator for w in own if w.places == places)
                found[signature] = found[signature] + product if signature in found else product
        return found

    def _copies(self, name: str) -> tuple[int, ...]:
        return tuple(self.symmetry.sizes[parent] for parent in self.symmetry.parents[name])

    def _signature(self, term: Term, name: str, axis: int) -> Signature:
        if not term.signed:
            return frozenset()
        return frozenset(
            w.generator for w in term.block.signs if w.factor == name and w.places[-1] == axis
        )

    def product(self, number: int, axis: int, state: State) -> np.ndarray:
        """The part of a factor's gains that one term gives, [parents.., i, j]."""
        term = self.terms[number]
        other = self._only_other_side(term, axis)
        if other is not None:
            return self._kept_product(number, axis, other, state)
        if (number, axis) in self._constant:
            return self._constant[number, axis]
        name = term.sides[axis]
        at = [term.sides.index(parent) for parent in self.symmetry.parents[name]]
        a = front(self._flipped(term, axis, state, {axis}), at, axis)
        if (*self.symmetry.parents[name], name) in map(self.symmetry.parents.get, term.sides):
            return self._product_by_place(term, axis, state)
        b = front(self._moved(term, state, skip={axis}), at, axis)
        product = np.matmul(a, b.transpose(0, 2, 1)).reshape(*self._copies(name), *[a.shape[1]] * 2)
        if self._stands_alone(term, axis):
            self._constant[number, axis] = product
        return product

    def _product_by_place(self, term: Term, axis: int, state: State) -> np.ndarray:
        """The part of a parent's gains that a term gives which dependants of it are sides of."""
        name = term.sides[axis]
        parents = self.symmetry.parents
        below = [side for side in term.sides if parents.get(side) == (*parents[name], name)]
        at = [term.sides.index(parent) for parent in parents[name]]
        a = front(self._flipped(term, axis, state, {axis}), at, axis)
        copies, n = self._copies(name), a.shape[1]
        product = np.empty((len(a), n, n), a.dtype)
        for number, place in enumerate(np.ndindex(*copies, n)):
            there = self._held_at(place, below, state)
            row = number // n, number % n
            b = front(self._moved(term, there, skip={axis}), at, axis)[row[0]]
            product[row] = np.einsum("jr,r->j", b, a[row])
        return product.reshape(*copies, n, n)

    def _held_at(self, parent: tuple[int, ...], names: list[str], state: State) -> State:
        """The state with factors as they are where a parent ends, whichever one is moved there."""
        there = State(dict(state.permutations), dict(state.signs))
        for name in names:
            for kind in (there.permutations, there.signs):
                if name in kind:
                    kind[name] = np.broadcast_to(kind[name][parent], kind[name].shape)
        return there

    def _stands_alone(self, term: Term, axis: int) -> bool:
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

    def _kept_product(self, number: int, axis: int, other: int, state: State) -> np.ndarray:
        term = self.terms[number]
        name = term.sides[other]
        permutation = state.permutations[name]
        signs = self._side_signs(term, name, other, state)
        kept = self._kept.get((number, axis))
        a = two_sided(term.reference, axis, other)
        b = two_sided(term.moving, axis, other)
        if kept is not None:
            moved = kept.permutation != permutation
            if signs is not None and kept.signs is not None:
                moved |= kept.signs != signs
            changed = np.flatnonzero(moved)
            if not len(changed):
                return kept.product
            if len(changed) < len(permutation) // 2:
                new = take(b, permutation, signs, changed)
                new = new - take(b, kept.permutation, kept.signs, changed)
                product = kept.product + flat(a[:, changed]) @ flat(new).T
                self._kept[number, axis] = _Kept(product, permutation.copy(), signs)
                return product
        whole = np.arange(len(permutation))
        product = flat(a) @ flat(take(b, permutation, signs, whole)).T
        self._kept[number, axis] = _Kept(product, permutation.copy(), signs)
        return product

    def _side_signs(self, term: Term, name: str, axis: int, state: State) -> np.ndarray | None:
        signature = self._signature(term, name, axis)
        if not signature:
            return None
        return np.prod(state.signs[name][..., sorted(signature)], axis=-1)

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

    def _moved(
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
                moved = np.take(moved, permutation, axis=axis)
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
