"""Blocks: once all axes are settled, every value falls into blocks with one term per axis.

A term is a tuple of atoms, so a block is a box whose sides are index sets. Plans say, for each
step, which block of each operand meets which block of the result, and which sides are one index.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from onebasin.symmetry import axes
from onebasin.symmetry.axes import Atom, Axis, Term
from onebasin.symmetry.spans import Span, spans
from onebasin.symmetry.steps import (
    Join,
    Name,
    Operation,
    Reshape,
    Slice,
    Step,
    Value,
)

MAX_BLOCKS = 4096

T = TypeVar("T")

Key = tuple[int, ...]
Position = tuple[Name, int]
"""The k-th atom of the term that a block has along a named axis."""


class Layout:
    """The settled axes of a value. Markers count as one term without atoms."""

    def __init__(self, value: Value):
        self.names: tuple[Name, ...] = (*range(value.rank), *value.hidden)
        self.products = [
            axes.resolve(axis) if isinstance(axis, tuple) else axis
            for axis in (*value.axes, *value.hidden.values())
        ]
        self.terms: list[list[Term]] = [_terms(product) for product in self.products]
        self.count = math.prod(len(terms) for terms in self.terms)
        self._spans: dict[int, list[Span]] = {}

    def block_keys(self) -> Iterator[Key]:
        return itertools.product(*(range(len(terms)) for terms in self.terms))

    def atoms(self, key: Key) -> dict[Position, Atom]:
        return {
            (name, k): atom
            for name, terms, chosen in zip(self.names, self.terms, key, strict=True)
            for k, atom in enumerate(terms[chosen])
        }

    def spans(self, axis: int) -> list[Span]:
        """Where the terms of an axis lie."""
        if axis not in self._spans:
            product = self.products[axis]
            assert isinstance(product, tuple)
            self._spans[axis] = spans(product)
        return self._spans[axis]


def _terms(product: Axis) -> list[Term]:
    if not isinstance(product, tuple):
        return [()]
    return axes.terms(product) if axes.size(product) else []


@dataclasses.dataclass(slots=True)
class Meeting:
    """One joint block: for each operand its block, for each output the block that it feeds."""

    operands: list[Key]
    outputs: list[Key]
    atoms: dict[Position, Atom]


@dataclasses.dataclass(slots=True)
class Plan:
    """How blocks meet in a step; `meetings` is None where factorings clash or are too many.

    `relabel[i]` maps positions of operand i to joint positions per meeting; for operations the map
    is by axis name alone and kept in `names`.
    """

    step: Step
    meetings: list[Meeting] | None
    names: list[dict[Name, Name | None]]
    output_names: list[dict[Name, Name | None]]
    relabel: list[dict[Position, Position]] | None = None


class Planner:
    """Makes plans, sharing the layouts of values."""

    def __init__(self) -> None:
        self._layouts: dict[int, Layout] = {}
        self._plans: dict[int, Any] = {}

    def layout(self, value: Value) -> Layout:
        found = self._layouts.get(id(value))
        if found is None:
            found = self._layouts[id(value)] = Layout(value)
        return found

    def _once(self, step: Step, make: Callable[[Any], T]) -> T:
        if id(step) not in self._plans:
            self._plans[id(step)] = make(step)
        found: T = self._plans[id(step)]
        return found

    def operation(self, step: Operation) -> Plan:
        """Joint blocks of an operation."""
        return self._once(step, self._operation)

    def reshape(self, step: Reshape) -> Plan:
        """Blocks of a reshape, with the places their sides go to."""
        return self._once(step, self._reshape)

    def join(self, step: Join) -> list[tuple[int | None, Key, Key]] | None:
        """(source, None for the filling; its block; the target's block) for every target block."""
        return self._once(step, self._join)

    def slice(self, step: Slice) -> list[tuple[Key, Key]] | None:
        """(block of the source, block of the target) pairs."""
        return self._once(step, self._slice)

    def _operation(self, step: Operation) -> Plan:
        ins = [(self.layout(o.value), _naming(o.value, o.names)) for o in step.operands]
        outs = [(self.layout(o.value), _naming(o.value, o.names)) for o in step.outputs]
        joint: dict[Name, Axis] = {}
        clash = False
        for layout, naming in (*ins, *outs):
            for name, product in zip(layout.names, layout.products, strict=True):
                shared = naming[name]
                if shared is None or not isinstance(product, tuple):
                    continue
                clash |= joint.setdefault(shared, product) != product
        plan = Plan(step, None, [n for _, n in ins], [n for _, n in outs])
        terms = {name: _terms(product) for name, product in joint.items()}
        if clash or math.prod(len(t) for t in terms.values()) > MAX_BLOCKS:
            return plan
        plan.meetings = []
        for chosen in itertools.product(*(range(len(t)) for t in terms.values())):
            where = dict(zip(terms, chosen, strict=True))
            plan.meetings.append(
                Meeting(
                    [_key(layout, naming, where) for layout, naming in ins],
                    [_key(layout, naming, where) for layout, naming in outs],
                    {
                        (name, k): atom
                        for name, index in where.items()
                        for k, atom in enumerate(terms[name][index])
                    },
                )
            )
        return plan

    def _reshape(self, step: Reshape) -> Plan:
        source, target = self.layout(step.source), self.layout(step.target)
        plan = Plan(step, None, [], [])
        if max(source.count, target.count) > MAX_BLOCKS:
            return plan
        pairs: list[list[tuple[dict[int, int], dict[int, int], list, list]]] = []
        for ins, outs in step.groups:
            virtual = [
                axes.resolve(a) if isinstance(a, tuple) else a
                for a in (step.virtual[i] for i in ins)
            ]
            left = _choices(ins, [_terms(p) for p in virtual])
            right = _choices(outs, [target.terms[o] for o in outs])
            same = len(left) == len(right) and all(
                [a for *_, a in x[1]] == [a for *_, a in y[1]]
                for x, y in zip(left, right, strict=True)
            )
            if not same:
                return plan
            marked = {i for i in ins if not isinstance(step.source.axes[i], tuple)}
            pairs.append(
                [
                    ({i: (0 if i in marked else c) for i, c in x[0].items()}, y[0], x[1], y[1])
                    for x, y in zip(left, right, strict=True)
                ]
            )
        hidden = list(step.source.hidden)
        hidden_terms = [range(len(source.terms[source.names.index(h)])) for h in hidden]
        plan.meetings, plan.relabel = [], []
        for picked in itertools.product(*pairs):
            for loops in itertools.product(*hidden_terms):
                where_in: dict[Name, int] = {}
                where_out: dict[Name, int] = {}
                relabel: dict[Position, Position] = {}
                for key_in, key_out, left_atoms, right_atoms in picked:
                    where_in |= key_in
                    where_out |= key_out
                    for (i, k, _), (o, m, _) in zip(left_atoms, right_atoms, strict=True):
                        relabel[i, k] = (o, m)
                for name, chosen in zip(hidden, loops, strict=True):
                    where_in[name] = where_out[name] = chosen
                    for k in range(len(source.terms[source.names.index(name)][chosen])):
                        relabel[name, k] = (name, k)
                key = tuple(where_out.get(n, 0) for n in target.names)
                plan.meetings.append(
                    Meeting(
                        [tuple(where_in.get(n, 0) for n in source.names)], [key], target.atoms(key)
                    )
                )
                plan.relabel.append(relabel)
        return plan

    def _join(self, step: Join) -> list[tuple[int | None, Key, Key]] | None:
        target = self.layout(step.target)
        if target.count > MAX_BLOCKS:
            return None
        owners: list[tuple[int | None, int]] = []
        for number, (source, part) in enumerate(zip(step.sources, step.parts, strict=True)):
            count = len(_terms(axes.resolve(part)))
            marked = source is None or not isinstance(source.axes[step.axis], tuple)
            owners += [
                (None if source is None else number, 0 if marked else i) for i in range(count)
            ]
        if step.target.axes[step.axis] is axes.FIXED:
            owners = []
        elif len(owners) != len(target.terms[step.axis]):
            return None
        rows: list[tuple[int | None, Key, Key]] = []
        for key in target.block_keys():
            entries = owners[key[step.axis] : key[step.axis] + 1] or [
                (n, 0) for n in range(len(step.sources))
            ]
            for owner, own in entries:
                source = None if owner is None else step.sources[owner]
                if source is None:
                    rows.append((None, (), key))
                    continue
                layout = self.layout(source)
                where = dict(zip(target.names, key, strict=True)) | {step.axis: own}
                if not _agree(layout, target, skip=step.axis):
                    return None
                rows.append((owner, _key(layout, {n: n for n in layout.names}, where), key))
        return rows

    def _slice(self, step: Slice) -> list[tuple[Key, Key]] | None:
        source, target = self.layout(step.source), self.layout(step.target)
        if target.count > MAX_BLOCKS:
            return None
        before = axes.resolve(step.before)
        offset = len(_terms(before))
        kept = target.terms[step.axis]
        if source.terms[step.axis][offset : offset + len(kept)] != kept:
            return None
        pairs = []
        for key in target.block_keys():
            own = list(key)
            own[step.axis] += offset
            pairs.append((tuple(own), key))
        return pairs


def _naming(value: Value, names: tuple[Name | None, ...]) -> dict[Name, Name | None]:
    return dict(enumerate(names)) | {loop: loop for loop in value.hidden}


def _key(layout: Layout, naming: dict[Name, Name | None], where: dict[Name, int]) -> Key:
    return tuple(
        where.get(naming[name], 0) if isinstance(product, tuple) else 0
        for name, product in zip(layout.names, layout.products, strict=True)
    )


def _agree(layout: Layout, target: Layout, skip: Name) -> bool:
    for name, product in zip(layout.names, layout.products, strict=True):
        if name == skip or not isinstance(product, tuple):
            continue
        if target.products[target.names.index(name)] != product:
            return False
    return True


def _choices(
    dims: list[int], terms: list[list[Term]]
) -> list[tuple[dict[int, int], list[tuple[int, int, Atom]]]]:
    """Every choice of one term per axis, with its atoms in row-major order."""
    choices = []
    for chosen in itertools.product(*(range(len(t)) for t in terms)):
        atoms = [
            (d, k, atom)
            for d, own, index in zip(dims, terms, chosen, strict=True)
            for k, atom in enumerate(own[index])
        ]
        choices.append((dict(zip(dims, chosen, strict=True)), atoms))
    return choices
