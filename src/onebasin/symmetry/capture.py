"""Where a model's units are read: the contractions over its index sets, and the values in them.

The value that enters a contraction over a factor's index is that factor's activation, for any
model. A probe lists these contractions and evaluates what enters them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.symmetry.assemble import box_of
from onebasin.symmetry.blocks import MAX_BLOCKS
from onebasin.symmetry.choices import without_indices
from onebasin.symmetry.discover import Analysis, analyse, understood
from onebasin.symmetry.elements import Block
from onebasin.symmetry.group import Symmetry
from onebasin.symmetry.loops import Read, opened
from onebasin.symmetry.program import (
    Equation,
    Program,
    Variable,
    depends_on,
    evaluate,
    origins,
)
from onebasin.symmetry.ragged import without_groups
from onebasin.symmetry.steps import Value

MAX_ENTRIES = 1 << 26
"""How large a value may become if experts that are fetched all do their work."""


@dataclasses.dataclass(frozen=True, slots=True)
class Captured:
    """A value of the program, by its number among the probe's values.

    Attributes:
        number: Which of `Probe.values`.
        blocks: Its boxes, with the index sets of their sides ("" where there is none).
        leaf: The parameter that it is, if it is one as it stands.
        data: Whether it depends on the inputs.
        origin: The parameter that it is, if it is one, moved or not.
        moves: What happened to that parameter.
    """

    number: int
    blocks: tuple[Block, ...]
    leaf: int | None
    data: bool
    origin: int | None = None
    moves: tuple[Equation, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Contraction:
    """Two values summed over the index sets in `over`, giving `result`.

    `axes` are the axes of each value along which that is done, `loops` the loops whose steps its
    first axes are.
    """

    operands: tuple[Captured, Captured]
    over: frozenset[str]
    result: Captured
    axes: tuple[tuple[int, ...], tuple[int, ...]]
    loops: tuple[tuple[int, ...], tuple[int, ...]]


class Probe:
    """The contractions of a model, and a function that evaluates what enters them.

    Those in loops are among them, their values stacked over the steps.

    Args:
        apply_fn: The model.
        params: Any parameters of it.
        inputs: An example of its inputs.
        symmetry: The group of the model, if it is known.
    """

    def __init__(
        self,
        apply_fn: Callable[[Any, Any], Any],
        params: Any,
        inputs: Any,
        *,
        symmetry: Symmetry | None = None,
    ):
        self._count = len(jax.tree.leaves(params))
        self._analysis = understood(apply_fn, params, inputs)
        choices = symmetry is None or symmetry.factors == self._analysis.symmetry.factors
        if not choices:
            self._analysis = understood(apply_fn, params, inputs, choices=False)
        original = self._analysis.program
        plain = _unfetched(original, self._count) if self._analysis.chosen else original
        plain = _if_small(plain, without_groups(plain))
        self._program, seen = opened(plain)
        if plain is not original or any(e.name == "scan" for e in original.equations):
            self._analysis = analyse(self._program, params, original, choices=choices)
        self._data = depends_on(self._program, self._program.inputs[self._count :])
        self._origins = origins(self._program, self._program.inputs[: self._count])
        self._watched: list[Variable] = []
        self.symmetry = self._analysis.symmetry
        self.contractions: list[Contraction] = []
        for each in seen:
            left, right, result = (
                self._captured(r.variable) for r in (*each.operands, each.result)
            )
            if left is None or right is None or result is None:
                continue
            over = frozenset().union(*(_names_along(self._analysis, r) for r in each.operands))
            if over or any(any(block.sides) for block in result.blocks):
                one, two = each.operands
                along, loops = (one.axes, two.axes), (one.loops, two.loops)
                self.contractions.append(Contraction((left, right), over, result, along, loops))

    def values(self, params: Any, inputs: Any) -> list[Any]:
        """What enters and leaves the contractions, in the order of their numbers."""
        arguments = [*jax.tree.leaves(params), *jax.tree.leaves(inputs)]
        # A mean of networks in half precision may come in single.
        cast = [
            x.astype(v.aval.dtype) if _differ(x, v) else x
            for x, v in zip(arguments, self._program.inputs, strict=True)
        ]
        return evaluate(self._program, cast, self._watched)

    def _captured(self, variable: Variable) -> Captured | None:
        value = self._analysis.types.get(id(variable))
        if not isinstance(value, Value) or value.hidden or _is_complex(variable):
            return None
        layout = self._analysis.planner.layout(value)
        if layout.count > MAX_BLOCKS:
            return None
        numbers = {id(v): i for i, v in enumerate(self._watched)}
        number = numbers.get(id(variable))
        if number is None:
            number = len(self._watched)
            self._watched.append(variable)
        leaves = {id(v): i for i, v in enumerate(self._program.inputs[: self._count])}
        blocks = tuple(
            box_of(layout, key, value.shape, self._analysis.names) for key in layout.block_keys()
        )
        origin, moves = self._origins.get(id(variable), (None, []))
        data = id(variable) in self._data
        return Captured(number, blocks, leaves.get(id(variable)), data, origin, tuple(moves))


def _unfetched(program: Program, count: int) -> Program:
    """A program whose experts all do their work before some are chosen, unless that is too much."""
    written = without_indices(program, set(map(id, program.inputs[:count])))
    fetches = [
        sum(equation.name in ("dynamic_slice", "gather") for equation in each.equations)
        for each in (program, written)
    ]
    return _if_small(program, written) if fetches[1] < fetches[0] else program


def _if_small(program: Program, written: Program) -> Program:
    """A program written anew, unless one of its values is too large."""
    sizes = [math.prod(v.shape) for equation in written.equations for v in equation.outputs]
    return written if max(sizes, default=0) <= MAX_ENTRIES else program


def _names_along(analysis: Analysis, read: Read) -> set[str]:
    value = analysis.types.get(id(read.variable))
    if not isinstance(value, Value):
        return set()
    layout = analysis.planner.layout(value)
    return {
        analysis.names[atom]
        for axis in read.axes
        for term in layout.terms[axis]
        for atom in term
        if atom in analysis.names
    }


def _is_complex(variable: Variable) -> bool:
    """Whether a value has two parts, of which those who compare units would see one."""
    return bool(jax.dtypes.issubdtype(variable.aval.dtype, jnp.complexfloating))


def _differ(array: Any, variable: Variable) -> bool:
    """Whether both are floating point, and of different precision."""
    dtypes = getattr(array, "dtype", None), getattr(variable.aval, "dtype", None)
    if None in dtypes or dtypes[0] == dtypes[1]:
        return False
    return all(jax.dtypes.issubdtype(dtype, jnp.floating) for dtype in dtypes)
