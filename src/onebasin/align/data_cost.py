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

from onebasin.align.data_objective import DataObjective, Measured
from onebasin.align.pairing import Pairing
from onebasin.align.signs import Signature
from onebasin.align.stream import Batches
from onebasin.align.terms import Channel, Term
from onebasin.symmetry import Symmetry
from onebasin.symmetry.capture import Captured, Contraction, Probe
from onebasin.symmetry.elements import Block


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A place where a factor is read: a captured value's block, and its partner if it is wanted."""

    factor: str
    value: Captured
    block: Block
    partner: Captured | None = None
    partner_block: Block | None = None


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
        self._batches = Batches.of(inputs, batch_size)
        # A program is traced for one batch size; only the last batch can have another.
        parts = [self._batches.first]
        parts += [] if self._batches.rest is None else [self._batches.rest]
        self._probes = {_size(part): Probe(apply_fn, params, part) for part in parts}
        sites = {n: find_sites(symmetry, probe, cost) for n, probe in self._probes.items()}
        self._sites = next(iter(sites.values()))
        self._totals = jax.jit(partial(_totals, symmetry, self._probes, sites))
        _check_covered(symmetry, self._sites, cost)
        probe = next(iter(self._probes.values()))
        self._flips, self._wholes = _flips(symmetry, probe, self._sites, params, parts[0])

    def objective(self, reference: Any, moving: Any) -> DataObjective:
        """Runs both networks over the data and collects the products that the cost is made of."""
        return self.objectives(reference, jax.tree.map(lambda x: np.asarray(x)[None], moving))[0]

    def objectives(self, reference: Any, stacked: Any) -> list[DataObjective]:
        """The same for many networks against one reference, which runs over the data once.

        Args:
            reference: The network that all are matched with.
            stacked: The networks; one program is compiled for each number of them.
        """
        found = jax.tree.map(np.asarray, self._totals(reference, stacked, self._batches))
        count = len(jax.tree.leaves(stacked)[0])
        at = jax.tree.map(np.asarray, (reference, stacked))
        return [
            self._objective(
                jax.tree.map(lambda x, n=n: x[n], found),
                at[0],
                jax.tree.map(lambda x, n=n: x[n], at[1]),
            )
            for n in range(count)
        ]

    def _objective(self, found: list[dict[str, Any]], reference: Any, moving: Any) -> DataObjective:
        pairing = Pairing(self.symmetry, [])
        measured = []
        read = zip(self._sites, found, self._flips, self._wholes, strict=True)
        for site, sums, flipped, wholes in read:
            gram, norms = _finish(sums["own"], self.cost == "correlation")
            each = Measured(site.factor, gram, norms, flipped, wholes)
            if site.partner is not None and site.partner_block is not None:
                if site.partner.data:
                    each.partner_gram, each.partner_norms = _finish(sums["partner"], False)
                else:
                    each.term = len(pairing.terms)
                    block = _with_signs(self.symmetry, site.partner, site.partner_block)
                    pair = [a[block.at()].reshape(block.shape) for a in sums["parameter"]]
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


def _totals(
    symmetry: Symmetry,
    probes: dict[int, Probe],
    sites: dict[int, list[Site]],
    reference: Any,
    stacked: Any,
    batches: Batches,
) -> list[dict[str, Any]]:
    """What every site gives, for each of the stacked networks, summed over the batches."""

    def of_batch(batch: Any) -> list[dict[str, Any]]:
        size = _size(batch)
        own = probes[size].values(reference, batch)
        return jax.lax.map(
            lambda p: [
                _measure(symmetry, site, own, probes[size].values(p, batch)) for site in sites[size]
            ],
            stacked,
        )

    def parameters(batch: Any) -> list[dict[str, Any]]:
        """The parameters that contributions are multiplied by; no data enter them."""
        size = _size(batch)
        numbers = [_parameter(site) for site in sites[size]]
        own = probes[size].values(reference, batch)

        def of(params: Any) -> list[dict[str, Any]]:
            other = probes[size].values(params, batch)
            return [{} if n is None else {"parameter": (own[n], other[n])} for n in numbers]

        return jax.lax.map(of, stacked)

    found = batches.sum(of_batch)
    held = parameters(batches.first)
    return [sums | parameter for sums, parameter in zip(found, held, strict=True)]


def _parameter(site: Site) -> int | None:
    """The number of the parameter that a site's value is multiplied by, if it is one."""
    return None if site.partner is None or site.partner.data else site.partner.number


def _measure(symmetry: Symmetry, site: Site, a: list[Any], b: list[Any]) -> dict[str, Any]:
    sums = {"own": _sums(symmetry, site.factor, site.value, site.block, a, b)}
    if site.partner is not None and site.partner.data and site.partner_block is not None:
        sums["partner"] = _sums(symmetry, site.factor, site.partner, site.partner_block, a, b)
    return sums


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
) -> tuple[list[Signature], list[tuple[tuple[str, int], ...]]]:
    """Which generators flip each captured value, found by flipping them.

    Per site those of its own factor, and those (factor, generator) of no units at all, which flip
    it as a whole. Where both it and what it is multiplied by are data, only their product counts.
    """
    own: list[set[int]] = [set() for _ in sites]
    wholes: list[list[tuple[str, int]]] = [[] for _ in sites]
    read = {site.factor for site in sites}
    signed = [f for f in symmetry.factors if f.signs and (f.name in read or not f.index)]
    run = jax.jit(lambda p: probe.values(p, inputs))
    plain = run(params) if signed and sites else []
    identity = symmetry.identity()
    for name, generator in [(f.name, g) for f in signed for g in range(f.signs) if sites]:
        flipped = identity.signs[name].at[..., generator].set(-1)
        element = identity._replace(signs=identity.signs | {name: flipped})
        moved = run(symmetry.act(element, params))

        def turned(factor: str, value: Captured, block: Block, b: list[Any] = moved) -> bool:
            x, y = (_front(symmetry, factor, block, v[value.number]) for v in (plain, b))
            return float(jnp.vdot(x, y)) < 0

        for number, site in enumerate(sites):
            if site.factor == name:
                if turned(name, site.value, site.block):
                    own[number].add(generator)
            elif not symmetry.factor(name).index:
                odd = turned(site.factor, site.value, site.block)
                if site.partner is not None and site.partner.data and site.partner_block:
                    odd ^= turned(site.factor, site.partner, site.partner_block)
                if odd:
                    wholes[number].append((name, generator))
    return [frozenset(s) for s in own], [tuple(w) for w in wholes]
