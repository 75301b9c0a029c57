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

A factor that no contraction reads (the pieces of a maxout, units that are sorted) is compared where
it is made, as in preactivations, whatever the cost; one that none makes (the state of a loop) where
it is read, as in activations. Where one is only seen together with another's units, as tokens of a
mixer are, the other's are summed. What happens inside a loop is seen at each of its steps, where
correlations are taken over all steps that share their weights; inside a `while` or a `cond` it is
out of reach.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.data_objective import DataObjective
from onebasin.align.measured import Measured
from onebasin.align.pairing import Pairing
from onebasin.align.sites import Flips, Site, check_covered, find_flips, find_sites, front
from onebasin.align.state import num_roaming
from onebasin.align.stream import Batches, Products, outer
from onebasin.align.terms import Channel, Term
from onebasin.symmetry import Symmetry
from onebasin.symmetry.capture import Captured, Probe
from onebasin.symmetry.elements import Block
from onebasin.symmetry.host import widened

ROUNDING = 1e-6
KEPT = 16
_PLANS: collections.OrderedDict[_Model, _Plan] = collections.OrderedDict()
_LOCK = threading.Lock()


class _Model(NamedTuple):
    """What the programs of a cost depend on."""

    symmetry: Symmetry
    cost: str
    apply_fn: Callable[[Any, Any], Any]
    params: Any
    parts: Any


class _Plan(NamedTuple):
    """Where a cost looks, and the compiled program that looks there."""

    sites: list[Site]
    flips: list[Flips]
    totals: Callable[..., Any]


def kept_plan(model: _Model, params: Any, parts: list[Any]) -> _Plan:
    """The plan of a model, from the last few that were made: compiling takes longest."""
    try:
        hash(model)
    except TypeError:
        return _plan(model, params, parts)
    with _LOCK:
        if model in _PLANS:
            _PLANS.move_to_end(model)
            return _PLANS[model]
    made = _plan(model, params, parts)
    with _LOCK:
        _PLANS[model] = made
        while len(_PLANS) > KEPT:
            _PLANS.popitem(last=False)
    return made


def _plan(model: _Model, params: Any, parts: list[Any]) -> _Plan:
    symmetry, cost = model.symmetry, model.cost
    probes = {_size(part): Probe(model.apply_fn, params, part, symmetry=symmetry) for part in parts}
    found = {n: find_sites(symmetry, probe, cost) for n, probe in probes.items()}
    first, probe = next(iter(probes.items()))
    check_covered(symmetry, found[first], cost)
    flips = find_flips(symmetry, probe, found[first], params, parts[0])
    kept = [number for number, each in enumerate(flips) if not each.torn]
    sites = {n: [own[number] for number in kept] for n, own in found.items()}
    check_covered(symmetry, sites[first], cost)
    totals = jax.jit(partial(_totals, symmetry, probes, sites, cost == "correlation"))
    return _Plan(sites[first], [flips[number] for number in kept], totals)


def _shapes(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(x), np.dtype(jnp.result_type(x))) for x in leaves)


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
        model = _Model(symmetry, cost, apply_fn, _shapes(params), _shapes(parts))
        plan = kept_plan(model, params, parts)
        self._sites, self._flips, self._totals = plan

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
        read = zip(self._sites, found, self._flips, strict=True)
        for site, sums, flips in read:
            steps = tuple(site.block.shape[side] for side in site.steps)
            by_step = partial(_by_step, math.prod(steps))
            gram, norms = by_step(_finish(sums["own"], self.cost == "correlation"))
            each = Measured(site.factor, gram, norms, frozenset(flips.own), tuple(flips.turns))
            each.partner_turns, each.loose = tuple(flips.partner_turns), tuple(flips.loose)
            each.layers, each.steps = site.layers, steps
            if site.partner is not None and site.partner_block is not None:
                if site.partner.data:
                    found_there = by_step(_finish(sums["partner"], False))
                    each.partner_gram, each.partner_norms = found_there
                else:
                    each.term, each.term_steps = len(pairing.terms), site.partner_steps
                    block = _with_signs(self.symmetry, site.partner, site.partner_block, flips)
                    pair = [widened(a[block.at()]).reshape(block.shape) for a in sums["parameter"]]
                    pairing.add(Term(block, pair[0], pair[1], True))
                    up = [block.sides.index(p) for p in self.symmetry.parents[site.factor]]
                    at = [*site.partner_steps, *up, block.sides.index(site.factor)]
                    each.partner_norms = by_step((_per_unit(at, pair[0]), _per_unit(at, pair[1])))
            measured.append(each)
        weights = weights_pairing(self.symmetry, reference, moving)
        instead = {site.factor: site.instead for site in self._sites if site.instead}
        return DataObjective(self.symmetry, measured, pairing, weights, instead)


def _size(batch: Any) -> int:
    return len(jax.tree.leaves(batch)[0])


def weights_pairing(symmetry: Symmetry, reference: Any, moving: Any) -> Pairing:
    """The two networks' weights, for signs that no activation decides."""
    leaves = [
        [widened(np.asarray(x)) for x in jax.tree.leaves(tree)] for tree in (reference, moving)
    ]
    return Pairing(symmetry, [Channel(leaves[0], leaves[1])])


def _totals(
    symmetry: Symmetry,
    probes: dict[int, Probe],
    sites: dict[int, list[Site]],
    centred: bool,
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
                _measure(symmetry, site, centred, own, probes[size].values(p, batch))
                for site in sites[size]
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

    found = batches.fold(of_batch, _merge)
    held = parameters(batches.first)
    return [sums | parameter for sums, parameter in zip(found, held, strict=True)]


def _parameter(site: Site) -> int | None:
    """The number of the parameter that a site's value is multiplied by, if it is one."""
    return None if site.partner is None or site.partner.data else site.partner.number


def _merge(a: list[dict[str, Products]], b: list[dict[str, Products]]) -> list[Any]:
    merge = jax.vmap(Products.merge)
    return [{k: merge(x[k], y[k]) for k in x} for x, y in zip(a, b, strict=True)]


def _measure(
    symmetry: Symmetry, site: Site, centred: bool, a: list[Any], b: list[Any]
) -> dict[str, Products]:
    def products(value: Captured, block: Block, steps: tuple[int, ...]) -> Products:
        x, y = (front(symmetry, site.factor, block, v[value.number], steps) for v in (a, b))
        return Products.of(x, y, centred, num_roaming(symmetry, site.factor))

    sums = {"own": products(site.value, site.block, site.steps)}
    if site.partner is not None and site.partner.data and site.partner_block is not None:
        sums["partner"] = products(site.partner, site.partner_block, site.partner_steps)
    return sums


def _finish(found: Products, correlate: bool) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    if not correlate:
        return found.product, found.squares
    squares = [s + m**2 * found.count for s, m in zip(found.squares, found.means, strict=True)]
    pairs = zip(found.squares, squares, strict=True)
    # A unit that never changes has no correlation with anything; nor has one that rounding moves.
    changes = [deviation > ROUNDING**2 * square for deviation, square in pairs]
    roam = found.product.shape[1]
    scale = outer(np.sqrt(found.squares[0]), np.sqrt(found.squares[1]), roam)
    correlation = np.divide(
        found.product,
        scale,
        out=np.zeros_like(found.product),
        where=outer(changes[0], changes[1], roam),
    )
    return correlation, (changes[0].astype(np.float32), changes[1].astype(np.float32))


def _by_step(count: int, arrays: Any) -> Any:
    """Arrays whose first axis is steps and parents, with an axis of that many steps in front."""
    return jax.tree.map(lambda array: array.reshape(count, -1, *array.shape[1:]), arrays)


def _per_unit(at: list[int], array: np.ndarray) -> np.ndarray:
    """Squared norm of each unit's part of a block, [steps and parents, units]: its sides `at`."""
    rest = tuple(axis for axis in range(array.ndim) if axis not in at)
    norms = np.square(array).sum(axis=rest).transpose(np.argsort(np.argsort(at)))
    return norms.reshape(-1, norms.shape[-1])


def _with_signs(symmetry: Symmetry, value: Captured, block: Block, flips: Flips) -> Block:
    """The block of a parameter, or of what is made of some, with the signs that act on it."""
    if value.leaf is None:
        return dataclasses.replace(block, signs=tuple(flips.partner_signs))
    for own in symmetry.leaves[value.leaf].blocks:
        if own.ranges == block.ranges and own.picks == block.picks:
            signs = tuple(w for w in own.signs if (w.factor, w.generator) not in flips.cancelled)
            return dataclasses.replace(own, signs=signs)
    return block
