"""A model in the finest precision that it allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from onebasin.symmetry.drawing import widest
from onebasin.symmetry.precision import DOUBLE, Precision, rounds_to
from onebasin.symmetry.program import (
    Equation,
    Program,
    Variable,
    depends_on,
    inner_programs,
    scan_counts,
    trace,
)


def in_finest(apply_fn: Callable[..., Any], params: Any, inputs: Any) -> tuple[Program, Precision]:
    """The model as it runs on doubles, or as it is, and the least precision it computes in."""

    def as_double(x: Any) -> Any:
        dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
        return jax.ShapeDtypeStruct(np.shape(x), widest(dtype))

    count = len(jax.tree.leaves(params))
    try:
        with jax.enable_x64(True):
            program = trace(
                apply_fn, jax.tree.map(as_double, params), jax.tree.map(as_double, inputs)
            )
            if _narrowest(program, program.inputs[:count]) == DOUBLE:
                return program, DOUBLE
    except Exception:
        pass
    program = trace(apply_fn, params, inputs)
    return program, _narrowest(program, program.inputs[:count])


def _narrowest(program: Program, roots: Sequence[Variable]) -> Precision:
    """The least precision of all values that some go into, in loops too."""
    reached = depends_on(program, roots)
    found = DOUBLE
    for equation in program.equations:
        if not any(id(v) in reached for v in equation.inputs):
            continue
        inside = inner_programs(equation)
        for inner in inside:
            found = found.least(_narrowest(inner, _entered(equation, inner, reached)))
        for number in range(0 if inside else len(equation.outputs)):
            found = found.least(rounds_to(equation, number) or DOUBLE)
    return found


def _entered(equation: Equation, inner: Program, reached: set[int]) -> list[Variable]:
    """The inputs of a loop's body that values go into; all, where it is not known which."""
    if equation.name != "scan":
        return inner.inputs
    consts, carried = scan_counts(equation)
    found = [v for own, v in zip(equation.inputs, inner.inputs, strict=True) if id(own) in reached]
    state = list(zip(inner.inputs[consts : consts + carried], inner.outputs, strict=False))
    for _ in state:
        inside = depends_on(inner, found)
        found += [v for v, after in state if id(after) in inside and id(v) not in inside]
    return found
