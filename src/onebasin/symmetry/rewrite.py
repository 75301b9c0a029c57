"""The same program in other words, where several primitives together do what none does alone.

A rule sees one primitive at a time. max(h, -1) is not odd and min(h, 1) is not, but one after the
other they are. Such groups are found here, and written in primitives whose rules tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jax import lax

from onebasin.symmetry.guards import no_number, unused_cases
from onebasin.symmetry.program import (
    Equation,
    Program,
    Variable,
    is_floating,
    new_equation,
    numbers,
)
from onebasin.symmetry.shuffles import shuffle

Makers = dict[int, Equation]
"""By the id of a variable, the equation that made it."""

_OPPOSITE = {"min": "max", "max": "min"}
_ABOVE, _BELOW = ("gt", "ge"), ("lt", "le")


def rewritten(program: Program) -> Program:
    """A program that computes the same, in words that the rules understand best."""
    if not any(equation.name in _WORDS for equation in program.equations):
        return program
    known = numbers(program)
    makers: Makers = {}
    equations: list[Equation] = []
    for equation in program.equations:
        own = _in_words(equation, makers, known)
        equations += own
        # What stands for an equation is looked through as well, clamps as they were.
        makers.update((id(variable), each) for each in own for variable in each.outputs)
        if own[-1].name == "clamp":
            makers[id(equation.outputs[0])] = equation
    return program.rewritten(equations)


def _in_words(equation: Equation, makers: Makers, known: dict[int, float]) -> list[Equation]:
    for word in _WORDS.get(equation.name, ()):
        found = word(equation, makers, known)
        if found is not None:
            return found
    return [equation]


def _clamp_of_extremes(
    equation: Equation, makers: Makers, known: dict[int, float]
) -> list[Equation] | None:
    """min(max(h, -c), c), and the same the other way round."""
    for outer, bound in (equation.inputs, equation.inputs[::-1]):
        maker = makers.get(id(outer))
        if maker is None or maker.name != _OPPOSITE[equation.name] or id(bound) not in known:
            continue
        for inner, other in (maker.inputs, maker.inputs[::-1]):
            ends = (other, bound) if equation.name == "min" else (bound, other)
            if _opposite(*ends, known):
                return [_clamp(ends, inner, equation)]
    return None


def _clamp_of_choices(
    equation: Equation, makers: Makers, known: dict[int, float]
) -> list[Equation] | None:
    """where(h > c, c, where(h < -c, -c, h)), and the same the other way round."""
    outer = _choice(equation, makers, known)
    inner = _choice(makers.get(id(equation.inputs[1])), makers, known)
    if outer is None or inner is None or outer[0] is not inner[0]:
        return None
    if inner[3] is not inner[0] or outer[1] == inner[1]:
        return None
    ends = (inner[2], outer[2]) if outer[1] == "above" else (outer[2], inner[2])
    return [_clamp(ends, inner[0], equation)] if _opposite(*ends, known) else None


def _choice(
    equation: Equation | None, makers: Makers, known: dict[int, float]
) -> tuple[Variable, str, Variable, Variable] | None:
    """The parts of where(h > c, c, other): h, on which side, c, other."""
    if equation is None or equation.name != "select_n" or len(equation.inputs) != 3:
        return None
    which, other, end = equation.inputs
    test = makers.get(id(which))
    if test is None or test.name not in (*_ABOVE, *_BELOW):
        return None
    compared, edge = test.inputs
    if id(edge) not in known or known[id(edge)] != known.get(id(end)):
        return None
    return compared, "above" if test.name in _ABOVE else "below", end, other


def _opposite(low: Variable, high: Variable, known: dict[int, float]) -> bool:
    if id(low) not in known or id(high) not in known:
        return False
    return known[id(low)] == -known[id(high)] and 0 < known[id(high)] < math.inf


def _clamp(ends: tuple[Variable, Variable], inner: Variable, equation: Equation) -> Equation:
    low, high = ends
    return new_equation(lax.clamp_p, (low, inner, high), equation.outputs[0])


def _odd_angle(equation: Equation, makers: Makers, known: dict[int, float]) -> list[Equation]:
    """atan2(h, s) is atan2(|h|, s) / sign(h); a product would be taken to vanish with h."""
    first, second = equation.inputs
    sign, size, angle = (Variable(v.aval) for v in (first, first, equation.outputs[0]))
    return [
        new_equation(lax.sign_p, [first], sign),
        new_equation(lax.abs_p, [first], size),
        new_equation(lax.atan2_p, [size, second], angle),
        new_equation(lax.div_p, [angle, sign], equation.outputs[0]),
    ]


def _odd_remainder(equation: Equation, makers: Makers, known: dict[int, float]) -> list[Equation]:
    """rem(h, s) is sign(h) rem(|h|, |s|)."""
    first, second = equation.inputs
    sign, size, step = (Variable(v.aval) for v in (first, first, second))
    rest = Variable(equation.outputs[0].aval)
    return [
        new_equation(lax.sign_p, [first], sign),
        new_equation(lax.abs_p, [first], size),
        new_equation(lax.abs_p, [second], step),
        new_equation(lax.rem_p, [size, step], rest),
        new_equation(lax.mul_p, [sign, rest], equation.outputs[0]),
    ]


def _below_zero(
    equation: Equation, makers: Makers, known: dict[int, float]
) -> list[Equation] | None:
    """The bit of the sign, as a truth value."""
    shift = makers.get(id(equation.inputs[0]))
    if equation.params["new_dtype"] != np.bool_ or shift is None:
        return None
    if shift.name not in ("shift_right_arithmetic", "shift_right_logical"):
        return None
    bits = makers.get(id(shift.inputs[0]))
    if bits is None or bits.name != "bitcast_convert_type" or not is_floating(bits.inputs[0]):
        return None
    (source,), amount = bits.inputs, known.get(id(shift.inputs[1]))
    if amount != 8 * source.aval.dtype.itemsize - 1 or source.shape != equation.outputs[0].shape:
        return None
    zero = Variable(source.aval.update(shape=()), np.zeros((), source.aval.dtype))
    return [new_equation(lax.lt_p, [source, zero], equation.outputs[0])]


Word = Callable[[Equation, Makers, dict[int, float]], list[Equation] | None]
_WORDS: dict[str, tuple[Word, ...]] = {
    "min": (_clamp_of_extremes,),
    "max": (_clamp_of_extremes,),
    "select_n": (_clamp_of_choices, no_number, unused_cases),
    "atan2": (_odd_angle,),
    "rem": (_odd_remainder,),
    "convert_element_type": (_below_zero,),
    "reshape": (shuffle,),
}
