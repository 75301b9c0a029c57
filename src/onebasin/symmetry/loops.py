"""What loops do inside, seen from outside.

The contractions in the body of a loop happen once per step. Here a loop is written anew so that it
also returns what enters and leaves them, stacked over its steps, as it stacks any result.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax import lax

from onebasin.symmetry.program import (
    Equation,
    Program,
    Variable,
    evaluate,
    flatten,
    inlined,
    scan_counts,
)

_NUMBERS = itertools.count()


class Read(NamedTuple):
    """A value that takes part in a contraction.

    Attributes:
        variable: The value.
        axes: The axes of it that are summed over.
        loops: The loops whose steps its first axes are, the outermost first, by number.
    """

    variable: Variable
    axes: tuple[int, ...] = ()
    loops: tuple[int, ...] = ()


class Seen(NamedTuple):
    """A contraction of a program, or of a loop's body."""

    operands: tuple[Read, Read]
    result: Read


def contractions(program: Program) -> list[Seen]:
    """The contractions of a program that are in no loop."""
    return [seen for equation in program.equations if (seen := _contraction(equation))]


def opened(program: Program) -> tuple[Program, list[Seen]]:
    """The same program with all its contractions: what is seen in loops is returned by them.

    Returns:
        A program that computes the same, and its contractions on variables of it.
    """
    equations: list[Equation] = []
    found: list[Seen] = []
    names: dict[int, Variable] = {}
    for equation in program.equations:
        inputs = [names.get(id(v), v) for v in equation.inputs]
        own = dataclasses.replace(equation, inputs=inputs)
        inner = _stacked(own, equations) if own.name == "scan" else None
        if inner is None:
            equations.append(own)
            seen = _contraction(own)
            found += [seen] if seen else []
            continue
        outputs, more = inner
        names.update(zip(map(id, equation.outputs), outputs, strict=True))
        found += more
    outputs = [names.get(id(v), v) for v in program.outputs]
    watched = [read.variable for seen in found for read in (*seen.operands, seen.result)]
    return Program(program.inputs, outputs, [], watched).rewritten(equations), found


def _contraction(equation: Equation) -> Seen | None:
    axes = _contracted_axes(equation)
    if axes is None:
        return None
    left, right = (Read(v, tuple(a)) for v, a in zip(equation.inputs[:2], axes, strict=True))
    return Seen((left, right), Read(equation.outputs[0]))


def _contracted_axes(equation: Equation) -> tuple[Sequence[int], Sequence[int]] | None:
    if equation.name == "dot_general":
        (left, right), _ = equation.params["dimension_numbers"]
        return left, right
    if equation.name == "conv_general_dilated":
        numbers = equation.params["dimension_numbers"]
        return (numbers.lhs_spec[1],), (numbers.rhs_spec[1],)
    return None


def _stacked(
    equation: Equation, equations: list[Equation]
) -> tuple[list[Variable], list[Seen]] | None:
    """Appends a loop that also returns what its contractions see; None if it has none."""
    body, inner = opened(flatten(equation.params["jaxpr"]))
    if not inner:
        return None
    consts, carried = scan_counts(equation)
    known = dict(zip(map(id, body.inputs), enumerate(equation.inputs), strict=True))
    own = (next(_NUMBERS),)
    outside: dict[int, tuple[Variable, int]] = {}
    watched: list[Variable] = []
    for variable in (read.variable for seen in inner for read in (*seen.operands, seen.result)):
        number, source = known.get(id(variable), (None, None))
        if source is not None and number is not None and not consts <= number < consts + carried:
            outside[id(variable)] = source, int(number >= consts)
        elif all(variable is not other for other in watched):
            watched.append(variable)

    def run(*operands: Any) -> Any:
        def step(state: Any, slices: Any) -> Any:
            arguments = [*operands[:consts], *state, *slices]
            results = evaluate(body, arguments, [*body.outputs, *watched])
            return tuple(results[:carried]), tuple(results[carried:])

        start, stacked = operands[consts : consts + carried], operands[consts + carried :]
        length, reverse = equation.params["length"], equation.params["reverse"]
        return lax.scan(step, start, stacked, length=length, reverse=reverse)

    program = jax.make_jaxpr(run)(*(v.aval for v in equation.inputs))
    results = inlined(program, equation.inputs, equations)
    outputs, values = results[: len(equation.outputs)], results[len(equation.outputs) :]
    outside |= {id(v): (value, 1) for v, value in zip(watched, values, strict=True)}

    def lifted(read: Read) -> Read:
        variable, shift = outside[id(read.variable)]
        return Read(variable, tuple(axis + shift for axis in read.axes), own[:shift] + read.loops)

    more = [
        Seen((lifted(seen.operands[0]), lifted(seen.operands[1])), lifted(seen.result))
        for seen in inner
    ]
    return outputs, more
