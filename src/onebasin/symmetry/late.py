"""What is done with something that was looked up, done at every place before the lookup.

An expert whose weights are fetched by an index has units of its own. Once it is fetched nobody can
tell whose they are: so the work is written as if all experts did it, and what they give is looked
up last.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onebasin.symmetry.program import Equation, Variable, new_equation, sources_of_axes
from onebasin.symmetry.rows import Rows
from onebasin.symmetry.rules_elementwise import RULES as ELEMENTWISE

Axes = tuple[int | None, ...]
"""By axis of a value, the axis of an index that it goes along, if any."""

_REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod")


@dataclasses.dataclass(frozen=True, slots=True)
class Late:
    """A value that is looked up by an index.

    Attributes:
        base: The row of the index.
        axes: The axes of the value that go along with the index.
        everywhere: What it would be at each place, places last.
    """

    base: Variable
    axes: Axes
    everywhere: Variable


def lifted(rows: Rows, lates: Mapping[int, Late], equation: Equation) -> Late | None:
    """The result of an equation on values that are looked up, worked out at every place."""
    found = [lates.get(id(v)) for v in equation.inputs]
    base = next((late.base for late in found if late is not None), None)
    if base is None or len(equation.outputs) != 1:
        return None
    own = [late if late is not None and late.base is base else None for late in found]
    axes = _axes_after(equation, own)
    if axes is None:
        return None

    def work(*operands: Any) -> Any:
        params = equation.primitive.get_bind_params(equation.params)
        return equation.primitive.bind(*operands, **params)

    along = [None if late is None else -1 for late in own]
    inputs = [v if e is None else e.everywhere for v, e in zip(equation.inputs, own, strict=True)]
    everywhere = rows.write(jax.vmap(work, in_axes=along, out_axes=-1), *inputs)
    return Late(base, axes, everywhere)


def in_steps(lates: Mapping[int, Late], equation: Equation) -> list[Equation]:
    """An equation in such steps that each can be lifted.

    A split is several slices; a product that sums over an index and over more at once sums over the
    index by itself, and last.
    """
    found = [lates[id(v)] for v in equation.inputs if id(v) in lates]
    if equation.name == "split" and found:
        return _slices(equation)
    if equation.name != "dot_general" or len(found) != 2:
        return [equation]
    left, right = found
    sums, batches = equation.params["dimension_numbers"]
    along = [
        (a, b)
        for a, b in zip(*sums, strict=True)
        if left.base is right.base and left.axes[a] is not None and left.axes[a] == right.axes[b]
    ]
    if not along:
        return [equation]
    rest = [pair for pair in zip(*sums, strict=True) if pair not in along]
    kept = [*zip(*batches, strict=True), *along]
    shape = list(equation.outputs[0].shape)
    count = len(batches[0])
    shape[count:count] = [equation.inputs[0].shape[a] for a, _ in along]
    each = Variable(equation.outputs[0].aval.update(shape=tuple(shape)))
    numbers = tuple(
        (tuple(a for a, _ in pairs), tuple(b for _, b in pairs)) for pairs in (rest, kept)
    )
    product = dataclasses.replace(
        equation, params={**equation.params, "dimension_numbers": numbers}, outputs=[each]
    )
    axes = tuple(range(count, count + len(along)))
    total = new_equation(
        lax.reduce_sum_p, [each], equation.outputs[0], axes=axes, out_sharding=None
    )
    return [product, total]


def _slices(equation: Equation) -> list[Equation]:
    """The parts of a split, one by one."""
    axis, start, made = equation.params["axis"], 0, []
    for output, length in zip(equation.outputs, equation.params["sizes"], strict=True):
        first = tuple(start if d == axis else 0 for d in range(len(output.shape)))
        last = tuple(a + n for a, n in zip(first, output.shape, strict=True))
        ends = {"start_indices": first, "limit_indices": last, "strides": None}
        made.append(new_equation(lax.slice_p, equation.inputs, output, **ends))
        start += length
    return made


def looked_up(rows: Rows, late: Late) -> Variable:
    """The value itself: the sum over all places of those that the row names."""
    last = len(late.base.shape) - 1
    new = itertools.count(last + 1)
    out = [next(new) if axis is None else axis for axis in late.axes]
    single = tuple(d for d in range(last) if d not in late.axes)
    names = [d for d in range(last + 1) if d not in single]

    def total(row: Any, everywhere: Any) -> Any:
        kind = jnp.promote_types(everywhere.dtype, np.float32)
        row = lax.squeeze(row, single).astype(kind)
        result = jnp.einsum(row, names, everywhere.astype(kind), [*out, last], out)
        return result.astype(everywhere.dtype)

    return rows.write(total, late.base, late.everywhere)


def _axes_after(equation: Equation, lates: Sequence[Late | None]) -> Axes | None:
    """Which axes of a result go along with the index; None if it mixes what they keep apart."""
    name, rank = equation.name, len(equation.outputs[0].shape)
    present = [late for late in lates if late is not None]
    first = present[0].axes
    if name in ELEMENTWISE:
        same = all(late.axes == first for late in present)
        return first if same and len(first) == rank else None
    if name in _REDUCTIONS:
        gone = equation.params["axes"]
        if any(first[d] is not None for d in gone):
            return None
        return tuple(a for d, a in enumerate(first) if d not in gone)
    if name == "dot_general":
        return _axes_of_product(equation, lates)
    if name == "slice":
        source, target = equation.inputs[0].shape, equation.outputs[0].shape
        whole = all(n == m or a is None for n, m, a in zip(source, target, first, strict=True))
        return first if whole else None
    came = sources_of_axes(equation)
    return None if came is None else tuple(None if c is None else first[c] for c in came)


def _axes_of_product(equation: Equation, lates: Sequence[Late | None]) -> Axes | None:
    sums, batches = equation.params["dimension_numbers"]
    ranks = [len(v.shape) for v in equation.inputs]
    both = [late.axes if late else (None,) * n for late, n in zip(lates, ranks, strict=True)]
    if any(own[d] is not None for own, dims in zip(both, sums, strict=True) for d in dims):
        return None
    pairs = [(both[0][a], both[1][b]) for a, b in zip(*batches, strict=True)]
    free = [
        [a for d, a in enumerate(own) if d not in (*summed, *batch)]
        for own, summed, batch in zip(both, sums, batches, strict=True)
    ]
    own = [a for side in free for a in side]
    if all(lates) and (any(a != b for a, b in pairs) or own.count(None) < len(own)):
        return None
    return (*(a if b is None else b for a, b in pairs), *own)
