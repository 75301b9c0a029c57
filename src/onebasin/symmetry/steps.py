"""What the axis pass leaves for later ones: values with typed axes, and steps between them.

Every primitive is brought down to a handful of steps. An `Operation` says which axes of its
operands are one index (they share a name), which indices it sums or mixes over, and what it does to
scales and signs; the others only move blocks about.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

from onebasin.symmetry import axes
from onebasin.symmetry.axes import ANY, FIXED, Axis, Product

Name = Any
"""Names of indices: hashable, and otherwise free for a rule to choose."""

Effect = Literal["keep", "zero", "clear"]
"""keep: passes through; zero: the operand may not carry any; clear: whatever it carries is gone."""


@dataclasses.dataclass(eq=False, slots=True)
class Value:
    """An array of the program: one axis expression per axis, plus one per loop it varies with."""

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    hidden: dict[str, Product] = dataclasses.field(default_factory=dict)
    known: float | None = None

    def __post_init__(self) -> None:
        self.axes = tuple(
            () if n == 1 else FIXED if n == 0 else axis
            for n, axis in zip(self.shape, self.axes, strict=True)
        )

    @property
    def rank(self) -> int:
        return len(self.shape)

    def named_axes(self, names: Sequence[Name | None]) -> list[tuple[Name, Axis]]:
        pairs = [(n, axis) for n, axis in zip(names, self.axes, strict=True) if n is not None]
        return [*pairs, *self.hidden.items()]


@dataclasses.dataclass(eq=False, slots=True)
class Operand:
    """A value taking part in an operation; weight None means that it may carry no scale or sign."""

    value: Value
    names: tuple[Name | None, ...]
    weight: Fraction | int | None = 1


@dataclasses.dataclass(eq=False, slots=True)
class Operation:
    """Elementwise, reducing or contracting work on named indices.

    `combine` is "product" (exponents add up, times weights) or "equal" (all operands must agree).
    An index in `closed` is summed or mixed over: nothing may be carried along it.
    """

    operands: list[Operand]
    outputs: list[Operand]
    combine: Literal["product", "equal"] = "product"
    closed: frozenset[Name] = frozenset()
    scale: Effect = "keep"
    sign: Effect = "keep"


@dataclasses.dataclass(eq=False, slots=True)
class Reshape:
    """Row-major relabelling; `virtual` are the source's axes with markers made into index sets."""

    source: Value
    target: Value
    virtual: tuple[Axis, ...]
    groups: list[tuple[list[int], list[int]]]


@dataclasses.dataclass(eq=False, slots=True)
class Join:
    """Concatenation of `sources` along `axis`; a source that is None is filled with `filling`."""

    sources: list[Value | None]
    parts: list[Product]
    target: Value
    axis: int
    filling: Value | None = None


@dataclasses.dataclass(eq=False, slots=True)
class Slice:
    """The part of `source` along `axis` that follows the segments `before`."""

    source: Value
    target: Value
    axis: int
    before: Product


@dataclasses.dataclass(eq=False, slots=True)
class Shuffle:
    """The same in another order along `axis`: it is split by `sizes`, transposed and merged again.

    Which steps it stands for is said when all axes are settled (`shuffles.settle`).
    """

    source: Value
    target: Value
    axis: int
    sizes: tuple[int, ...]
    permutation: tuple[int, ...]


@dataclasses.dataclass(eq=False, slots=True)
class Unknown:
    """A value that may carry any scale and sign: a part of a parameter, or a loop's state."""

    value: Value
    part: int | None = None


@dataclasses.dataclass(eq=False, slots=True)
class Result:
    """An output of the model: pinned, and free of scales and signs."""

    value: Value


Step = Operation | Reshape | Join | Slice | Shuffle | Unknown | Result


class Recorder:
    """Builds values and steps; every rule for a primitive goes through these few methods."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.unknown_primitives: dict[str, int] = {}
        self._loops = 0

    def loop_name(self) -> str:
        self._loops += 1
        return f"loop {self._loops}"

    def unknown(self, shape: Sequence[int], part: int | None = None) -> Value:
        value = Value(tuple(shape), tuple(axes.fresh(n) for n in shape))
        self.steps.append(Unknown(value, part))
        return value

    def result(self, value: Value) -> None:
        for axis in value.axes:
            axes.pin(axis)
        self.steps.append(Result(value))

    def operation(
        self,
        operands: Sequence[Operand],
        outputs: Sequence[tuple[Sequence[int], Sequence[Name | None]]],
        *,
        fixed: frozenset[Name] = frozenset(),
        closed: frozenset[Name] = frozenset(),
        combine: Literal["product", "equal"] = "product",
        scale: Effect = "keep",
        sign: Effect = "keep",
    ) -> list[Value]:
        """Records an operation; indices in `fixed` are pinned and come out as unstructured axes."""
        index: dict[Name, list[Axis]] = {}
        for operand in operands:
            operand.names = tuple(
                None if n == 1 else name
                for n, name in zip(operand.value.shape, operand.names, strict=True)
            )
            for name, axis in operand.value.named_axes(operand.names):
                index.setdefault(name, []).append(axis)
        joint = {name: axes.meet(group) for name, group in index.items()}
        for name in fixed:
            if name in joint:
                axes.pin(joint[name])
                joint[name] = FIXED
        results = []
        for shape, names in outputs:
            taken = tuple(
                FIXED if name in fixed else joint.get(name, ANY) if name is not None else FIXED
                for name in names
            )
            hidden = {
                name: axis
                for name, axis in joint.items()
                if isinstance(name, str)
                and name.startswith("loop")
                and name not in names
                and name not in closed
                and isinstance(axis, tuple)
            }
            value = Value(tuple(shape), taken, hidden)
            output_names = tuple(
                None if n == 1 else name for n, name in zip(shape, names, strict=True)
            )
            results.append(Operand(value, output_names))
        self.steps.append(
            Operation(
                list(operands), results, combine, closed | (fixed & joint.keys()), scale, sign
            )
        )
        return [result.value for result in results]

    def opaque(self, values: Sequence[Value], shapes: Sequence[Sequence[int]]) -> list[Value]:
        """Anything goes inside: all operands are pinned and may carry nothing."""
        operands = []
        for number, value in enumerate(values):
            for axis in value.axes:
                axes.pin(axis)
            operands.append(Operand(value, tuple((number, i) for i in range(value.rank)), None))
        closed = frozenset(name for operand in operands for name in operand.names)
        hidden = {name: axis for value in values for name, axis in value.hidden.items()}
        outputs = [Value(tuple(s), (FIXED,) * len(s), dict(hidden)) for s in shapes]
        self.steps.append(
            Operation(operands, [Operand(v, (None,) * v.rank) for v in outputs], closed=closed)
        )
        return outputs

    def reshape(self, source: Value, shape: Sequence[int]) -> Value:
        shape = tuple(shape)
        if 0 in source.shape:
            return self.opaque([source], [shape])[0]
        virtual: list[Axis] = list(source.axes)
        target: list[Axis] = [()] * len(shape)
        groups = reshape_groups(source.shape, shape)
        for ins, outs in groups:
            if len(ins) == len(outs) == 1:
                target[outs[0]] = source.axes[ins[0]]
                continue
            first = source.axes[ins[0]]
            # A mask that is repeated for all heads, and flattened, is still uniform along them.
            if not isinstance(first, tuple) and all(source.axes[i] is first for i in ins):
                for o in outs:
                    target[o] = first
                continue
            for i in ins:
                axis = source.axes[i]
                if not isinstance(axis, tuple):
                    virtual[i] = axes.fresh(source.shape[i], pinned=axis is FIXED)
            rest: Product = tuple(item for i in ins for item in virtual[i])  # type: ignore[union-attr]
            whole = rest
            try:
                for o in outs:
                    target[o], rest = axes.split(rest, shape[o])
            except axes.Clash:
                axes.pin(whole)
                for o in outs:
                    target[o] = FIXED
        value = Value(shape, tuple(target), dict(source.hidden), source.known)
        self.steps.append(Reshape(source, value, tuple(virtual), groups))
        return value

    def join(
        self,
        sources: Sequence[Value | None],
        lengths: Sequence[int],
        axis: int,
        filling: Value | None = None,
    ) -> Value:
        """Lays values end to end along one axis, unifying all others."""
        present = [source for source in sources if source is not None]
        others: list[Axis] = [
            ANY if d == axis else axes.meet(v.axes[d] for v in present)
            for d in range(present[0].rank)
        ]
        parts: list[Product] = []
        for source, length in zip(sources, lengths, strict=True):
            own = ANY if source is None else source.axes[axis]
            if not isinstance(own, tuple):
                own = axes.fresh(length, pinned=own is FIXED)
            parts.append(own)
        if all(s is not None and s.axes[axis] is FIXED for s in sources):
            others[axis] = FIXED
        else:
            others[axis] = axes.concatenate(parts)
        shape = list(present[0].shape)
        shape[axis] = sum(lengths)
        hidden = {name: a for v in present for name, a in v.hidden.items()}
        value = Value(tuple(shape), tuple(others), hidden)
        self.steps.append(Join(list(sources), parts, value, axis, filling))
        return value

    def slice(self, source: Value, axis: int, start: int, stop: int) -> Value:
        """The contiguous part [start, stop) of one axis."""
        shape = list(source.shape)
        shape[axis] = stop - start
        whole = source.axes[axis]
        if not isinstance(whole, tuple) or stop == start or whole == ():
            names = tuple(range(source.rank))
            operand = Operand(source, names)
            (value,) = self.operation([operand], [(shape, names)])
            return value
        try:
            before, rest = axes.cut(whole, start)
            kept, _ = axes.cut(rest, stop - start)
            before = axes.resolve(before)
        except axes.Clash:
            return self.mixed(source, [axis], shape)
        out = tuple(kept if d == axis else a for d, a in enumerate(source.axes))
        value = Value(tuple(shape), out, dict(source.hidden))
        self.steps.append(Slice(source, value, axis, before))
        return value

    def mixed(
        self,
        source: Value,
        dims: Sequence[int],
        shape: Sequence[int],
        *,
        scale: Effect = "keep",
        sign: Effect = "keep",
    ) -> Value:
        """A value whose positions along `dims` were moved, mixed or told apart."""
        names = tuple(range(source.rank))
        (value,) = self.operation(
            [Operand(source, names)],
            [(shape, names)],
            fixed=frozenset(dims),
            scale=scale,
            sign=sign,
        )
        return value


def reshape_groups(
    source: tuple[int, ...], target: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    """Runs of axes whose sizes multiply to the same number on both sides; size 1 left out."""
    ins = [i for i, n in enumerate(source) if n != 1]
    outs = [o for o, n in enumerate(target) if n != 1]
    groups = []
    while ins or outs:
        left, right = [ins.pop(0)], [outs.pop(0)]
        a, b = source[left[0]], target[right[0]]
        while a != b:
            if a < b:
                left.append(ins.pop(0))
                a *= source[left[-1]]
            else:
                right.append(outs.pop(0))
                b *= target[right[-1]]
        groups.append((left, right))
    return groups
