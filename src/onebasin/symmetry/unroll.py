"""Loops over stacked layers, written out.

A loop is read by going through its body once, so that what it carries has one index set for all
steps. Layers without a residual stream have one each: written out, the same model shows them.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from onebasin.symmetry.pieces import MAX_PIECES
from onebasin.symmetry.program import (
    Equation,
    Program,
    Variable,
    broadcast,
    depends_on,
    flatten,
    inlined,
    new_equation,
    scan_counts,
)

MAX_EQUATIONS = 2000


def unrolled(program: Program, params: Sequence[Variable]) -> Program | None:
    """A program with its short loops over stacked parameters written out; None if it has none."""
    ours = depends_on(program, params)
    equations: list[Equation] = []
    changed = False
    for equation in program.equations:
        if _is_short(equation, ours):
            equations += _steps(equation)
            changed = True
        else:
            equations.append(equation)
    if not changed:
        return None
    return program.rewritten(equations)


def _is_short(equation: Equation, ours: set[int]) -> bool:
    """Whether a loop carries something over a few layers whose parameters are stacked."""
    if equation.name != "scan":
        return False
    length, (consts, carried) = equation.params["length"], scan_counts(equation)
    layers = [v for v in equation.inputs[consts + carried :] if id(v) in ours]
    if not layers or not carried or not 1 < length <= MAX_PIECES:
        return False
    return length * len(flatten(equation.params["jaxpr"]).equations) <= MAX_EQUATIONS


def _steps(equation: Equation) -> list[Equation]:
    """The equations of all steps of a loop, one step after the other."""
    params = equation.params
    length, (consts, carried) = params["length"], scan_counts(equation)
    held, state = equation.inputs[:consts], equation.inputs[consts : consts + carried]
    stacked = equation.inputs[consts + carried :]
    made: list[Equation] = []
    rows: dict[int, list[Variable]] = {}
    for step in reversed(range(length)) if params["reverse"] else range(length):
        slices = [_slice(made, variable, step) for variable in stacked]
        results = inlined(params["jaxpr"], [*held, *state, *slices], made)
        state, rows[step] = results[:carried], results[carried:]
    for variable, target in zip(state, equation.outputs, strict=False):
        made.append(new_equation(lax.copy_p, [variable], target))
    for number, target in enumerate(equation.outputs[carried:]):
        made += _stack([rows[step][number] for step in range(length)], target)
    return made


def _slice(made: list[Equation], stacked: Variable, step: int) -> Variable:
    """One entry of a stacked operand."""
    row = Variable(stacked.aval.update(shape=(1, *stacked.shape[1:])))
    entry = Variable(stacked.aval.update(shape=stacked.shape[1:]))
    ends = (step, *(0 for _ in entry.shape)), (step + 1, *entry.shape)
    made.append(
        new_equation(
            lax.slice_p, [stacked], row, start_indices=ends[0], limit_indices=ends[1], strides=None
        )
    )
    made.append(new_equation(lax.squeeze_p, [row], entry, dimensions=(0,)))
    return entry


def _stack(entries: list[Variable], target: Variable) -> list[Equation]:
    """What the steps gave, one after the other along a leading axis."""
    dims = range(1, len(target.shape))
    rows = [Variable(target.aval.update(shape=(1, *target.shape[1:]))) for _ in entries]
    made = [broadcast(entry, dims, row) for entry, row in zip(entries, rows, strict=True)]
    return [*made, new_equation(lax.concatenate_p, rows, target, dimension=0)]
