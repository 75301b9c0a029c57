"""Primitives of other libraries: read by what they do, where that is written in JAX.

A primitive without a rule may have an implementation in other primitives, as those have that mark
what must not be batched or differentiated in the loops of a solver. What raises an error never
returns, so what it would return fits anything.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from onebasin.symmetry.axes import ANY
from onebasin.symmetry.program import Equation, Program, flatten
from onebasin.symmetry.steps import Value

_RAISING = ("equinox._errors",)
"""Modules whose callbacks raise, or give what is no number."""


def implementation(equation: Equation) -> Program | None:
    """What a primitive does, in others; None where that is not known."""
    primitive = equation.primitive
    source = getattr(primitive.impl, "func", primitive.impl)
    # Those of JAX are run by the compiler; a callback would be called, and only once.
    if _library(source) in ("", "jax", "jaxlib") or "callback" in equation.name:
        return None
    avals = [jax.ShapeDtypeStruct(v.shape, v.aval.dtype) for v in equation.inputs]
    try:
        traced = jax.make_jaxpr(lambda *xs: primitive.impl(*xs, **equation.params))(*avals)
    except Exception:
        return None
    body = flatten(traced)
    if any(each.primitive is primitive for each in body.equations):
        return None
    shapes = [(v.shape, v.aval.dtype) for v in equation.outputs]
    return body if shapes == [(v.shape, v.aval.dtype) for v in body.outputs] else None


def _library(function: Any) -> str:
    return str(getattr(function, "__module__", None) or "").split(".")[0]


def never(equation: Equation) -> list[Value] | None:
    """The results of a callback that never returns; None of any other."""
    callback: Any = equation.params.get("callback")
    function = getattr(callback, "callback_func", callback)
    if getattr(function, "__module__", None) not in _RAISING:
        return None
    return [Value(v.shape, (ANY,) * len(v.shape), {}, float(np.nan)) for v in equation.outputs]
