r"""Permutations relaxed to doubly stochastic matrices, and what an objective becomes of them.

A factor's permutation p is the matrix X[i, j] = 1 where j = p[i], one per index of its parents. A
block is moved by one such matrix along each of its sides, parents' first. With convex combinations
of permutations in their place that stays well defined, and multilinear. Where signs act, signed
permutations are relaxed: a factor has one matrix X_s for each set s of sign generators that flips
some block, all of them the same convex combination.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Collection, Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import Precision

from onebasin.align.data_objective import DataObjective
from onebasin.align.descent import Objective
from onebasin.align.pairing import Pairing
from onebasin.align.signs import Gains, Signature
from onebasin.align.state import State, roaming
from onebasin.symmetry import Symmetry
from onebasin.symmetry.elements import Block

PLAIN: Signature = frozenset()

Soft = dict[str, dict[Signature, Any]]
"""Matrices [parents.., i, j] by factor and by which of its sign generators flip what they move."""


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """Where one matrix enters an einsum."""

    factor: str
    signature: Signature
    letters: str


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """A product of fixed arrays and of one matrix per side, summed over all indices."""

    arrays: tuple[np.ndarray, ...]
    letters: tuple[str, ...]
    sides: tuple[Side, ...]


class Relaxed:
    """An objective on relaxed permutations: equal to the objective wherever these are permutations.

    Args:
        objective: A pairing of weights, or a cost on the networks at work.
        held: Where the signs of factors that are not permuted are taken from; they are not relaxed.
    """

    def __init__(self, objective: Objective, held: State):
        self.symmetry = objective.symmetry
        self.forms = list(_forms(objective, held))
        self._fixed = objective.fixed if isinstance(objective, Pairing) else 0.0
        self.signatures: dict[str, set[Signature]] = {}
        for form in self.forms:
            for side in form.sides:
                self.signatures.setdefault(side.factor, {PLAIN}).add(side.signature)
        self._paths: dict[tuple[int, int], Any] = {}

    @property
    def degree(self) -> int:
        """Most matrices in one product: the degree of the objective along a line."""
        return max((len(form.sides) for form in self.forms), default=0)

    def barycentre(self) -> Soft:
        """The mean of all elements: every unit matched with every other alike, signs cancelled."""
        found: Soft = {}
        for name, signatures in self.signatures.items():
            n = self.symmetry.sizes[name]
            copies = tuple(self.symmetry.sizes[parent] for parent in self.symmetry.parents[name])
            found[name] = {s: np.full((*copies, n, n), 0.0 if s else 1 / n) for s in signatures}
        return found

    def hard(self, state: State) -> Soft:
        """The matrices of a state."""
        return {name: hard(state, name, own) for name, own in self.signatures.items()}

    def value(self, soft: Soft) -> float:
        moved = sum(self._contract(k, -1, soft) for k in range(len(self.forms)))
        return self._fixed + float(moved)

    def gradient(self, soft: Soft) -> dict[str, Gains]:
        """By factor and signature, the derivative with respect to each matrix."""
        found: dict[str, Gains] = {}
        for number, form in enumerate(self.forms):
            for skip, side in enumerate(form.sides):
                gains = found.setdefault(side.factor, {})
                part = self._contract(number, skip, soft)
                held = gains.get(side.signature)
                gains[side.signature] = part if held is None else held + part
        return found

    def _contract(self, number: int, skip: int, soft: Soft) -> np.ndarray:
        """A form without the matrix of one side (-1: with all)."""
        form = self.forms[number]
        sides = [side for k, side in enumerate(form.sides) if k != skip]
        out = "" if skip < 0 else form.sides[skip].letters
        operands = [*form.arrays, *(soft[side.factor][side.signature] for side in sides)]
        subscripts = ",".join([*form.letters, *(side.letters for side in sides)]) + "->" + out
        path = self._paths.get((number, skip))
        if path is None:
            path = np.einsum_path(subscripts, *operands, optimize="greedy")[0]
            self._paths[number, skip] = path
        return np.einsum(subscripts, *operands, optimize=path)


def hard(state: State, name: str, signatures: Iterable[Signature]) -> dict[Signature, Any]:
    """One factor's matrices of a state, in NumPy or JAX as the state is."""
    permutation = state.permutations[name]
    matrix = (permutation[..., None] == np.arange(permutation.shape[-1])).astype(float)
    return {
        s: matrix * state.signs[name][..., sorted(s)].prod(axis=-1)[..., None] if s else matrix
        for s in signatures
    }


def signatures(symmetry: Symmetry, name: str) -> set[Signature]:
    """The sets of sign generators with which a factor enters any parameter."""
    return {PLAIN} | {
        _signature(block, name, axis)
        for leaf in symmetry.leaves
        for block in leaf.blocks
        for axis, side in enumerate(block.sides)
        if side == name
    }


def act_softly(
    symmetry: Symmetry, soft: Soft, held: State, leaves: list[Any], signed: bool = True
) -> list[Any]:
    """The action on the flat list of leaves, differentiable in the matrices.

    Args:
        symmetry: The group.
        soft: Matrices for every factor that permutes.
        held: Where signs of factors that are not permuted are taken from.
        leaves: Parameters, or their standard deviations.
        signed: Whether signs act, as they do not on standard deviations.
    """
    moved = []
    for leaf, array in zip(symmetry.leaves, leaves, strict=True):
        whole = jnp.asarray(array)
        for block in leaf.blocks:
            sides = _sides(symmetry, block, signed)
            if not sides and not (block.signs and signed):
                continue
            at = block.at()
            box = whole[at]
            new, old = _letters(symmetry, block.sides)
            matrices = [soft[side.factor][side.signature].astype(box.dtype) for side in sides]
            subscripts = ",".join([old, *(side.letters for side in sides)]) + "->" + new
            part = jnp.einsum(
                subscripts, box.reshape(block.shape), *matrices, precision=Precision.HIGHEST
            )
            part = part * _held_signs(symmetry, block, held, signed).astype(box.dtype)
            whole = whole.at[at].set(part.reshape(box.shape))
        moved.append(whole)
    return moved


def _letters(symmetry: Symmetry, sides: tuple[str, ...]) -> tuple[str, str]:
    """Letters of a block's axes after and before it moves, the same where it cannot."""
    new = string.ascii_lowercase[: len(sides)]
    old = "".join(
        letter.upper() if side in symmetry.permutable else letter
        for side, letter in zip(sides, new, strict=True)
    )
    return new, old


def _sides(
    symmetry: Symmetry, block: Block, signed: bool, unsigned: Collection[str] = ()
) -> tuple[Side, ...]:
    new, old = _letters(symmetry, block.sides)
    return tuple(
        Side(
            name,
            _signature(block, name, axis) if signed and name not in unsigned else PLAIN,
            "".join(new[block.sides.index(parent)] for parent in symmetry.parents[name])
            + new[axis]
            + old[axis],
        )
        for axis, name in enumerate(block.sides)
        if name in symmetry.permutable
    )


def _signature(block: Block, name: str, axis: int) -> Signature:
    return frozenset(w.generator for w in block.signs if w.factor == name and w.places[-1] == axis)


def _held_signs(symmetry: Symmetry, block: Block, held: State, signed: bool) -> Any:
    """The signs of factors that are not permuted, along the sides of a moved block."""
    total: Any = np.ones((1,) * len(block.sides))
    for w in block.signs if signed else ():
        if w.factor not in symmetry.permutable:
            sign = held.signs[w.factor][..., w.generator].transpose(np.argsort(w.places))
            shape = [n if axis in w.places else 1 for axis, n in enumerate(block.shape)]
            total = total * sign.reshape(shape)
    return total


def _forms(objective: Objective, held: State) -> Iterable[Form]:
    if isinstance(objective, Pairing):
        for term in objective.terms:
            signs = _held_signs(objective.symmetry, term.block, held, term.signed)
            yield Form(
                (term.reference * signs, term.moving.astype(np.float64)),
                _letters(objective.symmetry, term.sides),
                _sides(objective.symmetry, term.block, term.signed),
            )
    elif isinstance(objective, DataObjective):
        yield from _data_forms(objective, held)
    else:
        raise TypeError(
            f"got an objective of type {type(objective).__name__}, which has no relaxation"
        )


def _data_forms(objective: DataObjective, held: State) -> Iterable[Form]:
    """Products over the data, times those of the parameter that reads the factor if it counts."""
    symmetry = objective.symmetry
    for each, term in objective.products():
        name, parents = each.factor, symmetry.parents[each.factor]
        n, copies = symmetry.sizes[name], tuple(symmetry.sizes[parent] for parent in parents)
        gram = each.gram if each.partner_gram is None else each.gram * each.partner_gram
        gram = np.abs(gram) if each.loose else gram * objective.turned(each, held)
        free = roaming(symmetry, name)
        steps = each.steps if term is not None else ()
        gram = gram if term is not None else gram.sum(axis=0)
        moving = [symmetry.sizes[p] for p in free]
        gram = gram.reshape(*steps, *copies, *moving, n, n).astype(np.float64)
        if term is None:
            block = Block((), (), (*parents, name), (*copies, n))
            own = PLAIN if each.loose or each.partner_gram is not None else each.flipped_by
            arrays: tuple[np.ndarray, ...] = ()
        else:
            block, own = term.block, PLAIN
            signs = _held_signs(symmetry, block, held, True)
            arrays = (term.reference * signs, term.moving.astype(np.float64))
        new, old = _letters(symmetry, block.sides)
        up, moved = ([block.sides.index(p) for p in several] for several in (parents, free))
        up = [*each.term_steps, *up]
        at = block.sides.index(name)
        letters = "".join([*(new[i] for i in up), *(old[i] for i in moved), new[at], old[at]])
        sides = tuple(
            dataclasses.replace(side, signature=own) if side.factor == name else side
            for side in _sides(symmetry, block, True, unsigned=parents)
        )
        yield Form((gram, *arrays), (letters, new, old)[: 1 + len(arrays)], sides)
