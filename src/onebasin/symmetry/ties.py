"""Which values may have equal entries more often than by chance: rounded, clipped, or masked."""

from __future__ import annotations

from collections.abc import Mapping

from onebasin.symmetry.program import (
    MOVES,
    Equation,
    Program,
    Variable,
    inner_programs,
    is_floating,
    numbers,
)
from onebasin.symmetry.rules_elementwise import ROWS

LOST = 1e4
"""Masks put entries so far out that none of them is ever chosen."""

_STEPS = ("sign", "floor", "ceil", "round", "clamp")
_SOME = ("concatenate", "gather", "pad", "scatter", "scatter-add", "scatter_add")


class Ties:
    """Notes, equation by equation, which values may tie.

    Args:
        known: By the id of each variable that is one known number throughout, that number.
    """

    def __init__(self, known: Mapping[int, float]):
        self._known = known
        self._tied: set[int] = set()

    def among(self, variable: Variable) -> bool:
        """Whether entries of a value may tie."""
        if variable.constant is not None or id(variable) in self._known:
            return True
        return not is_floating(variable) or id(variable) in self._tied

    def note(self, equation: Equation) -> None:
        if self._made_by(equation):
            self._tied.update(map(id, equation.outputs))

    def _made_by(self, equation: Equation) -> bool:
        name, inputs = equation.name, equation.inputs
        if name in _STEPS:
            return True
        if name == "select_n":
            return any(self.among(case) and not self._is_lost(case) for case in inputs[1:])
        if name in ("max", "min") or name in _SOME:
            floats = [v for v in inputs if is_floating(v)]
            return any(self.among(each) and not self._is_lost(each) for each in floats)
        if name in ROWS or name in MOVES or name == "integer_pow":
            return all(map(self.among, inputs))
        return any(map(_anywhere, inner_programs(equation)))

    def _is_lost(self, variable: Variable) -> bool:
        return abs(self._known.get(id(variable), 0.0)) >= LOST


def _anywhere(program: Program) -> bool:
    """Whether any value of a program may tie."""
    ties = Ties(numbers(program))
    for equation in program.equations:
        ties.note(equation)
    floats = [v for equation in program.equations for v in equation.outputs if is_floating(v)]
    return any(map(ties.among, floats))
