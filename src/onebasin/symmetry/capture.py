"""Where a model's units are read: the contractions over its index sets, and the values in them.

The value that enters a contraction over a factor's index is that factor's activation, for any
model. A probe lists these contractions and evaluates what enters them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax

from onebasin.symmetry.assemble import box_of
from onebasin.symmetry.blocks import MAX_BLOCKS
from onebasin.symmetry.discover import Analysis, understood
from onebasin.symmetry.elements import Block
from onebasin.symmetry.program import Equation, Variable, depends_on, evaluate, origins
from onebasin.symmetry.steps import Value


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

    `axes` are the axes of each value along which that is done.
    """

    operands: tuple[Captured, Captured]
    over: frozenset[str]
    result: Captured
    axes: tuple[tuple[int, ...], tuple[int, ...]]


class Probe:
    """The contractions of a model, and a function that evaluates what enters them."""

    def __init__(self, apply_fn: Callable[[Any, Any], Any], params: Any, inputs: Any):
        self._analysis = understood(apply_fn, params, inputs)
        self._program = self._analysis.program
        self._count = len(jax.tree.leaves(params))
        self._data = depends_on(self._program, self._program.inputs[self._count :])
        self._origins = origins(self._program, self._program.inputs[: self._count])
        self._watched: list[Variable] = []
        self.symmetry = self._analysis.symmetry
        self.contractions: list[Contraction] = []
        for equation in self._program.equations:
            axes = _contracted_axes(equation)
            if axes is None:
                continue
            operands = [self._captured(v) for v in equation.inputs[:2]]
            result = self._captured(equation.outputs[0])
            if None in operands or result is None:
                continue
            over = frozenset(
                name
                for variable, own in zip(equation.inputs, axes, strict=False)
                for name in _names_along(self._analysis, variable, own)
            )
            if over or any(any(block.sides) for block in result.blocks):
                along = tuple(axes[0]), tuple(axes[1])
                self.contractions.append(
                    Contraction((operands[0], operands[1]), over, result, along)  # type: ignore[arg-type]
                )

    def values(self, params: Any, inputs: Any) -> list[Any]:
        """What enters and leaves the contractions, in the order of their numbers."""
        arguments = [*jax.tree.leaves(params), *jax.tree.leaves(inputs)]
        return evaluate(self._program, arguments, self._watched)

    def _captured(self, variable: Variable) -> Captured | None:
        value = self._analysis.types.get(id(variable))
        if not isinstance(value, Value) or value.hidden:
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


def _contracted_axes(equation: Equation) -> tuple[Sequence[int], Sequence[int]] | None:
    if equation.name == "dot_general":
        (left, right), _ = equation.params["dimension_numbers"]
        return left, right
    if equation.name == "conv_general_dilated":
        numbers = equation.params["dimension_numbers"]
        return (numbers.lhs_spec[1],), (numbers.rhs_spec[1],)
    return None


def _names_along(analysis: Analysis, variable: Variable, along: Sequence[int]) -> set[str]:
    value = analysis.types.get(id(variable))
    if not isinstance(value, Value):
        return set()
    layout = analysis.planner.layout(value)
    return {
        analysis.names[atom]
        for axis in along
        for term in layout.terms[axis]
        for atom in term
        if atom in analysis.names
    }
