r"""The bilinear objective behind every cost that compares weights with weights.

Two networks, seen through one or more channels (means and standard deviations are two), are paired
block by block:

    J(g) = sum over channels c and blocks b of <A_cb, g . B_cb>.

Along one factor, with all others held, J is linear in its permutation: the gain matrix of unit i of
the reference against unit j of the other is a sum of products, one per block that the factor is a
side of. The products are kept, and brought up to date only for the units that have moved since.
"""

from __future__ import annotations

import math

import numpy as np

from onebasin.align.products import TermProducts
from onebasin.align.signs import Gains, Signature
from onebasin.align.state import State
from onebasin.align.terms import Channel, Term, front, inner_product
from onebasin.symmetry import Symmetry

Place = tuple[int, int]
"""The number of a term, and one of its sides."""


class Pairing:
    """The objective, its gain matrices, and what is kept of them.

    Args:
        symmetry: The group.
        channels: What is paired.
        squared: Whether the cost behind it is a squared distance.
        most: What the objective cannot exceed, as far as the cost tells.
    """

    def __init__(
        self,
        symmetry: Symmetry,
        channels: list[Channel],
        squared: bool = True,
        most: float = math.inf,
    ):
        self.symmetry = symmetry
        self._squared = squared
        self._most = most
        self.fixed = 0.0
        self.products = TermProducts(symmetry)
        self.places: dict[str, list[Place]] = {f.name: [] for f in symmetry.factors}
        self._sums: dict[tuple[tuple[int, ...], np.dtype, Signature], np.ndarray] = {}
        self._still: dict[str, tuple[Gains, list[Place]]] = {}
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
                        self.fixed += inner_product(a[at], b[at])
                if not leaf.blocks:
                    self.fixed += inner_product(a, b)

    @property
    def weights(self) -> Pairing:
        """The pairing of weights with weights that goes with an objective: itself."""
        return self

    @property
    def terms(self) -> list[Term]:
        """The blocks that are paired."""
        return self.products.terms

    def add(self, term: Term) -> None:
        """One more block to be paired."""
        for axis, side in enumerate(term.sides):
            if side in self.symmetry.permutable:
                self.places[side].append((len(self.terms), axis))
                self._still.pop(side, None)
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

    def rises(self) -> bool:
        """Whether no visit lowers the objective."""
        return True

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
        return self.fixed + float(sum(self.products.value(term, state) for term in self.terms))

    def limit(self) -> float:
        """What no state exceeds: blocks as near to one another as their sizes let, or no cost."""
        norms = [inner_product(x, x) for term in self.terms for x in (term.reference, term.moving)]
        return min(self._most, self.fixed + float(np.sqrt(norms[::2]) @ np.sqrt(norms[1::2])))

    def fallbacks(self, state: State) -> dict[str, str]:
        """Factors that are compared in another way than the cost says: none."""
        return {}

    def part(self, names: set[str], state: State) -> float | None:
        """What terms give that no other factors than these can change."""
        movers = self.symmetry.permutable
        return float(
            sum(
                self.products.value(term, state)
                for term in self.terms
                if names >= set(term.sides) & movers | {w.factor for w in term.block.signs}
            )
        )

    def gains(self, name: str, state: State) -> Gains:
        """Gain of unit i of the reference against unit j, [parents.., i, j], by sign signature.

        Good until gains are asked for again, which take the same memory.
        """
        still, places = self.alone(name, state)
        return self._summed(name, state, places, still)

    def alone(self, name: str, state: State) -> tuple[Gains, list[Place]]:
        """What a factor gains in terms where it alone moves, and the places in all others."""
        if name not in self._still:
            alone = [
                self.products.stands_alone(self.terms[number], axis)
                for number, axis in self.places[name]
            ]
            still: Gains = {}
            for (number, axis), yes in zip(self.places[name], alone, strict=True):
                if yes:
                    signature = self.products.signature(self.terms[number], name, axis)
                    product = self.products.new_product(number, axis, state)
                    if signature in still:
                        still[signature] += product
                    else:
                        still[signature] = product
            rest = [place for place, yes in zip(self.places[name], alone, strict=True) if not yes]
            self._still[name] = still, rest
        return self._still[name]

    def _summed(
        self, name: str, state: State, places: list[Place], known: Gains | None = None
    ) -> Gains:
        """The products of a factor at some places, and what is known already."""
        found = dict(known or {})
        for number, axis in places:
            signature = self.products.signature(self.terms[number], name, axis)
            product = self.products.product(number, axis, state)
            if signature not in found:
                found[signature] = product
                continue
            like = product.shape, np.result_type(found[signature], product), signature
            found[signature] = np.add(found[signature], product, out=self._sums.get(like))
            self._sums[like] = found[signature]
        return found

    def moving_norms(self, name: str) -> np.ndarray:
        """Squared norm of every unit of the moving side, where the cost is a squared distance."""
        total = np.zeros((*self.products.copies(name), self.symmetry.sizes[name]), np.float32)
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
        still, places = self.alone(name, state)
        movable = self.symmetry.permutable - {name} - known
        seen = [place for place in places if not movable & set(self.terms[place[0]].sides)]
        return self._summed(name, state, seen, still)

    def outer_gains(self, name: str, state: State) -> Gains:
        """Like `gains` for a factor with parents, for every pair of parents: [p, q, i, j].

        Of the second network's only those that roam: the others stay where they are.
        """
        found: Gains = {}
        parents = self.symmetry.parents[name]
        for number, axis in self.places[name]:
            term = self.terms[number]
            signature = self.products.signature(term, name, axis)
            at = [term.sides.index(parent) for parent in parents]
            product = self.products.outer_product(number, axis, at, state)[0]
            found[signature] = found[signature] + product if signature in found else product
        return found

    def own_gains(self, name: str, state: State) -> Gains:
        """Gains [i, j] of a parent from terms that none of its children are a side of."""
        children = {k for k, up in self.symmetry.parents.items() if name in up}
        places = [
            place for place in self.places[name] if not children & set(self.terms[place[0]].sides)
        ]
        return self._summed(name, state, places)

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
                product = term.reference * self.products.moved(term, state, without=(name, places))
                rest = tuple(axis for axis in range(product.ndim) if axis not in places)
                product = product.sum(axis=rest).transpose(np.argsort(np.argsort(places)))
                signature = frozenset(w.generator for w in own if w.places == places)
                found[signature] = found[signature] + product if signature in found else product
        return found
