"""Values in pieces: an axis whose entries lead separate lives is taken apart.

Packed projections reshape one axis into (3, heads, dims) and pick entries of the first. Kept whole,
all three would share one index set of dimensions; taken apart, each has its own. A first walk over
the program shows which axes are picked apart entirely; a second one carries values along those as
`Pieces`, each of length one, for as long as the primitives allow, and joins them where they do not.

Axes laid end to end and folded into rows, as channels of two layers are that are normalised in
groups, are taken apart where one ends and the next begins: rows of different axes have nothing to
do with one another.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from onebasin.symmetry import axes, rules_elementwise
from onebasin.symmetry.axes import Sum
from onebasin.symmetry.program import Equation, Variable
from onebasin.symmetry.steps import Recorder, Value, reshape_groups

MAX_PIECES = 16


@dataclasses.dataclass(eq=False, slots=True)
class Pieces:
    """A value as a list of values that lie end to end along `axis`."""

    axis: int
    values: list[Value]

    @property
    def lengths(self) -> list[int]:
        return [value.shape[self.axis] for value in self.values]

    @property
    def shape(self) -> tuple[int, ...]:
        shape = list(self.values[0].shape)
        shape[self.axis] = sum(self.lengths)
        return tuple(shape)


class Cut(NamedTuple):
    """Where the result of a reshape is taken apart: an axis, and how long the pieces are."""

    axis: int
    lengths: tuple[int, ...]


Operand = Value | Pieces
Rule = Callable[[Recorder, Equation, list[Value]], list[Value]]


def joined(recorder: Recorder, operand: Operand) -> Value:
    """The value as a whole."""
    if isinstance(operand, Value):
        return operand
    return recorder.join(operand.values, operand.lengths, operand.axis)


def picked_apart(value: Value) -> int | None:
    """The axis of a value whose entries all lead separate lives, if others gain from it."""
    products = [axes.resolve(a) if isinstance(a, tuple) else () for a in value.axes]
    movable = [any(not atom.pinned for atom in axes.atoms(p)) for p in products]
    for axis, product in enumerate(products):
        if len(product) != 1 or not isinstance(product[0], Sum):
            continue
        segments = product[0].segments
        others = any(movable[d] for d in range(value.rank) if d != axis)
        if len(segments) <= MAX_PIECES and not any(segments) and others:
            return axis
    return None


def rows_of_sums(source: Operand, shape: tuple[int, ...]) -> Cut | None:
    """How a reshape is taken apart that folds axes laid end to end into rows."""
    if not isinstance(source, Value):
        return None
    for ins, outs in reshape_groups(source.shape, shape):
        axis = source.axes[ins[0]]
        product = axes.resolve(axis) if isinstance(axis, tuple) and len(ins) == 1 else ()
        if len(outs) < 2 or len(product) != 1 or not isinstance(product[0], Sum):
            continue
        if all(atom.pinned for atom in axes.atoms(product)):
            continue
        length = source.shape[ins[0]] // shape[outs[0]]
        ends = itertools.accumulate(axes.size(segment) for segment in product[0].segments)
        rows = {0, *(row for end in ends for row in (end // length, -(-end // length)))}
        lengths = [b - a for a, b in itertools.pairwise(sorted(rows))]
        if 1 < len(lengths) <= MAX_PIECES:
            return Cut(outs[0], tuple(lengths))
    return None


def reshape_pieces(recorder: Recorder, source: Operand, shape: tuple[int, ...]) -> Operand:
    """A reshape that leaves the axis of pieces alone, or merges it with the next, by pieces."""
    if isinstance(source, Value):
        return recorder.reshape(source, shape)
    before, lengths = math.prod(source.shape[: source.axis]), source.lengths
    for axis, n in enumerate(shape):
        inner = n // sum(lengths)
        if n != inner * sum(lengths) or not n or math.prod(shape[:axis]) != before:
            continue
        parts = [
            recorder.reshape(v, (*shape[:axis], length * inner, *shape[axis + 1 :]))
            for v, length in zip(source.values, lengths, strict=True)
        ]
        pieces = Pieces(axis, parts)
        return pieces if inner == 1 else joined(recorder, pieces)
    return recorder.reshape(joined(recorder, source), shape)


def reshape_apart(recorder: Recorder, source: Value, shape: tuple[int, ...], cut: Cut) -> Operand:
    """A reshape whose result is wanted in pieces."""
    axis, inner = cut.axis, 1
    tail = axis + 1
    total = math.prod(source.shape)
    before = math.prod(shape[:axis])
    # The axes behind `axis` that come from the same source axis stay with it until it is cut.
    boundaries = {math.prod(source.shape[:d]) for d in range(source.rank + 1)}
    while before * shape[axis] * inner not in boundaries and tail < len(shape):
        inner *= shape[tail]
        tail += 1
    if before * shape[axis] * inner not in boundaries or not total:
        return recorder.reshape(source, shape)
    folded = recorder.reshape(source, (*shape[:axis], shape[axis] * inner, *shape[tail:]))
    pieces = []
    for start, stop in itertools.pairwise(itertools.accumulate(cut.lengths, initial=0)):
        part = recorder.slice(folded, axis, start * inner, stop * inner)
        pieces.append(recorder.reshape(part, (*shape[:axis], stop - start, *shape[axis + 1 :])))
    return Pieces(axis, pieces)


def lift(
    recorder: Recorder, equation: Equation, operands: list[Operand], rule: Rule
) -> list[Operand]:
    """Applies a rule piece by piece where the primitive lets pieces through, else to the whole."""
    apart = [o for o in operands if isinstance(o, Pieces)]
    if not apart:
        return list(rule(recorder, equation, operands))  # type: ignore[arg-type]
    taken = _pick(recorder, equation, operands)
    if taken is not None:
        return taken
    axis = _output_axis(equation, operands)
    lengths = apart[0].lengths
    if axis is None or any(o.lengths != lengths for o in apart):
        return list(rule(recorder, equation, [joined(recorder, o) for o in operands]))
    columns: list[list[Value]] = []
    for number, length in enumerate(lengths):
        # Only elementwise do other operands share the axis; elsewhere they are taken whole.
        shared = axis if equation.name in rules_elementwise.RULES else None
        values = [_piece(recorder, o, shared, number, lengths) for o in operands]
        columns.append(rule(recorder, _narrow(equation, axis, apart[0].axis, length), values))
    return [Pieces(axis, list(results)) for results in zip(*columns, strict=True)]


def _piece(
    recorder: Recorder, operand: Operand, axis: int | None, number: int, lengths: list[int]
) -> Value:
    if isinstance(operand, Pieces):
        return operand.values[number]
    if axis is not None and operand.rank > axis and operand.shape[axis] == sum(lengths):
        start = sum(lengths[:number])
        return recorder.slice(operand, axis, start, start + lengths[number])
    return operand


def _narrow(equation: Equation, axis: int, source_axis: int, length: int) -> Equation:
    """The same equation on values of some length along an axis."""
    outputs = []
    for variable in equation.outputs:
        shape = list(variable.shape)
        shape[axis] = length
        outputs.append(Variable(variable.aval.update(shape=tuple(shape))))
    params: dict[str, Any] = dict(equation.params)
    if equation.name == "broadcast_in_dim":
        params["shape"] = outputs[0].shape
    if equation.name == "slice":
        limits = list(params["limit_indices"])
        limits[source_axis] = length
        params["limit_indices"] = tuple(limits)
    return dataclasses.replace(equation, params=params, outputs=outputs)


def _pick(recorder: Recorder, equation: Equation, operands: list[Operand]) -> list[Operand] | None:
    """Slices along the axis that is apart: the pieces themselves."""
    source = operands[0]
    if not isinstance(source, Pieces) or set(source.lengths) != {1}:
        return None
    if equation.name == "slice":
        start = equation.params["start_indices"][source.axis]
        stop = equation.params["limit_indices"][source.axis]
        strides = equation.params["strides"] or (1,) * len(source.shape)
        others = [
            d
            for d, n in enumerate(source.shape)
            if d != source.axis
            and (
                (equation.params["start_indices"][d], equation.params["limit_indices"][d]) != (0, n)
                or strides[d] != 1
            )
        ]
        chosen = source.values[start : stop : strides[source.axis]]
        if not others and chosen:
            return [chosen[0] if len(chosen) == 1 else Pieces(source.axis, chosen)]
    if equation.name == "unstack" and equation.params["axis"] == source.axis:
        shape = (*source.shape[: source.axis], *source.shape[source.axis + 1 :])
        return [recorder.reshape(value, shape) for value in source.values]
    if equation.name == "split" and equation.params["axis"] == source.axis:
        sizes = equation.params["sizes"]
        if all(n == 1 for n in sizes):
            return list(source.values)
    return None


def _output_axis(equation: Equation, operands: list[Operand]) -> int | None:
    """Where the axis that is apart comes out; None where it does not."""
    apart = [(number, o.axis) for number, o in enumerate(operands) if isinstance(o, Pieces)]
    number, axis = apart[0]
    name, params = equation.name, equation.params
    if name in rules_elementwise.RULES:
        same = all(a == axis for _, a in apart)
        full = all(len(o.shape) in (0, len(equation.outputs[0].shape)) for o in operands)
        return axis if same and full else None
    if len(apart) > 1:
        return None
    if name == "transpose":
        return list(params["permutation"]).index(axis)
    if name == "broadcast_in_dim":
        return int(params["broadcast_dimensions"][axis])
    if name == "squeeze":
        return axis - sum(d % len(operands[0].shape) < axis for d in params["dimensions"])
    if name == "slice":
        stride = params["strides"][axis] if params["strides"] else 1
        whole = (params["start_indices"][axis], params["limit_indices"][axis], stride)
        return axis if whole == (0, operands[0].shape[axis], 1) else None
    if name in ("reduce_sum", "reduce_max", "reduce_min") and axis not in params["axes"]:
        return axis - sum(d < axis for d in params["axes"])
    if name == "dot_general":
        return _dot_axis(params["dimension_numbers"], operands, number, axis)
    return None


def _dot_axis(numbers: Any, operands: list[Operand], number: int, axis: int) -> int | None:
    sums, batches = numbers
    if axis in sums[number] or axis in batches[number]:
        return None
    free = [
        [d for d in range(len(o.shape)) if d not in sums[i] and d not in batches[i]]
        for i, o in enumerate(operands)
    ]
    offset = len(batches[0]) + (len(free[0]) if number == 1 else 0)
    return offset + free[number].index(axis)
