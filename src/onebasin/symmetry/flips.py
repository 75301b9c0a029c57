"""Even and odd functions that no single primitive shows: max(h, -h), trunc(h), logaddexp(h, -h).

A value that is worked out entry by entry from one other, h, is written down as an expression in h,
and once more with -h in its place. Expressions have one form each: signs are pulled out of what is
odd and dropped in what is even, sums and maxima do not mind the order of their operands, a minimum
is a maximum of negatives. Where both expressions are the same, the value is even in h, and is
computed from |h| instead; where they differ by their sign it is odd, and is computed from |h| and
from the sign of h. Then the rules for single primitives see it too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from onebasin.symmetry.expressions import Details, Expressions, Signed
from onebasin.symmetry.precision import rounds_to
from onebasin.symmetry.program import (
    Equation,
    Program,
    Variable,
    is_floating,
    new_equation,
    numbers,
)
from onebasin.symmetry.rules_elementwise import RULES, parity

_NO_MATTER = ("accuracy", "sharding", "weak_type")
MAX_CONE = 64
"""How many equations may stand between a value and what it is worked out from."""


def unfolded(program: Program) -> Program:
    """The program, with even and odd values computed so that single primitives show it."""
    walk = _Walk(program)
    for equation in program.equations:
        walk.read(equation)
    return program.rewritten(walk.equations) if walk.changed else program


class _Walk:
    """The expressions of the variables so far, and the equations that are to stand for them."""

    def __init__(self, program: Program):
        self.known = numbers(program)
        self.makers: dict[int, tuple[int, Equation]] = {}
        self.equations: list[Equation] = []
        self.changed = False
        self.expressions = Expressions()
        self.of: dict[int, Signed] = {}
        self.roots: dict[int | None, Variable] = {}
        self.parities: dict[int, int | None] = {}

    def read(self, equation: Equation) -> None:
        target = equation.outputs[0]
        if not self._is_entrywise(equation):
            self.equations.append(equation)
            return
        operands = [self._of(v) for v in equation.inputs]
        roots = {self.expressions.roots[number] for number, _ in operands} - {None}
        if len(roots) != 1:
            self.equations.append(equation)
            return
        self.makers[id(target)] = len(self.makers), equation
        own = self.expressions.make(equation.name, _details(equation), operands)
        self.of[id(target)] = own
        # Here, lest a long chain be followed all at once.
        self.expressions.flipped(own[0])
        told = parity(
            equation, [self.known.get(id(v)) for v in equation.inputs], self._told(equation)
        )
        if told is None and is_floating(target):
            told = self._write(equation, own)
        else:
            self.equations.append(equation)
        self.parities[id(target)] = told

    def _is_entrywise(self, equation: Equation) -> bool:
        """Whether an equation works on real numbers and truth values, one by one."""
        target = equation.outputs[0]
        return (
            equation.name in RULES
            and all(v.shape == target.shape or id(v) in self.known for v in equation.inputs)
            and all(is_floating(v) or v.aval.dtype == np.bool_ for v in (*equation.inputs, target))
        )

    def _of(self, variable: Variable) -> Signed:
        if id(variable) in self.known:
            return self.expressions.number(self.known[id(variable)])
        if id(variable) not in self.of:
            constant = variable.constant is not None
            self.of[id(variable)] = self.expressions.leaf(id(variable), constant)
            self.roots[self.of[id(variable)][0]] = variable
            self.parities[id(variable)] = 0 if constant else 1
        return self.of[id(variable)]

    def _told(self, equation: Equation) -> list[int | None]:
        """What single primitives tell of the operands: 1 if odd, 0 if even."""
        return [0 if id(v) in self.known else self.parities[id(v)] for v in equation.inputs]

    def _write(self, equation: Equation, own: Signed) -> int | None:
        """Appends an equation, or what shows whether its result is even or odd."""
        found = self.expressions.parity(own[0])
        root = self.roots.get(self.expressions.roots[own[0]])
        cone = self._cone(equation) if found is not None else None
        if (
            cone is None
            or root is None
            or not is_floating(root)
            or (found == 1 and self._at_zero(cone, root) != 0)
        ):
            self.equations.append(equation)
            return None
        self.changed = True
        size, target = Variable(root.aval), equation.outputs[0]
        result = target if found == 0 else Variable(target.aval)
        self.equations.append(new_equation(lax.abs_p, [root], size))
        new = {id(root): size, id(target): result}
        for each in cone:
            outputs = [new.setdefault(id(v), Variable(v.aval)) for v in each.outputs]
            inputs = [new.get(id(v), v) for v in each.inputs]
            self.equations.append(dataclasses.replace(each, inputs=inputs, outputs=outputs))
        if found == 1:
            sign = Variable(root.aval)
            self.equations.append(new_equation(lax.sign_p, [root], sign))
            self.equations.append(new_equation(lax.mul_p, [sign, result], target))
        return found

    def _cone(self, equation: Equation) -> list[Equation] | None:
        """The equations between a value and what it is worked out from, in order."""
        found: dict[int, Equation] = {}
        left = [equation.outputs[0]]
        while left and len(found) <= MAX_CONE:
            place, each = self.makers[id(left.pop())]
            if place not in found:
                found[place] = each
                left += [v for v in each.inputs if id(v) in self.makers]
        return None if left else [each for _, each in sorted(found.items())]

    def _at_zero(self, cone: list[Equation], root: Variable) -> float:
        """The value where what it is worked out from is zero; NaN if that is not known."""
        values: dict[int, float] = {id(root): 0.0}
        for each in cone:
            operands = [self.known.get(id(v), values.get(id(v), math.nan)) for v in each.inputs]
            try:
                value = _NUMBERS[each.name](*operands)
            except (KeyError, ArithmeticError, ValueError, TypeError):
                value = math.nan
            values[id(each.outputs[0])] = float(value)
        return values[id(cone[-1].outputs[0])]


def _details(equation: Equation) -> Details:
    name, inputs = equation.name, equation.inputs
    said = {k: str(v) for k, v in equation.params.items() if k not in _NO_MATTER}
    special = None
    if name == "integer_pow":
        special = equation.params["y"] % 2
    elif name == "not":
        special = int(inputs[0].aval.dtype == np.bool_)
    elif name == "convert_element_type":
        rounded = rounds_to(equation)
        special = int(is_floating(inputs[0]) and rounded is not None and rounded.signed)
    return str(sorted(said.items())) if said else "", special


_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "add_any": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "abs": abs,
    "max": lambda a, b: math.nan if a != a or b != b else max(a, b),
    "min": lambda a, b: math.nan if a != a or b != b else min(a, b),
    "floor": lambda a: math.floor(a),
    "ceil": lambda a: math.ceil(a),
    "round": lambda a: round(a),
    "sign": lambda a: math.copysign(a != 0, a),
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "log1p": math.log1p,
    "tanh": math.tanh,
    "logistic": lambda a: 1 / (1 + math.exp(-a)),
    "square": lambda a: a * a,
    "sqrt": math.sqrt,
    "copy": lambda a: a,
    "stop_gradient": lambda a: a,
    "convert_element_type": lambda a: a,
    "select_n": lambda which, *cases: math.nan if which != which else cases[int(which)],
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
