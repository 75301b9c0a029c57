"""Entry by entry: arithmetic, activations, comparisons, masks."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from onebasin.torch.table import Family

elementwise = Family("elementwise")

elementwise.rows(
    {
        "abs": jnp.abs,
        "acos": jnp.arccos,
        "acosh": jnp.arccosh,
        "asin": jnp.arcsin,
        "asinh": jnp.arcsinh,
        "atan": jnp.arctan,
        "atan2": jnp.arctan2,
        "arctan2": jnp.arctan2,
        "atanh": jnp.arctanh,
        "bitwise_and": jnp.bitwise_and,
        "bitwise_left_shift": jnp.left_shift,
        "bitwise_not": jnp.bitwise_not,
        "bitwise_or": jnp.bitwise_or,
        "bitwise_right_shift": jnp.right_shift,
        "bitwise_xor": jnp.bitwise_xor,
        "ceil": jnp.ceil,
        "copysign": jnp.copysign,
        "cos": jnp.cos,
        "cosh": jnp.cosh,
        "deg2rad": jnp.deg2rad,
        "digamma": special.digamma,
        "eq": jnp.equal,
        "erf": special.erf,
        "erfc": special.erfc,
        "erfinv": special.erfinv,
        "exp": jnp.exp,
        "exp2": jnp.exp2,
        "expm1": jnp.expm1,
        "floor": jnp.floor,
        "fmax": jnp.fmax,
        "fmin": jnp.fmin,
        "fmod": jnp.fmod,
        "ge": jnp.greater_equal,
        "gt": jnp.greater,
        "heaviside": jnp.heaviside,
        "hypot": jnp.hypot,
        "isfinite": jnp.isfinite,
        "isinf": jnp.isinf,
        "isnan": jnp.isnan,
        "le": jnp.less_equal,
        "lgamma": special.gammaln,
        "log": jnp.log,
        "log10": jnp.log10,
        "log1p": jnp.log1p,
        "log2": jnp.log2,
        "logaddexp": jnp.logaddexp,
        "logical_and": jnp.logical_and,
        "logical_not": jnp.logical_not,
        "logical_or": jnp.logical_or,
        "logical_xor": jnp.logical_xor,
        "lt": jnp.less,
        "maximum": jnp.maximum,
        "max.other": jnp.maximum,
        "minimum": jnp.minimum,
        "min.other": jnp.minimum,
        "mul": lambda x, y: x * y,
        "multiply": lambda x, y: x * y,
        "ne": jnp.not_equal,
        "neg": jnp.negative,
        "rad2deg": jnp.rad2deg,
        "reciprocal": lambda x: 1 / x,
        "remainder": jnp.remainder,
        "rsqrt": lax.rsqrt,
        "rsub": lambda x, y, alpha=1: y - scaled(x, alpha),
        "sgn": jnp.sign,
        "sign": jnp.sign,
        "sin": jnp.sin,
        "sinc": jnp.sinc,
        "sinh": jnp.sinh,
        "sqrt": jnp.sqrt,
        "square": jnp.square,
        "tan": jnp.tan,
        "trunc": jnp.trunc,
        "fix": jnp.trunc,
        "frac": lambda x: x - jnp.trunc(x),
        "where.self": jnp.where,
        "where.ScalarOther": jnp.where,
        "where.ScalarSelf": jnp.where,
        "where.Scalar": jnp.where,
        "xlogy": special.xlogy,
    }
)


def scaled(x: Any, factor: Any) -> Any:
    """A product that leaves no trace when the factor is 1."""
    return x if isinstance(factor, int | float) and factor == 1 else x * factor


@elementwise("add")
def add(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x + scaled(y, alpha)


@elementwise("sub", "subtract")
def sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    return x - scaled(y, alpha)


@elementwise("div", "true_divide", "divide")
def div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    if rounding_mode == "trunc":
        if jnp.issubdtype(jnp.result_type(x, y), jnp.integer):
            quotient = jnp.abs(x) // jnp.abs(y)
            return jnp.where((x < 0) ^ (y < 0), -quotient, quotient)
        return jnp.trunc(x / y)
    return x / y


@elementwise("floor_divide")
def floor_divide(x: Any, y: Any) -> Any:
    return jnp.floor_divide(x, y)


@elementwise("pow")
def power(x: Any, exponent: Any) -> Any:
    """Exponents that have a primitive of their own are given it: it says more to discovery."""
    if isinstance(exponent, int | float) and not isinstance(x, int | float):
        number = float(exponent)
        if number == 0.5:
            return jnp.sqrt(x)
        if number == -0.5:
            return lax.rsqrt(x)
        if number.is_integer() and jnp.issubdtype(x.dtype, jnp.inexact):
            return lax.integer_pow(x, int(number))
    return jnp.power(x, exponent)


@elementwise("round")
def round_(x: Any, decimals: int = 0) -> Any:
    return jnp.round(x, decimals)


@elementwise("clamp", "clip")
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """An entry at the bound keeps its gradient, as in PyTorch."""
    if min is not None:
        x = jnp.where(x < min, min, x)
    return x if max is None else jnp.where(x > max, max, x)


@elementwise("clamp_min")
def clamp_min(x: Any, min: Any) -> Any:
    return clamp(x, min)


@elementwise("clamp_max")
def clamp_max(x: Any, max: Any) -> Any:
    return clamp(x, None, max)


@elementwise("logit")
def logit(x: Any, eps: float | None = None) -> Any:
    x = x if eps is None else jnp.clip(x, eps, 1 - eps)
    return jnp.log(x / (1 - x))


@elementwise("nan_to_num")
def nan_to_num(
    x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    return jnp.nan_to_num(x, nan=nan or 0.0, posinf=posinf, neginf=neginf)


@elementwise("lerp")
def lerp(start: Any, end: Any, weight: Any) -> Any:
    return start + weight * (end - start)


@elementwise("addcmul")
def addcmul(x: Any, first: Any, second: Any, value: Any = 1) -> Any:
    return x + scaled(first * second, value)


@elementwise("addcdiv")
def addcdiv(x: Any, first: Any, second: Any, value: Any = 1) -> Any:
    return x + scaled(first / second, value)


@elementwise("masked_fill")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)
