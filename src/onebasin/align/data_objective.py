"""The objective that products of activations make, for coordinate descent.

What the products are, `data_cost` says. Where a unit's contribution is compared, the parameter that
reads it enters with the present permutation of its other side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from onebasin.align.measured import Measured
from onebasin.align.pairing import Pairing
from onebasin.align.signs import Gains, Signature, best_signs
from onebasin.align.state import State, matches, paired
from onebasin.align.terms import Term, spread
from onebasin.symmetry import Symmetry

TIE_BREAK = 1e-5


class DataObjective:
    """An objective for coordinate descent, made of products of activations."""

    def __init__(
        self,
        symmetry: Symmetry,
        measured: list[Measured],
        pairing: Pairing,
        weights: Pairing,
        instead: dict[str, str],
    ):
        self.symmetry = symmetry
        self._instead = instead
        self._pairing = pairing
        self.weights = weights
        self._by_factor: dict[str, list[Measured]] = {}
        for each in measured:
            self._by_factor.setdefault(each.factor, []).append(each)
        self._by_turn: dict[str, list[Measured]] = {}
        for each in measured:
            for name in dict.fromkeys(name for name, _ in (*self._turns(each), *each.loose)):
                self._by_turn.setdefault(name, []).append(each)
        self._wholes = set(self._by_turn) - symmetry.permutable
        self._constant = self._norms()

    def products(self) -> Iterator[tuple[Measured, Term | None]]:
        """Everything that is summed, with the parameter that it is multiplied by, if any."""
        for several in self._by_factor.values():
            for each in several:
                yield each, None if each.term is None else self._pairing.terms[each.term]

    def factors(self) -> list[str]:
        named = [f.name for f in self.symmetry.factors if f.name in self._by_factor]
        parents = {p for name in named for p in self.symmetry.parents[name]}
        return [
            f.name
            for f in self.symmetry.factors
            if f.name in self._wholes
            or ("permutation" in f.kinds and (f.name in self._by_factor or f.name in parents))
        ]

    def exact(self) -> bool:
        free = not any(self.symmetry.parents[name] for name in self._by_factor)
        coupled = any(each.term is not None for own in self._by_factor.values() for each in own)
        return free and not coupled and not self._wholes

    def quadratic(self) -> set[str]:
        return set()

    def rises(self) -> bool:
        """Whether no visit lowers the sum: not where a factor enters the products of another."""
        every = [each for own in self._by_factor.values() for each in own]
        return all(each.term is None and not each.loose for each in every)

    def part(self, names: set[str], state: State) -> float | None:
        return None

    def neighbours(self, name: str) -> set[str]:
        found = set()
        for own, several in self._by_factor.items():
            for each in several:
                bound = {own, *(turn for turn, _ in (*self._turns(each), *each.loose))}
                if name in bound and len(bound) > 1:
                    found |= bound
                if each.term is None:
                    continue
                sides = {s for s in self._pairing.terms[each.term].sides if s}
                if name in sides | {own}:
                    found |= (sides | {own}) & self.symmetry.permutable
        return (found | self.weights.neighbours(name)) & set(self.factors())

    def cost(self, objective: float) -> float:
        """Sum of squared distances between matched units' activations (or contributions)."""
        return self._constant - 2 * objective

    def objective(self, state: State) -> float:
        total = 0.0
        for name in self._by_factor:
            permutation = state.permutations[name]
            for signature, gain in self._matched_gains(name, state, loose=False).items():
                own = np.take_along_axis(gain, permutation[..., None], axis=-1)[..., 0]
                if signature:
                    own = own * np.prod(state.signs[name][..., sorted(signature)], axis=-1)
                total += float(own.sum(dtype=np.float64))
            for each in self._by_factor[name]:
                if each.loose:
                    total += float(self._signed(each, state).sum(dtype=np.float64))
        return total

    def limit(self) -> float:
        """What no state exceeds: no distance is below 0."""
        return self._constant / 2

    def gains(self, name: str, state: State) -> Gains:
        """Gains at the parents' present matches, [parents.., i, j]."""
        if name not in self._by_factor:
            return {frozenset(): self._from_children(name, state)}
        found = self._matched_gains(name, state)
        if _told_apart(found):
            return found
        return self.break_ties(found, self.weights.gains(name, state))

    def _matched_gains(self, name: str, state: State, loose: bool = True) -> Gains:
        return {
            signature: self._at_matches(name, full, state)
            for signature, full in self._data_gains(name, state, loose).items()
        }

    def _at_matches(self, name: str, full: np.ndarray, state: State) -> np.ndarray:
        """Products [p, q, i, j] at the parents' present matches, [parents.., i, j]."""
        matched = matches(self.symmetry, name, state)
        found = full[np.arange(matched.size), matched.ravel()]
        return found.reshape(*matched.shape, *found.shape[1:])

    def _from_children(self, name: str, state: State) -> np.ndarray:
        """What a factor that is only read through its dependants would gain, these held."""
        n, parents = self.symmetry.sizes[name], self.symmetry.parents[name]
        copies = [self.symmetry.sizes[parent] for parent in parents]
        total = np.zeros((*copies, n, n), np.float32)
        for child in self._by_factor:
            if self.symmetry.parents[child] != (*parents, name):
                continue
            values, _ = best_signs(
                self.outer_gains(child, state), self.symmetry.factor(child).signs
            )
            pairs = paired(self.symmetry, name, values, state)
            held = state.permutations[child][..., None, :, None]
            total += np.take_along_axis(pairs, held, axis=-1)[..., 0].sum(axis=-1)
        return total

    def partial_gains(self, name: str, state: State, known: set[str]) -> Gains:
        return self.gains(name, state)

    def outer_gains(self, name: str, state: State) -> Gains:
        """Gains for every pair of parents, [p, q, i, j]; q of those that roam."""
        found = self._data_gains(name, state)
        if _told_apart(found):
            return found
        return self.break_ties(found, self.weights.outer_gains(name, state))

    def break_ties(self, found: Gains, weights: Gains) -> Gains:
        """Adds a little of the weights, which alone tell apart what the data never excite."""
        largest = max((float(np.abs(g).max(initial=0)) for g in found.values()), default=0.0)
        heaviest = max((float(np.abs(g).max(initial=0)) for g in weights.values()), default=0.0)
        if not heaviest:
            return found
        scale = np.float32(TIE_BREAK * (largest or 1.0) / heaviest)
        for signature, gain in weights.items():
            held = found.get(signature)
            found[signature] = scale * gain if held is None else held + scale * gain
        return found

    def _data_gains(self, name: str, state: State, loose: bool = True) -> Gains:
        """Gains [p, q, i, j]; places with loose signs, if they are wanted, have the best ones."""
        found: Gains = {}
        for each in self._by_factor.get(name, ()):
            if each.loose and not loose:
                continue
            gram, signature = self._unsigned(each, state)
            if each.loose:
                gram, signature = np.abs(gram), frozenset()
            elif each.turns or each.partner_turns:
                gram = gram * self.turned(each, state)
            _add(found, signature, gram.sum(axis=0))
        return found

    def turned(self, each: Measured, state: State, value_only: bool = False) -> np.ndarray:
        """Signs [s, p, 1, 1, 1] of the value of a place, times those of its partner if wanted."""
        parents = self.symmetry.parents[each.factor]
        sizes = [*each.steps, *(self.symmetry.sizes[p] for p in parents)]
        total = np.ones(sizes, np.float32)
        for name, generator in each.turns + (() if value_only else each.partner_turns):
            index = self.symmetry.factor(name).index
            places = [(*each.layers, *parents).index(side) for side in index]
            total = total * spread(state.signs[name][..., generator], places, len(sizes))
        return total.reshape(math.prod(each.steps), -1, 1, 1, 1)

    def _unsigned(self, each: Measured, state: State) -> tuple[np.ndarray, Signature]:
        """Products of one place before signs of its units and of the whole, and what flips them."""
        if each.partner_gram is not None:
            return each.gram * each.partner_gram, frozenset()
        if each.term is not None:
            return each.gram * self._partner(each, state), frozenset()
        return each.gram, each.flipped_by

    def own_gains(self, name: str, state: State) -> Gains:
        return self.gains(name, state) if name in self._by_factor else {}

    def moving_norms(self, name: str) -> np.ndarray:
        """Squared norm of every moving unit's activation (or contribution), [parents.., j]."""
        copies = tuple(self.symmetry.sizes[p] for p in self.symmetry.parents[name])
        total = np.zeros((*copies, self.symmetry.sizes[name]), np.float32)
        for each in self._by_factor.get(name, ()):
            norms = each.norms[1]
            if each.partner_norms is not None:
                norms = norms * each.partner_norms[1]
            total += norms.sum(axis=0).reshape(total.shape)
        return total

    def sign_gains(self, name: str, state: State) -> Gains:
        """What the signs of a factor decide at the present matches, all else held, by signature."""
        found: Gains = {}
        there = State(state.permutations, state.signs | {name: np.ones_like(state.signs[name])})
        for each in self._by_factor.get(name, ()):
            if each.flipped_by and not each.loose:
                gram = each.gram * self.turned(each, there, value_only=True)
                own = self._matched(each, gram, there)
                _add(found, each.flipped_by, own.sum(axis=tuple(range(len(each.steps)))))
        index = self.symmetry.factor(name).index
        for each in self._by_turn.get(name, ()):
            sides = self._sides(each)
            rest = tuple(n for n, side in enumerate(sides) if side not in index)
            kept = [side for side in sides if side in index]
            own = self._signed(each, there).sum(axis=rest)
            signs = (*self._turns(each), *each.loose)
            signature = frozenset(g for turn, g in signs if turn == name)
            _add(found, signature, own.transpose([kept.index(side) for side in index]))
        return found

    def _sides(self, each: Measured) -> tuple[str, ...]:
        """The index sets of what a place gives for each unit."""
        return *each.layers, *self.symmetry.parents[each.factor], each.factor

    def _signed(self, each: Measured, state: State) -> np.ndarray:
        """What one place gives for each matched unit, all signs as they are."""
        gram, flipped = self._unsigned(each, state)
        own = self._matched(each, gram * self.turned(each, state), state)
        if flipped:
            own = own * np.prod(state.signs[each.factor][..., sorted(flipped)], axis=-1)
        sides = self._sides(each)
        for name, generator in each.loose:
            places = [sides.index(side) for side in self.symmetry.factor(name).index]
            own = own * spread(state.signs[name][..., generator], places, len(sides))
        return own

    def _matched(self, each: Measured, gram: np.ndarray, state: State) -> np.ndarray:
        """Products [steps.., parents.., i] of matched units."""
        own = np.stack([self._at_matches(each.factor, step, state) for step in gram])
        columns = state.permutations[each.factor][None, ..., None]
        found = np.take_along_axis(own, columns, axis=-1)[..., 0]
        return found.reshape(*each.steps, *found.shape[1:])

    def _turns(self, each: Measured) -> frozenset[tuple[str, int]]:
        """The signs that flip what a place is compared by, its value times the partner if any.

        But for those of its own units: as a whole, or all units of a parent or of a step.
        """
        if each.term is None:
            return frozenset(each.turns) ^ frozenset(each.partner_turns)
        signs = self._pairing.terms[each.term].block.signs
        whole = {*each.layers, *self.symmetry.parents[each.factor]}
        return frozenset(each.turns) ^ {
            (w.factor, w.generator)
            for w in signs
            if not w.places or whole.issuperset(self.symmetry.factor(w.factor).index)
        }

    def fallbacks(self, state: State) -> dict[str, str]:
        """Factors that are not, or not all, compared as the cost says, and how instead."""
        return dict.fromkeys(self.untold(state), "partly by weights") | self._instead

    def untold(self, state: State) -> list[str]:
        """Factors with units that the data do not tell apart; weights do that for them."""
        return [n for n in self._by_factor if not _told_apart(self._matched_gains(n, state))]

    def _partner(self, each: Measured, state: State) -> np.ndarray:
        """Products of the parameter's side of a contribution, other sides as they are now."""
        assert each.term is not None
        term = self._pairing.terms[each.term]
        axis = term.sides.index(each.factor)
        at = [term.sides.index(p) for p in self.symmetry.parents[each.factor]]
        if not at and not each.steps:
            return self._pairing.products.product(each.term, axis, state)[None, None, None]
        return self._pairing.products.outer_product(each.term, axis, at, state, each.term_steps)

    def _norms(self) -> float:
        total = 0.0
        for several in self._by_factor.values():
            for each in several:
                for which in (0, 1):
                    own = each.norms[which].astype(np.float64)
                    if each.partner_norms is not None:
                        own = own * each.partner_norms[which]
                    total += float(own.sum())
        return total


def _add(found: Gains, signature: Signature, gain: np.ndarray) -> None:
    found[signature] = found[signature] + gain if signature in found else gain


def _told_apart(found: Gains) -> bool:
    """Whether every unit of both networks has a partner that the data prefer."""
    total = functools.reduce(np.add, (np.abs(gain) for gain in found.values()))
    least = TIE_BREAK**2 * total.max(initial=0)
    return bool((total.max(axis=-1) > least).all() and (total.max(axis=-2) > least).all())
