"""One axis in another order: channels that are shuffled, read by what knows the order.

A reshape, a transpose and a reshape back tell units apart that are split and merged in another
order: groups of channels, and places in each. But where the whole axis goes on to what has weights
for every channel, these can follow any permutation. So it is left open what a shuffle does until
the program is read: if both sides are index sets of which nothing else is known, they are one, in
two orders; else the axis is split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jax.extend import core

from onebasin.symmetry import axes
from onebasin.symmetry.axes import Atom, Product, Shuffled
from onebasin.symmetry.program import Equation, new_equation
from onebasin.symmetry.steps import Operand, Recorder, Shuffle, Slice, Step, Value

SHUFFLE = core.Primitive("shuffle")
"""Never run: it stands for three equations while a program is read."""


def shuffle(
    equation: Equation, makers: dict[int, Equation], known: dict[int, float]
) -> list[Equation] | None:
    """Split, transposed and merged, along one axis."""
    transposed = makers.get(id(equation.inputs[0]))
    if transposed is None or transposed.name != "transpose":
        return None
    split = makers.get(id(transposed.inputs[0]))
    if split is None or split.name != "reshape":
        return None
    if equation.params.get("dimensions") or split.params.get("dimensions"):
        return None
    source, target = split.inputs[0], equation.outputs[0]
    parts, order = split.outputs[0].shape, list(transposed.params["permutation"])
    moved = [d for d, n in enumerate(order) if d != n]
    if source.shape != target.shape or not moved:
        return None
    first, last = moved[0], moved[-1] + 1
    sizes = parts[first:last]
    if source.shape != (*parts[:first], math.prod(sizes), *parts[last:]):
        return None
    permutation = tuple(d - first for d in order[first:last])
    said = {"axis": first, "sizes": sizes, "permutation": permutation}
    return [new_equation(SHUFFLE, [source], target, **said)]


def shuffled(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """The rule of a shuffle."""
    value, params = values[0], equation.params
    axis, sizes, permutation = params["axis"], params["sizes"], params["permutation"]
    if _alone(value.axes[axis]) is None:
        return [_split(recorder, value, axis, sizes, permutation)]
    fresh = axes.fresh(value.shape[axis])
    own = tuple(fresh if d == axis else a for d, a in enumerate(value.axes))
    target = Value(value.shape, own, dict(value.hidden), value.known)
    recorder.steps.append(Shuffle(value, target, axis, sizes, permutation))
    return [target]


def _alone(axis: axes.Axis) -> Atom | None:
    """The index set that an axis is, if it is one of which nothing else is known."""
    product = axes.resolve(axis) if isinstance(axis, tuple) else ()
    atom = product[0] if len(product) == 1 else None
    return atom if isinstance(atom, Atom) and not atom.pinned else None


def _split(
    recorder: Recorder,
    value: Value,
    axis: int,
    sizes: Sequence[int],
    permutation: Sequence[int],
) -> Value:
    """The three steps of a shuffle."""
    before, after = value.shape[:axis], value.shape[axis + 1 :]
    parts = recorder.reshape(value, (*before, *sizes, *after))
    rank = parts.rank
    names = [*range(axis), *(axis + d for d in permutation), *range(axis + len(sizes), rank)]
    shape = tuple(parts.shape[d] for d in names)
    (moved,) = recorder.operation([Operand(parts, tuple(range(rank)))], [(shape, names)])
    return recorder.reshape(moved, value.shape)


def settle(recorder: Recorder) -> None:
    """Says what every shuffle does, once nothing more is learnt of the axes."""
    while True:
        found = _in_two_orders([s for s in recorder.steps if isinstance(s, Shuffle)])
        if not isinstance(found, Shuffle):
            break
        _take_apart(recorder, found)
    for atom, other in found.items():
        atom.bound = (other,)
    recorder.steps[:] = [_settled(step) for step in recorder.steps]


def _settled(step: Step) -> Step:
    if not isinstance(step, Shuffle):
        return step
    return Slice(step.source, step.target, step.axis, axes.fresh(0))


Orders = dict[Atom, Shuffled]
"""By index set, the axis that it is in another order."""


def _in_two_orders(steps: Sequence[Shuffle]) -> Orders | Shuffle:
    """What each index set is, or a shuffle for which there is no answer."""
    orders: Orders = {}

    def root(value: Value, axis: int) -> tuple[Product, np.ndarray]:
        own = value.axes[axis]
        product = axes.resolve(own) if isinstance(own, tuple) else ()
        alone = _alone(product)
        if alone is None or alone not in orders:
            return product, np.arange(value.shape[axis])
        return orders[alone].product, np.array(orders[alone].order)

    for step in steps:
        (first, one), (second, other) = (root(v, step.axis) for v in (step.source, step.target))
        # At place i of the target stands what is at place order[i] of the source.
        places = np.arange(len(one)).reshape(step.sizes).transpose(step.permutation).ravel()
        order = one[places]
        if first == second:
            if not np.array_equal(order, other):
                return step
            continue
        joint = order[np.argsort(other)]
        if _alone(second) is None:
            first, second, joint = second, first, np.argsort(joint)
        bound = _alone(second)
        if bound is None or not first:
            return step
        for atom, known in list(orders.items()):
            if known.product == second:
                orders[atom] = Shuffled(first, tuple(joint[np.array(known.order)].tolist()))
        orders[bound] = Shuffled(first, tuple(joint.tolist()))
    return orders


def _take_apart(recorder: Recorder, step: Shuffle) -> None:
    """Puts the three steps of a shuffle where it stands."""
    place = recorder.steps.index(step)
    later = recorder.steps[place + 1 :]
    del recorder.steps[place:]
    result = _split(recorder, step.source, step.axis, step.sizes, step.permutation)
    axes.meet([result.axes[step.axis], step.target.axes[step.axis]])
    recorder.steps.append(Slice(result, step.target, step.axis, axes.fresh(0)))
    recorder.steps.extend(later)
