"""Dependent index sets: where each index of a parent has its own permutation of the child.

An index set b may depend on a when every block that has b has a exactly once, and in every step all
participants that share an index of b share that of a. Heads and each head's dimensions, groups and
each group's channels, stacked layers and each layer's units are found so: the group is a wreath
product, not a direct one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from onebasin.symmetry import axes
from onebasin.symmetry.axes import Atom
from onebasin.symmetry.blocks import MAX_BLOCKS, Planner, Position
from onebasin.symmetry.steps import Join, Operation, Reshape, Slice, Step, Unknown, Value


def parents(steps: list[Step], planner: Planner) -> dict[Atom, set[Atom]]:
    """For each permutable index set, those that it may depend on; never circular."""
    allowed: dict[Atom, set[Atom]] = {}

    def restrict(child: Atom, to: Iterable[Atom]) -> None:
        allowed[child] = allowed[child] & set(to) if child in allowed else set(to)

    for value in _values(steps):
        layout = planner.layout(value)
        if layout.count > MAX_BLOCKS:
            for product in layout.products:
                if isinstance(product, tuple):
                    for atom in axes.atoms(product):
                        restrict(atom, ())
            continue
        for key in layout.block_keys():
            counts = Counter(layout.atoms(key).values())
            once = {atom for atom, count in counts.items() if count == 1}
            for child in counts:
                restrict(child, once - {child})

    for step in steps:
        if isinstance(step, Operation):
            _restrict_by_operation(step, planner, allowed)

    found: dict[Atom, set[Atom]] = {}
    for child, candidates in allowed.items():
        found[child] = set()
        if child.pinned:
            continue
        for parent in candidates:
            mutual = child in allowed.get(parent, ()) and not parent.pinned
            if not mutual or parent.number < child.number:
                found[child].add(parent)
    return found


def _restrict_by_operation(
    step: Operation, planner: Planner, allowed: dict[Atom, set[Atom]]
) -> None:
    participants = (*step.operands, *step.outputs)
    atoms = {
        atom
        for p in participants
        for product in planner.layout(p.value).products
        if isinstance(product, tuple)
        for atom in axes.atoms(product)
    }
    if not any(allowed.get(atom) for atom in atoms):
        return
    plan = planner.operation(step)
    if plan.meetings is None:
        for atom in atoms:
            allowed[atom] = set()
        return
    for meeting in plan.meetings:
        held: list[dict[Position, Atom]] = []
        keys = (*meeting.operands, *meeting.outputs)
        namings = (*plan.names, *plan.output_names)
        for participant, key, naming in zip(participants, keys, namings, strict=True):
            layout = planner.layout(participant.value)
            held.append({(naming[n], k): atom for (n, k), atom in layout.atoms(key).items()})
        for position, child in meeting.atoms.items():
            sharing = [own for own in held if position in own]
            for parent in list(allowed.get(child, ())):
                places = {p for own in sharing for p, atom in own.items() if atom is parent}
                if len(places) > 1:
                    allowed[child].discard(parent)


def _values(steps: list[Step]) -> list[Value]:
    found: dict[int, Value] = {}

    def note(value: Value | None) -> None:
        if value is not None:
            found[id(value)] = value

    for step in steps:
        if isinstance(step, Operation):
            for operand in (*step.operands, *step.outputs):
                note(operand.value)
        elif isinstance(step, (Reshape, Slice)):
            note(step.source)
            note(step.target)
        elif isinstance(step, Join):
            for source in step.sources:
                note(source)
            note(step.target)
        elif isinstance(step, Unknown):
            note(step.value)
    return list(found.values())
