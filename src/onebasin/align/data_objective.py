"""The objective that products of activations make, for coordinate descent.

What the products are, `data_cost` says. Where a unit's contribution is compared, the parameter that
reads it enters with the present permutation of its other side.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from onebasin.align.pairing import Pairing
from onebasin.align.signs import Gains, Signature, best_signs
from onebasin.align.state import State
from onebasin.align.terms import Term
from onebasin.symmetry import Symmetry

TIE_BREAK = 1e-5
MOST_FLIPS = 32


@dataclasses.dataclass(eq=False, slots=True)
class Measured:
    """What one place of a factor gives, summed over the data.

    Attributes:
        factor: The factor that is read there.
        gram: Products [p, q, i, j] of the reference's units with the other's; p, q their parents.
        norms: Squared norms [p, i] of the reference's units, and of the other's.
        flipped_by: The sign generators of the factor that flip the value.
        wholes: Signs (factor, generator) that flip the value as a whole, as those before a
            LayerNorm do.
        partner_gram: The same products of what the value is multiplied by, if that is data.
        partner_norms: Its squared norms.
        partner_wholes: The signs that flip it as a whole, if it is data.
        term: The number of the parameter that it is multiplied by, among the terms of a pairing.
    """

    factor: str
    gram: np.ndarray
    norms: tuple[np.ndarray, np.ndarray]
    flipped_by: Signature
    wholes: tuple[tuple[str, int], ...] = ()
    partner_gram: np.ndarray | None = None
    partner_norms: tuple[np.ndarray, np.ndarray] | None = None
    partner_wholes: tuple[tuple[str, int], ...] = ()
    term: int | None = None


class DataObjective:
    """An objective for coordinate descent, made of products of activations."""

    def __init__(
        self,
        symmetry: Symmetry,
        measured: list[Measured],
        pairing: Pairing,
        weights: Pairing,
    ):
        self.symmetry = symmetry
        self._pairing = pairing
        self.weights = weights
        self._by_factor: dict[str, list[Measured]] = {}
        for each in measured:
            self._by_factor.setdefault(each.factor, []).append(each)
        self._by_whole: dict[str, list[Measured]] = {}
        for each in measured:
            for name in dict.fromkeys(name for name, _ in self._turns(each)):
                self._by_whole.setdefault(name, []).append(each)
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
            if f.name in self._by_whole
            or ("permutation" in f.kinds and (f.name in self._by_factor or f.name in parents))
        ]

    def exact(self) -> bool:
        free = not any(self.symmetry.parents[name] for name in self._by_factor)
        coupled = any(each.term is not None for own in self._by_factor.values() for each in own)
        return free and not coupled and not self._by_whole

    def quadratic(self) -> set[str]:
        return set()

    def neighbours(self, name: str) -> set[str]:
        found = set()
        for own, several in self._by_factor.items():
            for each in several:
                bound = {own, *(whole for whole, _ in self._turns(each))}
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
            for signature, gain in self._matched_gains(name, state).items():
                own = np.take_along_axis(gain, permutation[..., None], axis=-1)[..., 0]
                if signature:
                    own = own * np.prod(state.signs[name][..., sorted(signature)], axis=-1)
                total += float(own.sum(dtype=np.float64))
        return total

    def gains(self, name: str, state: State) -> Gains:
        """Gains at the parents' present matches, [parents.., i, j]."""
        if name not in self._by_factor:
            return {frozenset(): self._from_children(name, state)}
        found = self._matched_gains(name, state)
        if _told_apart(found):
            return found
        return self._with_weights(found, self.weights.gains(name, state))

    def _matched_gains(self, name: str, state: State) -> Gains:
        return {
            signature: self._at_matches(name, full, state)
            for signature, full in self._data_gains(name, state).items()
        }

    def _at_matches(self, name: str, full: np.ndarray, state: State) -> np.ndarray:
        """Products [p, q, i, j] at the parents' present matches, [parents.., i, j]."""
        parents = self.symmetry.parents[name]
        n = self.symmetry.sizes[name]
        copies = tuple(self.symmetry.sizes[p] for p in parents)
        rows = np.arange(int(np.prod(copies, dtype=int)))
        matched = rows
        if parents:
            from_each = [
                state.permutations.get(p, np.arange(self.symmetry.sizes[p])) for p in parents
            ]
            grids = np.meshgrid(*from_each, indexing="ij")
            matched = np.ravel_multi_index([g.ravel() for g in grids], copies)
        return full[rows, matched].reshape(*copies, n, n)

    def _from_children(self, name: str, state: State) -> np.ndarray:
        """What a factor that is only read through its dependants would gain, these held."""
        n = self.symmetry.sizes[name]
        total = np.zeros((n, n), np.float32)
        for child in self._by_factor:
            if self.symmetry.parents[child] != (name,):
                continue
            values, _ = best_signs(
                self.outer_gains(child, state), self.symmetry.factor(child).signs
            )
            held = state.permutations[child]
            for p in range(n):
                picked = values[p][:, np.arange(values.shape[-1]), held[p]]
                total[p] += picked.sum(axis=-1)
        return total

    def partial_gains(self, name: str, state: State, known: set[str]) -> Gains:
        return self.gains(name, state)

    def outer_gains(self, name: str, state: State) -> Gains:
        """Gains for every pair of parents, [p, q, i, j]."""
        found = self._data_gains(name, state)
        if _told_apart(found):
            return found
        return self._with_weights(found, self.weights.outer_gains(name, state))

    def _with_weights(self, found: Gains, weights: Gains) -> Gains:
        """Breaks ties: units that the data never excite are told apart by their weights alone."""
        largest = max((float(np.abs(g).max(initial=0)) for g in found.values()), default=0.0)
        heaviest = max((float(np.abs(g).max(initial=0)) for g in weights.values()), default=0.0)
        if not heaviest:
            return found
        scale = np.float32(TIE_BREAK * (largest or 1.0) / heaviest)
        for signature, gain in weights.items():
            held = found.get(signature)
            found[signature] = scale * gain if held is None else held + scale * gain
        return found

    def _data_gains(self, name: str, state: State) -> Gains:
        found: Gains = {}
        for each in self._by_factor.get(name, ()):
            gram, signature = self._unsigned(each, state)
            if each.wholes or each.partner_wholes:
                gram = gram * _product(each.wholes + each.partner_wholes, state)
            found[signature] = found[signature] + gram if signature in found else gram
        return found

    def _unsigned(self, each: Measured, state: State) -> tuple[np.ndarray, Signature]:
        """Products of one place before signs of its units and of the whole, and what flips them."""
        if each.partner_gram is not None:
            return each.gram * each.partner_gram, frozenset()
        if each.term is not None:
            return each.gram * self._partner(each, state), frozenset()
        return each.gram, each.flipped_by

    def own_gains(self, name: str, state: State) -> np.ndarray:
        n = self.symmetry.sizes[name]
        if name not in self._by_factor:
            return np.zeros((n, n), np.float32)
        totals, _ = best_signs(self.gains(name, state), self.symmetry.factor(name).signs)
        return totals

    def moving_norms(self, name: str) -> np.ndarray:
        """Squared norm of every moving unit's activation (or contribution), [parents.., j]."""
        copies = tuple(self.symmetry.sizes[p] for p in self.symmetry.parents[name])
        total = np.zeros((*copies, self.symmetry.sizes[name]), np.float32)
        for each in self._by_factor.get(name, ()):
            norms = each.norms[1]
            if each.partner_norms is not None:
                norms = norms * each.partner_norms[1]
            total += norms.reshape(total.shape)
        return total

    def sign_gains(self, name: str, state: State) -> Gains:
        """What the signs of values as a whole decide, all else held, by signature."""
        found: Gains = {}
        there = State(state.permutations, state.signs | {name: np.ones_like(state.signs[name])})
        for each in self._by_whole.get(name, ()):
            gram, flipped = self._unsigned(each, there)
            own = self._at_matches(each.factor, gram, there)
            columns = there.permutations[each.factor]
            own = np.take_along_axis(own, columns[..., None], axis=-1)[..., 0]
            if flipped:
                own = own * np.prod(there.signs[each.factor][..., sorted(flipped)], axis=-1)
            signature = frozenset(g for whole, g in self._turns(each) if whole == name)
            total = own.sum() * _product(each.wholes + each.partner_wholes, there)
            found[signature] = found[signature] + total if signature in found else total
        return found

    def _turns(self, each: Measured) -> frozenset[tuple[str, int]]:
        """The signs that flip what a place is compared by, its value times the partner if any."""
        if each.term is None:
            return frozenset(each.wholes) ^ frozenset(each.partner_wholes)
        signs = self._pairing.terms[each.term].block.signs
        return frozenset(each.wholes) ^ {(w.factor, w.generator) for w in signs if not w.places}

    def untold(self, state: State) -> list[str]:
        """Factors with units that the data do not tell apart; weights do that for them."""
        return [n for n in self._by_factor if not _told_apart(self._matched_gains(n, state))]

    def _partner(self, each: Measured, state: State) -> np.ndarray:
        """Products of the parameter's side of a contribution, other sides as they are now."""
        assert each.term is not None
        term = self._pairing.terms[each.term]
        axis = term.sides.index(each.factor)
        at = [term.sides.index(p) for p in self.symmetry.parents[each.factor]]
        if not at:
            return self._pairing.product(each.term, axis, state)[None, None]
        return self._pairing.outer_product(each.term, axis, at, state)

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

    def settle_signs(self, state: State) -> None:
        """Signs that the activations decide, and where they leave them open, the weights."""
        self._settle_signs(state)
        signed = [f for f in self.symmetry.factors if f.signs]
        if all(f.index and f.signs == 1 for f in signed):
            return
        # Signs of a whole, and those of all units together, are bound up with one another.
        for name, generator in [(f.name, g) for f in signed for g in range(f.signs)][:MOST_FLIPS]:
            trial = state.copy()
            trial.signs[name][..., generator] *= -1
            self._settle_signs(trial, held=name)
            self._settle_signs(trial)
            if self._nearer(trial, state):
                state.signs = trial.signs

    def _nearer(self, trial: State, state: State) -> bool:
        """Whether the activations, and if they do not care the weights, prefer a state."""
        new, old = self.objective(trial), self.objective(state)
        if abs(new - old) > 1e-5 * max(abs(new), abs(old)):
            return new > old
        return self.weights.objective(trial) > self.weights.objective(state)

    def _settle_signs(self, state: State, held: str | None = None) -> None:
        signed = [f for f in self.symmetry.factors if f.signs and f.name != held]
        # First one after the other, on weights that no factor further on can flip.
        known: set[str] | None = {held} if held else set()
        for _ in range(5):
            before = {k: v.copy() for k, v in state.signs.items()}
            for factor in signed:
                seen = self._sign_gains(factor.name, state)
                gains = self._with_weights(seen, self.weights.sign_gains(factor.name, state, known))
                if gains:
                    state.signs[factor.name] = best_signs(gains, factor.signs)[1]
                if known is not None:
                    known.add(factor.name)
            if known is None and all(np.array_equal(before[k], state.signs[k]) for k in before):
                break
            known = None

    def _sign_gains(self, name: str, state: State) -> Gains:
        """Products of matched units by signature, [parents.., i], where signs flip them."""
        found: Gains = {}
        if name in self._by_whole:
            return self.sign_gains(name, state)
        for each in self._by_factor.get(name, ()):
            if each.flipped_by:
                own = self._at_matches(name, each.gram, state)
                own = np.take_along_axis(own, state.permutations[name][..., None], axis=-1)[..., 0]
                own = own * _product(each.wholes, state)
                held = found.get(each.flipped_by)
                found[each.flipped_by] = own if held is None else held + own
        return found


def _product(wholes: tuple[tuple[str, int], ...], state: State) -> np.float32:
    return np.prod([state.signs[n][..., g] for n, g in wholes], dtype=np.float32)


def _told_apart(found: Gains) -> bool:
    """Whether every unit of both networks has a partner that the data prefer."""
    total = functools.reduce(np.add, (np.abs(gain) for gain in found.values()))
    least = TIE_BREAK**2 * total.max(initial=0)
    return bool((total.max(axis=-1) > least).all() and (total.max(axis=-2) > least).all())
