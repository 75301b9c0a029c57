r"""Costs that look at the networks at work.

For a contraction sum_i l_i r_i over a factor's index, unit i of the reference is compared with unit
j of the other network by

    activations     <h_i, h_j>           h the operand that depends on the data
    correlation     the same, centred and divided by both standard deviations
    preactivations  <z_i, z_j>           z what a contraction gives to the factor: the weights in
                                         the metric that the data induce
    contributions   <l_i, l_j> <r_i, r_j>   what the unit adds to the next layer, l_i r_i

summed over examples, positions and every contraction that reads the factor. The contribution of a
unit does not change when it is rescaled or flipped. Where one operand is a parameter, its product
uses the present permutation of its other side, so deep networks need coordinate descent; for a
convolution the windows of both kernels are compared tap by tap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.pairing import Channel, Pairing, Term
from onebasin.align.signs import Gains, Signature, best_signs
from onebasin.align.state import State
from onebasin.symmetry import Symmetry
from onebasin.symmetry.capture import Captured, Contraction, Probe
from onebasin.symmetry.elements import Block, Element

TIE_BREAK = 1e-5


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A place where a factor is read: a captured value's block, and its partner if it is wanted."""

    factor: str
    value: Captured
    block: Block
    partner: Captured | None = None
    partner_block: Block | None = None


@dataclasses.dataclass(eq=False, slots=True)
class _Measured:
    """Products over the data, [p, q, i, j], and what is needed to price and to sign them."""

    site: Site
    gram: np.ndarray
    norms: tuple[np.ndarray, np.ndarray]
    flipped_by: Signature
    partner_gram: np.ndarray | None = None
    partner_norms: tuple[np.ndarray, np.ndarray] | None = None
    term: int | None = None


class DataObjective:
    """An objective for coordinate descent, made of products of activations."""

    def __init__(
        self,
        symmetry: Symmetry,
        measured: list[_Measured],
        pairing: Pairing,
        weights: Pairing,
    ):
        self.symmetry = symmetry
        self._pairing = pairing
        self.weights = weights
        self._by_factor: dict[str, list[_Measured]] = {}
        for each in measured:
            self._by_factor.setdefault(each.site.factor, []).append(each)
        self._constant = self._norms()

    def factors(self) -> list[str]:
        named = [f.name for f in self.symmetry.factors if f.name in self._by_factor]
        parents = {p for name in named for p in self.symmetry.parents[name]}
        return [
            f.name
            for f in self.symmetry.factors
            if "permutation" in f.kinds and (f.name in self._by_factor or f.name in parents)
        ]

    def exact(self) -> bool:
        free = not any(self.symmetry.parents[name] for name in self.factors())
        coupled = any(each.term is not None for own in self._by_factor.values() for each in own)
        return free and not coupled

    def quadratic(self) -> set[str]:
        return set()

    def neighbours(self, name: str) -> set[str]:
        found = set()
        for own, several in self._by_factor.items():
            for each in several:
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
        return self._with_weights(found, self.weights.gains(name, state))

    def _matched_gains(self, name: str, state: State) -> Gains:
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
        return {
            signature: full[rows, matched].reshape(*copies, n, n)
            for signature, full in self._data_gains(name, state).items()
        }

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
            gram = each.gram
            signature = each.flipped_by
            if each.partner_gram is not None:
                gram, signature = gram * each.partner_gram, frozenset()
            elif each.term is not None:
                gram, signature = gram * self._partner(each, state), frozenset()
            found[signature] = found[signature] + gram if signature in found else gram
        return found

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
        raise AssertionError(f"factor {name!r} is not one of this objective's")

    def _partner(self, each: _Measured, state: State) -> np.ndarray:
        """Products of the parameter's side of a contribution, other sides as they are now."""
        assert each.term is not None
        term = self._pairing.terms[each.term]
        axis = term.sides.index(each.site.factor)
        at = [term.sides.index(p) for p in self.symmetry.parents[each.site.factor]]
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
        """Signs that the activations decide, then all others by the weights."""
        decided: dict[str, set[int]] = {}
        for name, several in self._by_factor.items():
            count = self.symmetry.factor(name).signs
            if not count:
                continue
            gains: Gains = {}
            for each in several:
                if each.flipped_by:
                    held = gains.get(each.flipped_by, 0.0)
                    gains[each.flipped_by] = held + self._matched(each, state)
            if gains:
                _, signs = best_signs(gains, count)
                decided[name] = set().union(*gains)
                for generator in decided[name]:
                    state.signs[name][..., generator] = signs[..., generator]
        for _ in range(4):
            before = {k: v.copy() for k, v in state.signs.items()}
            for factor in self.symmetry.factors:
                if factor.signs:
                    signs = self.weights.best_signs_held(factor.name, state)
                    for generator in range(factor.signs):
                        if generator not in decided.get(factor.name, ()):
                            state.signs[factor.name][..., generator] = signs[..., generator]
            if all(np.array_equal(before[k], state.signs[k]) for k in before):
                break

    def _matched(self, each: _Measured, state: State) -> np.ndarray:
        """Products of matched units, [parents.., i]."""
        name = each.site.factor
        held, self._by_factor[name] = (
            self._by_factor[name],
            [dataclasses.replace(each, partner_gram=None, term=None)],
        )
        (gain,) = self._matched_gains(name, state).values()
        self._by_factor[name] = held
        return np.take_along_axis(gain, state.permutations[name][..., None], axis=-1)[..., 0]


class DataCost:
    """A cost on the networks at work: compiled once, asked for many pairs of networks.

    Args:
        symmetry: The model's group.
        cost: "activations", "correlation", "contributions" or "preactivations".
        apply_fn: The model.
        params: Any parameters of it; only shapes matter.
        inputs: The data; the leading axis is the example.
        batch_size: Examples at a time.
    """

    def __init__(
        self,
        symmetry: Symmetry,
        cost: str,
        apply_fn: Callable[[Any, Any], Any],
        params: Any,
        inputs: Any,
        batch_size: int,
    ):
        self.symmetry, self.cost = symmetry, cost
        count = _size(inputs)
        self._batches = [
            jax.tree.map(lambda x, s=start: jnp.asarray(x[s : s + batch_size]), inputs)
            for start in range(0, count, batch_size)
        ]
        # A program is traced for one batch size; only the last batch can have another.
        self._measures: dict[int, Callable[..., Any]] = {}
        for batch in self._batches:
            if _size(batch) not in self._measures:
                probe = Probe(apply_fn, params, batch)
                sites = find_sites(symmetry, probe, cost)
                if not self._measures:
                    self._probe, self._sites = probe, sites
                self._measures[_size(batch)] = jax.jit(partial(_measure, symmetry, probe, sites))
        _check_covered(symmetry, self._sites, cost)
        self._flips = _flips(symmetry, self._probe, self._sites, params, self._batches[0])
        self._values = jax.jit(lambda p: self._probe.values(p, self._batches[0]))

    def objective(self, reference: Any, moving: Any) -> DataObjective:
        """Runs both networks over the data and collects the products that the cost is made of."""
        totals: Any = None
        for batch in self._batches:
            part = self._measures[_size(batch)](reference, moving, batch)
            totals = part if totals is None else jax.tree.map(jnp.add, totals, part)
        totals = jax.tree.map(np.asarray, totals)
        arrays: list[list[np.ndarray]] = []
        if any(s.partner is not None and not s.partner.data for s in self._sites):
            arrays = [[np.asarray(v) for v in self._values(p)] for p in (reference, moving)]
        pairing = Pairing(self.symmetry, [])
        measured = []
        for site, sums, flipped in zip(self._sites, totals, self._flips, strict=True):
            gram, norms = _finish(sums["own"], self.cost == "correlation")
            each = _Measured(site, gram, norms, flipped)
            if site.partner is not None and site.partner_block is not None:
                if site.partner.data:
                    each.partner_gram, each.partner_norms = _finish(sums["partner"], False)
                else:
                    each.term = len(pairing.terms)
                    block = _with_signs(self.symmetry, site.partner, site.partner_block)
                    at = block.at()
                    pair = [a[site.partner.number][at].reshape(block.shape) for a in arrays]
                    pairing.add(Term(block, pair[0], pair[1], True))
                    each.partner_norms = (
                        _per_unit(self.symmetry, site.factor, block, pair[0]),
                        _per_unit(self.symmetry, site.factor, block, pair[1]),
                    )
            measured.append(each)
        weights = weights_pairing(self.symmetry, reference, moving)
        return DataObjective(self.symmetry, measured, pairing, weights)


def _size(batch: Any) -> int:
    return len(jax.tree.leaves(batch)[0])


def weights_pairing(symmetry: Symmetry, reference: Any, moving: Any) -> Pairing:
    """The two networks' weights, for signs that no activation decides."""
    leaves = [[np.asarray(x) for x in jax.tree.leaves(tree)] for tree in (reference, moving)]
    return Pairing(symmetry, [Channel(leaves[0], leaves[1])])


def find_sites(symmetry: Symmetry, probe: Probe, cost: str) -> list[Site]:
    """Every place where a movable factor is read (for preactivations: made)."""
    sites = []
    for contraction in probe.contractions:
        for value, partner in _compared(contraction, cost):
            for block in value.blocks:
                for name in dict.fromkeys(block.sides):
                    if name not in symmetry.permutable or not _plain(symmetry, name, block):
                        continue
                    if cost != "preactivations" and name not in contraction.over:
                        continue
                    if partner is None:
                        sites.append(Site(name, value, block))
                        continue
                    partners = [b for b in partner.blocks if name in b.sides]
                    if len(partners) == 1 and partners[0].sides.count(name) == 1:
                        sites.append(Site(name, value, block, partner, partners[0]))
    return sites


def _compared(contraction: Contraction, cost: str) -> list[tuple[Captured, Captured | None]]:
    """The values of a contraction that a cost compares, with their partners if it wants them."""
    left, right = contraction.operands
    if cost == "preactivations":
        return [(contraction.result, None)] if contraction.result.data else []
    if cost == "contributions":
        first, second = (left, right) if left.data else (right, left)
        return [(first, second)] if first.data else []
    return [(operand, None) for operand in (left, right) if operand.data]


def _plain(symmetry: Symmetry, name: str, block: Block) -> bool:
    """Whether a block has the factor and its parents once, and nothing else that moves."""
    parents = symmetry.parents[name]
    wanted = {name, *parents}
    moving = [s for s in block.sides if s in symmetry.permutable]
    return all(block.sides.count(n) == 1 for n in wanted) and all(s in wanted for s in moving)


def _check_covered(symmetry: Symmetry, sites: list[Site], cost: str) -> None:
    covered = {site.factor for site in sites}
    covered |= {p for name in covered for p in symmetry.parents[name]}
    missing = [
        f.name for f in symmetry.factors if "permutation" in f.kinds and f.name not in covered
    ]
    if missing:
        raise ValueError(
            f"cost {cost!r} cannot see factor {missing[0]!r} at work (it is read inside a loop, or "
            "never by a contraction): use cost='weights'"
        )


def _front(symmetry: Symmetry, name: str, block: Block, array: Any) -> Any:
    """[parents flattened, units, everything else]."""
    sides = block.sides
    at = [*(sides.index(p) for p in symmetry.parents[name]), sides.index(name)]
    moved = jnp.moveaxis(array[block.at()].reshape(block.shape), at, range(len(at)))
    copies = int(np.prod(moved.shape[: len(at) - 1], dtype=int))
    return moved.reshape(copies, moved.shape[len(at) - 1], -1)


def _measure(
    symmetry: Symmetry, probe: Probe, sites: list[Site], reference: Any, moving: Any, batch: Any
) -> list[dict[str, Any]]:
    a, b = probe.values(reference, batch), probe.values(moving, batch)
    found = []
    for site in sites:
        sums = {"own": _sums(symmetry, site.factor, site.value, site.block, a, b)}
        if site.partner is not None and site.partner.data and site.partner_block is not None:
            sums["partner"] = _sums(symmetry, site.factor, site.partner, site.partner_block, a, b)
        found.append(sums)
    return found


def _sums(
    symmetry: Symmetry, name: str, value: Captured, block: Block, a: list[Any], b: list[Any]
) -> dict[str, Any]:
    x = _front(symmetry, name, block, a[value.number])
    y = _front(symmetry, name, block, b[value.number])
    return {
        "product": jnp.einsum("pir,qjr->pqij", x, y),
        "sums": (x.sum(-1), y.sum(-1)),
        "squares": (jnp.square(x).sum(-1), jnp.square(y).sum(-1)),
        "count": jnp.asarray(float(x.shape[-1])),
    }


def _finish(
    sums: dict[str, Any], correlate: bool
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    product, squares = sums["product"], sums["squares"]
    if not correlate:
        return product, (squares[0], squares[1])
    count = float(sums["count"])
    means = [s / count for s in sums["sums"]]
    stds = [np.sqrt(np.maximum(q / count - m**2, 0)) for q, m in zip(squares, means, strict=True)]
    cov = product / count - means[0][:, None, :, None] * means[1][None, :, None, :]
    scale = stds[0][:, None, :, None] * stds[1][None, :, None, :]
    # A unit that never changes has no correlation with anything.
    correlation = np.divide(cov, scale, out=np.zeros_like(cov), where=scale > 1e-12)
    return correlation, (np.ones_like(stds[0]), np.ones_like(stds[1]))


def _per_unit(symmetry: Symmetry, name: str, block: Block, array: np.ndarray) -> np.ndarray:
    """Squared norm of each unit's part of a block, [parents flattened, units]."""
    at = {block.sides.index(p) for p in (*symmetry.parents[name], name)}
    rest = tuple(axis for axis in range(array.ndim) if axis not in at)
    norms = np.square(array).sum(axis=rest)
    order = np.argsort(np.argsort([block.sides.index(p) for p in (*symmetry.parents[name], name)]))
    return norms.transpose(order).reshape(-1, symmetry.sizes[name])


def _with_signs(symmetry: Symmetry, value: Captured, block: Block) -> Block:
    """The block as the symmetry knows it, with the signs that act on it, if it is a parameter."""
    if value.leaf is not None:
        for own in symmetry.leaves[value.leaf].blocks:
            if own.ranges == block.ranges and own.picks == block.picks:
                return own
    return block


def _flips(
    symmetry: Symmetry, probe: Probe, sites: list[Site], params: Any, inputs: Any
) -> list[Signature]:
    """Which generators flip each captured value, found by flipping them."""
    found: list[set[int]] = [set() for _ in sites]
    factors = {site.factor for site in sites if symmetry.factor(site.factor).signs}
    if not factors:
        return [frozenset() for _ in sites]
    run = jax.jit(lambda p: probe.values(p, inputs))
    plain = run(params)
    identity = symmetry.identity()
    for name in factors:
        for generator in range(symmetry.factor(name).signs):
            flipped = identity.signs[name].at[..., generator].set(-1)
            element = Element(
                identity.permutations, identity.log_scales, identity.signs | {name: flipped}
            )
            moved = run(symmetry.act(element, params))
            for number, site in enumerate(sites):
                if site.factor == name:
                    x = _front(symmetry, name, site.block, plain[site.value.number])
                    y = _front(symmetry, name, site.block, moved[site.value.number])
                    if float(jnp.vdot(x, y)) < 0:
                        found[number].add(generator)
    return [frozenset(s) for s in found]
