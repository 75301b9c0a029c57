"""Rules for elementwise primitives: one row each.

A row says how exponents combine and what becomes of scales and of signs (`steps.Effect`).

Rounding to a shorter floating format is no step of its own as long as what it changes is small:
scales pass through casts to bfloat16 and float16, and the proof allows for the rounding. Formats
shorter still, as those of eight bits, change a rescaled network by several per cent: through those
no scale passes; signs do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from onebasin.symmetry.precision import Precision, rounds_to
from onebasin.symmetry.program import Equation
from onebasin.symmetry.steps import Effect, Operand, Recorder, Value


class Row(NamedTuple):
    """How an elementwise primitive treats what its operands carry."""

    combine: Literal["product", "equal"]
    scale: Effect
    sign: Effect
    weights: tuple[Fraction | int, ...] | None = None


_HALF = Fraction(1, 2)
_OPAQUE = Row("product", "zero", "zero")
_ODD = Row("product", "zero", "keep")
_EVEN = Row("product", "zero", "clear")
_SUM = Row("equal", "keep", "keep")
_ORDER = Row("equal", "keep", "zero")
_COMPARE = Row("equal", "clear", "zero")
_SAME = Row("product", "keep", "keep")

ROWS: dict[str, Row] = {
    "mul": Row("product", "keep", "keep", (1, 1)),
    "div": Row("product", "keep", "keep", (1, -1)),
    "square": Row("product", "keep", "keep", (2,)),
    "sqrt": Row("product", "keep", "zero", (_HALF,)),
    "rsqrt": Row("product", "keep", "zero", (-_HALF,)),
    "cbrt": Row("product", "keep", "keep", (Fraction(1, 3),)),
    "abs": Row("product", "keep", "clear"),
    "sign": Row("product", "clear", "keep"),
    "is_finite": Row("product", "clear", "clear"),
    "max": _ORDER,
    "min": _ORDER,
    "rem": _ORDER,
    "atan2": _COMPARE,
    "eq": Row("equal", "clear", "clear"),
    "ne": Row("equal", "clear", "clear"),
}
ROWS |= dict.fromkeys(("add", "add_any", "sub", "complex"), _SUM)
ROWS |= dict.fromkeys(("lt", "le", "gt", "ge", "lt_to", "le_to"), _COMPARE)
ROWS |= dict.fromkeys(
    ("neg", "copy", "copy_p", "real", "imag", "conj", "reduce_precision", "stop_gradient"), _SAME
)
ROWS |= dict.fromkeys(
    (
        "tanh",
        "sin",
        "tan",
        "asin",
        "atan",
        "sinh",
        "asinh",
        "atanh",
        "erf",
        "erf_inv",
        "round",
        "bessel_i1e",
    ),
    _ODD,
)
ROWS |= dict.fromkeys(("cos", "cosh", "bessel_i0e"), _EVEN)
ROWS |= dict.fromkeys(
    (
        *("exp", "exp2", "expm1", "log", "log1p", "logistic", "erfc", "floor", "ceil", "acos"),
        *("acosh", "lgamma", "digamma", "igamma", "igammac", "nextafter", "not", "and", "or"),
        *("xor", "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count"),
        *("clz", "regularized_incomplete_beta", "polygamma", "zeta"),
        "bitcast_convert_type",
    ),
    _OPAQUE,
)
# A product of even multiplicity has no sign left, whatever it had.
assert ROWS["square"].weights == (2,)

ODD = frozenset(name for name, row in ROWS.items() if row is _ODD)
EVEN = frozenset(("abs", "square", *(name for name, row in ROWS.items() if row is _EVEN)))

_FOLD: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
    "min": min,
    "neg": lambda a: -a,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda a: a**-0.5,
    "square": lambda a: a * a,
    "copy": lambda a: a,
    "stop_gradient": lambda a: a,
}


def elementwise(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Any primitive that has a row, and the few whose row depends on their parameters."""
    row = _row(equation, [value.known for value in values])
    shape = equation.outputs[0].shape
    if any(value.rank not in (0, len(shape)) for value in values):
        return recorder.opaque(values, [shape])
    weights = row.weights or (1,) * len(values)
    # An exponent that is known says all it has to say in the weight of the base.
    values = values[: len(weights)]
    operands = [
        Operand(value, _names(value, shape), weight)
        for value, weight in zip(values, weights, strict=True)
    ]
    names = tuple(range(len(shape)))
    (result,) = recorder.operation(
        operands, [(shape, names)], combine=row.combine, scale=row.scale, sign=row.sign
    )
    if len(values) == len(equation.inputs):
        result.known = _fold(equation, values)
    return [result]


def _names(value: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(len(shape))) if value.rank else ()


def _row(equation: Equation, known: Sequence[float | None]) -> Row:
    name = equation.name
    if name == "integer_pow":
        return Row("product", "keep", "keep", (equation.params["y"],))
    if name == "pow":
        exponent = known[1]
        if exponent is None or not math.isfinite(exponent):
            return _OPAQUE
        ratio = Fraction(exponent).limit_denominator(64)
        if not math.isclose(float(ratio), exponent, rel_tol=1e-6):
            return _OPAQUE
        return Row("product", "keep", "zero", (ratio,))
    if name == "clamp":
        low, high = known[0], known[2]
        odd = low is not None and high is not None and low == -high and 0 < high < math.inf
        return _ODD if odd else _ORDER
    if name == "convert_element_type":
        source, target = equation.inputs[0].aval.dtype, equation.params["new_dtype"]
        whole = np.issubdtype(target, np.integer) or np.issubdtype(target, np.unsignedinteger)
        floating = not (np.issubdtype(source, np.integer) or source == np.bool_)
        if target == np.bool_:
            return Row("product", "clear", "clear")
        if whole and floating:
            return _OPAQUE
    if name in ("convert_element_type", "reduce_precision"):
        return _rounded(rounds_to(equation))
    return ROWS[name]


def parity(
    equation: Equation, known: Sequence[float | None], operands: Sequence[int | None]
) -> int | None:
    """Whether a result is even (0) or odd (1) in what its operands are even and odd in.

    None where the rules do not tell.

    Args:
        equation: One that works entry by entry.
        known: Its operands where they are one known number.
        operands: The parities of its operands.
    """
    if None in operands:
        return None
    if equation.name == "select_n":
        row, weights = _SUM, (0, *(1,) * (len(operands) - 1))
        if operands[0] != 0:
            return None
    else:
        row = _row(equation, known)
        weights = row.weights or (1,) * len(operands)  # type: ignore[assignment]
    terms = [
        (odd or 0) * Fraction(weight).numerator % 2
        for odd, number, weight in zip(operands, known, weights, strict=False)
        # Zero is as odd as it is even.
        if number != 0 and not (equation.name == "select_n" and weight == 0)
    ]
    if row.sign == "clear":
        return 0
    if row.sign == "zero":
        return None if any(operands) else 0
    if row.combine == "product":
        return sum(terms) % 2
    return None if len(set(terms)) > 1 else max(terms, default=0)


def _rounded(to: Precision | None) -> Row:
    """What becomes of numbers that are rounded to a floating format; None for any other type."""
    if to is None or not to.coarse:
        return _SAME
    return _ODD if to.signed else _OPAQUE


def _fold(equation: Equation, values: list[Value]) -> float | None:
    known = [value.known for value in values if value.known is not None]
    if len(known) < len(values):
        return None
    if equation.name == "convert_element_type":
        floating = np.issubdtype(equation.params["new_dtype"], np.inexact)
        return known[0] if floating else None
    try:
        if equation.name == "integer_pow":
            return float(known[0]) ** equation.params["y"]
        return float(_FOLD[equation.name](*known)) if equation.name in _FOLD else None
    except (ArithmeticError, ValueError):
        return None


def select(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """select_n(which, *cases): the choice carries nothing, the cases must agree."""
    shape = equation.outputs[0].shape
    names = tuple(range(len(shape)))
    operands = [Operand(values[0], _names(values[0], shape), None)]
    operands += [Operand(value, names) for value in values[1:]]
    return recorder.operation(operands, [(shape, names)], combine="equal")


RULES = dict.fromkeys((*ROWS, "clamp", "integer_pow", "pow", "convert_element_type"), elementwise)
RULES["select_n"] = select
