"""Which values have no two entries alike, for almost all parameters.

Of entries that tie the first is chosen, which tells places apart. Scores that a router, a codebook
or an encoder gives do not tie, since each has weights of its own. Entries that a relu has switched
off do, and so do rounded ones. What the inputs make equal (tokens that are padding) is for the
proof to see, on all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import jax
import numpy as np

from onebasin.symmetry.program import (
    MOVES,
    Equation,
    Program,
    Variable,
    sources_of_axes,
    uniform_axes,
)
from onebasin.symmetry.rules_elementwise import RULES as ELEMENTWISE

LOST = 1e4
"""Masks put entries so far out that none of them is ever chosen."""
MANY = 64
"""So many units of a layer are never all switched off."""

_UNARY = frozenset(
    (
        *("neg", "exp", "exp2", "expm1", "log", "log1p", "logistic", "sqrt", "rsqrt", "cbrt"),
        *("square", "integer_pow", "abs", "real", "imag", "conj", "tanh", "sin", "cos", "tan"),
        *("asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "erfc"),
        *("erf_inv", "stop_gradient", "copy", "copy_p", "optimization_barrier", "rev", "slice"),
    )
)
_PAIRS = frozenset(("add", "add_any", "sub", "mul", "div", "pow", "atan2"))
_REDUCTIONS = frozenset(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"))
_KEEP_ZERO = frozenset(
    (*MOVES, *_REDUCTIONS, "neg", "abs", "tanh", "sin", "square", "integer_pow", "sqrt", "slice")
)


class Generic:
    """Looks back at how values were made.

    Args:
        program: The program.
        parameters: The ids of its variables that are parameters, or parts of some.
        known: By the id of each variable that is one known number throughout, that number.
    """

    def __init__(self, program: Program, parameters: Collection[int], known: Mapping[int, float]):
        self._makers = {id(v): e for e in program.equations for v in e.outputs}
        self._parameters, self._known = parameters, known
        self._found: dict[tuple[int, int, int], bool] = {}

    def along(self, value: Variable, axis: int, lost: int = 0) -> bool:
        """Whether entries along an axis differ.

        Args:
            value: The value.
            axis: The axis.
            lost: On which side entries are never chosen, -1 or 1: there they may be alike.
        """
        dtype = value.aval.dtype
        if len(value.shape) <= axis:
            return False
        if not jax.dtypes.issubdtype(dtype, np.inexact) or np.dtype(dtype).itemsize < 4:
            return False
        if id(value) in self._parameters:
            return value.shape[axis] > 1
        maker = self._makers.get(id(value))
        if maker is None or value.constant is not None:
            return False
        key = id(value), axis, lost
        if key not in self._found:
            self._found[key] = False
            self._found[key] = self._made(maker, axis, lost)
        return self._found[key]

    def _made(self, maker: Equation, axis: int, lost: int) -> bool:
        name, inputs = maker.name, maker.inputs
        if name in _UNARY:
            return self.along(inputs[0], axis, -lost if name == "neg" else lost)
        if name in MOVES:
            came = _came_from(maker, axis)
            return came is not None and self.along(inputs[0], came, lost)
        if name in _PAIRS:
            return self._pair(maker, axis, lost)
        if name in ("max", "min", "select_n"):
            cases = inputs[name == "select_n" :]
            cases = [v for v in cases if not self._is_lost(v, lost, cases)]
            return bool(cases) and all(self.along(v, axis, lost) for v in cases)
        if name in _REDUCTIONS:
            kept = [d for d in range(len(inputs[0].shape)) if d not in maker.params["axes"]]
            return self.along(inputs[0], kept[axis])
        if name in ("sort", "top_k"):
            other = axis != maker.params.get("dimension", maker.params.get("axis"))
            return other and self.along(inputs[0], axis)
        if name == "concatenate":
            return all(self.along(v, axis, lost) for v in inputs)
        if name == "dot_general":
            return self._product(maker, axis)
        if name == "conv_general_dilated":
            numbers = maker.params["dimension_numbers"]
            own = axis == numbers.out_spec[1] and not self._may_vanish(inputs[0])
            return own and self.along(inputs[1], numbers.rhs_spec[0])
        if name == "gather":
            came = _window(maker, axis)
            return came is not None and self.along(inputs[0], came)
        return False

    def _pair(self, maker: Equation, axis: int, lost: int) -> bool:
        """A sum or a product: with what is the same everywhere, or with what differs by itself."""
        first, second = maker.inputs
        for value, other in ((first, second), (second, first)):
            side = -lost if maker.name == "sub" and value is second else lost
            if maker.name == "mul" and self._is_mask(other):
                if lost < 0 and self._is_positive(value) and self.along(value, axis, lost):
                    return True
                continue
            bias = maker.name in ("add", "sub") and self._is_parameter(value)
            if (bias or self._repeated(other, axis)) and self.along(value, axis, side):
                return True
        makers = [self._makers.get(id(v)) for v in maker.inputs]
        folded = any(each is not None and each.name == "abs" for each in makers)
        return not folded and all(self.along(v, axis) for v in maker.inputs)

    def _is_parameter(self, value: Variable) -> bool:
        """Whether a value is a parameter, moved or not."""
        if id(value) in self._parameters:
            return True
        maker = self._makers.get(id(value))
        return maker is not None and maker.name in MOVES and self._is_parameter(maker.inputs[0])

    def _is_mask(self, value: Variable) -> bool:
        """Whether a value is made of zeros and ones."""
        maker = self._makers.get(id(value))
        if maker is None:
            return False
        if maker.name == "convert_element_type" and maker.inputs[0].aval.dtype == np.bool_:
            return True
        if maker.name == "sub" and self._known.get(id(maker.inputs[0])) == 1:
            return self._is_mask(maker.inputs[1])
        return maker.name in MOVES and self._is_mask(maker.inputs[0])

    def _is_positive(self, value: Variable) -> bool:
        """Whether all entries are above zero."""
        maker = self._makers.get(id(value))
        if maker is None:
            return False
        if maker.name in ("exp", "exp2", "logistic"):
            return True
        passed = maker.name in MOVES or maker.name in ("mul", "div", "add", "reduce_sum")
        return passed and all(map(self._is_positive, maker.inputs))

    def _product(self, maker: Equation, axis: int) -> bool:
        """Each entry has a row of weights of its own, and is not a product with nothing."""
        sums, batches = maker.params["dimension_numbers"]
        if axis < len(batches[0]):
            return all(
                self.along(v, dims[axis]) for v, dims in zip(maker.inputs, batches, strict=True)
            )
        place = axis - len(batches[0])
        for number, value in enumerate(maker.inputs):
            gone = (*sums[number], *batches[number])
            free = [d for d in range(len(value.shape)) if d not in gone]
            if place < len(free):
                other = maker.inputs[1 - number]
                return self.along(value, free[place]) and not self._may_vanish(other)
            place -= len(free)
        return False

    def _repeated(self, value: Variable, axis: int) -> bool:
        """Whether entries along an axis are all the same."""
        if not value.shape or value.shape[axis] == 1 or id(value) in self._known:
            return True
        if value.constant is not None:
            return uniform_axes(value.constant)[axis]
        maker = self._makers.get(id(value))
        if maker is None:
            return False
        if maker.name in MOVES and maker.name != "convert_element_type":
            came = _came_from(maker, axis)
            return came is None or self._repeated(maker.inputs[0], came)
        return maker.name in ELEMENTWISE and all(self._repeated(v, axis) for v in maker.inputs)

    def _may_vanish(self, value: Variable) -> bool:
        """Whether a value may be zero altogether: switched off or masked."""
        maker = self._makers.get(id(value))
        if maker is None or id(value) in self._parameters:
            return False
        name, inputs = maker.name, maker.inputs
        if name in ("max", "min", "clamp", "select_n"):
            return any(abs(self._known.get(id(v), LOST)) < LOST for v in inputs)
        if name == "convert_element_type" and inputs[0].aval.dtype == np.bool_:
            return True
        if name in _KEEP_ZERO:
            return self._may_vanish(inputs[0])
        if name == "dot_general":
            (summed, _), _ = maker.params["dimension_numbers"]
            few = math.prod(inputs[0].shape[d] for d in summed) < MANY
            return few and any(map(self._may_vanish, inputs))
        if name in ("mul", "div"):
            return any(map(self._may_vanish, inputs))
        return name in _PAIRS and all(map(self._may_vanish, inputs))

    def _is_lost(self, value: Variable, lost: int, cases: list[Variable]) -> bool:
        """Whether a case is a number on the side that is never chosen: far out, or below all."""
        number = self._known.get(id(value))
        if number is None or not lost:
            return False
        others = [v for v in cases if v is not value]
        return lost * number >= LOST or (
            lost < 0 and number <= 0 and all(map(self._is_positive, others))
        )


def _came_from(maker: Equation, axis: int) -> int | None:
    """The axis that one of a moved array was; None if it was none, or several."""
    came = sources_of_axes(maker)
    if came is not None:
        return came[axis]
    source, target = maker.inputs[0].shape, maker.outputs[0].shape
    after: Callable[[tuple[int, ...], int], int] = lambda shape, d: math.prod(shape[d + 1 :])  # noqa: E731
    same = [
        d
        for d, n in enumerate(source)
        if n == target[axis] and after(source, d) == after(target, axis)
    ]
    return same[0] if same else None


def _window(maker: Equation, axis: int) -> int | None:
    """The axis of an array that is taken whole by a gather and ends at some axis of its result."""
    numbers = maker.params["dimension_numbers"]
    shape = maker.inputs[0].shape
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    kept = [d for d in range(len(shape)) if d not in dropped]
    if axis not in numbers.offset_dims:
        return None
    own = kept[numbers.offset_dims.index(axis)]
    return own if maker.params["slice_sizes"][own] == shape[own] else None
