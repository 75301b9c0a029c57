"""Rows that stand for indices: true at the place that an index names, false elsewhere."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from onebasin.symmetry.program import (
    MOVES,
    Equation,
    Program,
    Variable,
    numbers,
    sources_of_axes,
    written,
)

MAX_ENTRIES = 1 << 24
"""How large a constant may be to be looked at for counting 0, 1, 2, ..."""

_ON_CONSTANTS = (*MOVES, "iota", "add", "concatenate", "lt", "mul", "select_n", "slice")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What stands for an index.

    Attributes:
        variable: Has one axis more than the index, the last, of all places.
        base: The row of the index that this one was moved from.
        axes: By axis of the index, the axis of that one, if it has it and not just one entry.
        distinct: The axis of that one along which no index comes twice, if there is one.
    """

    variable: Variable
    base: Variable
    axes: tuple[int | None, ...]
    distinct: int | None

    @classmethod
    def new(cls, variable: Variable, distinct: int | None = None) -> Row:
        """The row of an index that is just chosen."""
        shape = variable.shape[:-1]
        axes = tuple(None if n == 1 else d for d, n in enumerate(shape))
        return cls(variable, variable, axes, distinct)

    def is_distinct(self, axes: Iterable[int]) -> bool:
        """Whether no index comes twice along some axes."""
        several = [d for d in axes if self.variable.shape[d] > 1]
        return not several or (len(several) == 1 and self.axes[several[0]] == self.distinct)

    @property
    def places(self) -> int:
        return self.variable.shape[-1]


class Rows:
    """The rows of a program that is being written anew, equation by equation."""

    def __init__(self, program: Program):
        self.known = numbers(program)
        self.makers: dict[int, Equation] = {}
        self.equations: list[Equation] = []
        self._rows: dict[int, Row] = {}
        self._constants: dict[int, np.ndarray | None] = {}

    def __getitem__(self, index: Variable) -> Row | None:
        return self._rows.get(id(index))

    def __setitem__(self, index: Variable, row: Row) -> None:
        self._rows[id(index)] = row

    def write(self, function: Callable[..., Any], *inputs: Variable) -> Variable:
        """Appends the equations of a function, and returns what it gives."""
        return written(function, inputs, self.equations)[0]

    def follow(self, equation: Equation) -> None:
        """Notes the row of an index that an equation moves, or brings within bounds."""
        row = self._moved(equation) or self._bounded(equation)
        if row is not None:
            self[equation.outputs[0]] = row

    def _moved(self, equation: Equation) -> Row | None:
        row = self[equation.inputs[0]] if equation.inputs else None
        if row is None or equation.name not in (*MOVES, "slice", "rev"):
            return None
        if equation.name == "convert_element_type":
            dtype = equation.params["new_dtype"]
            wide = np.issubdtype(dtype, np.integer) and row.places - 1 <= np.iinfo(dtype).max
            return row if wide else None

        def move(value: Any) -> Any:
            return equation.primitive.bind(value, **equation.params)

        moved = self.write(jax.vmap(move, in_axes=-1, out_axes=-1), row.variable)
        came = sources_of_axes(equation)
        if came is not None:
            axes = tuple(None if c is None else row.axes[c] for c in came)
            return Row(moved, row.base, axes, row.distinct)
        along = [
            d for d in range(len(row.axes)) if row.is_distinct([d]) and row.axes[d] is not None
        ]
        return Row.new(moved, along[0] if along and equation.name in ("slice", "rev") else None)

    def _bounded(self, equation: Equation) -> Row | None:
        """The row of an index that is within the bounds already."""
        name, inputs = equation.name, equation.inputs
        if name == "clamp":
            low, index, high = inputs
            return self[index] if self._bounds(index, low, high) else None
        if name in ("max", "min"):
            for index, bound in (inputs, inputs[::-1]):
                ends = (bound, None) if name == "max" else (None, bound)
                if self._bounds(index, *ends):
                    return self[index]
        if name == "select_n" and len(inputs) == 3:
            # Negative indices are made to count from the end; these are not negative.
            test = self.makers.get(id(inputs[0]))
            if test is not None and test.name == "lt" and test.inputs[0] is inputs[1]:
                return self[inputs[1]] if self._bounds(inputs[1], test.inputs[1], None) else None
        return None

    def _bounds(self, index: Variable, low: Variable | None, high: Variable | None) -> bool:
        row = self[index]
        if row is None:
            return False
        above = low is None or self.known.get(id(low), math.inf) <= 0
        return above and (high is None or self.known.get(id(high), -math.inf) >= row.places - 1)

    def counts_along(self, variable: Variable, shape: Sequence[int]) -> int | None:
        """The axis along which a constant is 0, 1, 2, ..., in a shape that it is broadcast to."""
        array = self.constant(variable)
        if array is None or array.ndim != len(shape):
            return None
        for axis, n in enumerate(array.shape):
            count = np.arange(n).reshape([-1 if d == axis else 1 for d in range(array.ndim)])
            if n == shape[axis] and np.all(array == count):
                return axis
        return None

    def constant(self, variable: Variable) -> np.ndarray | None:
        """The entries of a value that depends on no parameter and no input."""
        if variable.constant is not None:
            return np.asarray(variable.constant)
        maker = self.makers.get(id(variable))
        small = math.prod(variable.shape) <= MAX_ENTRIES
        if maker is None or maker.name not in _ON_CONSTANTS or not small:
            return None
        if id(variable) not in self._constants:
            inputs = [self.constant(v) for v in maker.inputs]
            found = None
            if all(array is not None for array in inputs):
                with jax.ensure_compile_time_eval():
                    found = np.asarray(maker.primitive.bind(*inputs, **maker.params))
            self._constants[id(variable)] = found
        return self._constants[id(variable)]

    def uniform(self, variable: Variable, axis: int) -> bool:
        """Whether a value was repeated along an axis."""
        if variable.shape[axis] == 1:
            return True
        maker = self.makers.get(id(variable))
        if maker is None or maker.name != "broadcast_in_dim":
            return False
        dims = list(maker.params["broadcast_dimensions"])
        return axis not in dims or maker.inputs[0].shape[dims.index(axis)] == 1
