"""What loops do inside, seen from outside.

The contractions in the body of a loop happen once per step. Here a loop is written anew so that it
also returns what enters and leaves them, stacked over its steps, as it stacks any result.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax

from onebasin.symmetry.program import (
    Equation,
    Program,
    Variable,
    depends_on,
    evaluate,
    flatten,
    live_equations,
    scan_counts,
    written,
)


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

    def outside(self, places: Mapping[int, tuple[Variable, int]], loop: int) -> Read:
        """The same as a loop returns it: stacked over its steps, or one for all of them."""
        variable, stacked = places[id(self.variable)]
        axes = tuple(axis + stacked for axis in self.axes)
        return Read(variable, axes, (loop, *self.loops) if stacked else self.loops)


class Seen(NamedTuple):
    """A contraction of a program, or of a loop's body.

    Attributes:
        operands: What it multiplies.
        result: What it gives; no axes of it are summed over.
    """

    operands: tuple[Read, Read]
    result: Read

    @property
    def variables(self) -> list[Variable]:
        return [read.variable for read in (*self.operands, self.result)]

    def outside(self, places: Mapping[int, tuple[Variable, int]], loop: int) -> Seen:
        left, right = (read.outside(places, loop) for read in self.operands)
        return Seen((left, right), self.result.outside(places, loop))


def opened(program: Program) -> tuple[Program, list[Seen]]:
    """The same program with all its contractions: what is seen in loops is returned by them.

    Returns:
        A program that computes the same, and its contractions on variables of it.
    """
    return _opened(program, itertools.count())


def _opened(program: Program, numbers: Iterator[int]) -> tuple[Program, list[Seen]]:
    equations: list[Equation] = []
    found: list[Seen] = []
    names: dict[int, Variable] = {}
    for equation in program.equations:
        inputs = [names.get(id(v), v) for v in equation.inputs]
        own = dataclasses.replace(equation, inputs=inputs)
        seen = _contraction(own)
        if own.name == "scan":
            outputs, more = _stacked(own, equations, numbers)
            names.update(zip(map(id, equation.outputs), outputs, strict=True))
            found += more
            continue
        equations.append(own)
        found += [seen] if seen else []
    outputs = [names.get(id(v), v) for v in program.outputs]
    watched = [variable for seen in found for variable in seen.variables]
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
    equation: Equation, equations: list[Equation], numbers: Iterator[int]
) -> tuple[list[Variable], list[Seen]]:
    """Appends a loop, and returns its results and what its contractions see, stacked over steps.

    What is the same in all steps, as a weight that is transposed in the body, is worked out
    outside, once; and so is, for all steps, what does not depend on those before.
    """
    consts, carried = scan_counts(equation)
    live = [True] * carried + equation.live[carried:]
    body, seen = _opened(flatten(equation.params["jaxpr"], live), numbers)
    first = consts + carried
    pairs = list(zip(body.inputs, equation.inputs, strict=True))
    places = {id(v): (own, 0) for v, own in pairs[:consts]}
    places |= {id(v): (own, 1) for v, own in pairs[first:]}
    wanted = {id(v): v for each in seen for v in each.variables if id(v) not in places}
    varies, recurs = (
        depends_on(body, body.inputs[consts:]),
        depends_on(body, body.inputs[consts:first]),
    )
    once = [v for n, v in wanted.items() if n not in varies]
    apart = [v for n, v in wanted.items() if n in varies - recurs]
    inside = [v for n, v in wanted.items() if n in recurs]

    def constant(*operands: Any) -> Any:
        return evaluate(_part(body, once), operands, once)

    def each_step(*operands: Any) -> Any:
        part, held = _part(body, apart), [*operands[:consts], *[None] * carried]
        return jax.vmap(lambda own: evaluate(part, [*held, *own], apart))(operands[first:])

    for function, variables, stacked in ((constant, once, 0), (each_step, apart, 1)):
        if variables:
            found = written(function, equation.inputs, equations)
            places |= {id(v): (own, stacked) for v, own in zip(variables, found, strict=True)}
    outputs, found = _watched(equation, body, live, inside, equations)
    places |= {id(v): (own, 1) for v, own in zip(inside, found, strict=True)}
    loop = next(numbers)
    return outputs, [each.outside(places, loop) for each in seen]


def _watched(
    equation: Equation,
    body: Program,
    live: list[bool],
    inside: list[Variable],
    equations: list[Equation],
) -> tuple[list[Variable], list[Variable]]:
    """Appends a loop that also returns some values of its body: its own results, and those."""
    if not inside:
        equations.append(equation)
        return equation.outputs, []
    consts, carried = scan_counts(equation)
    kept = [v for v, keep in zip(body.outputs, live, strict=True) if keep]

    def run(*operands: Any) -> Any:
        def step(state: Any, slices: Any) -> Any:
            results = evaluate(body, [*operands[:consts], *state, *slices], [*kept, *inside])
            return tuple(results[:carried]), tuple(results[carried:])

        start, stacked = operands[consts : consts + carried], operands[consts + carried :]
        length, reverse = equation.params["length"], equation.params["reverse"]
        return lax.scan(step, start, stacked, length=length, reverse=reverse)

    results = written(run, equation.inputs, equations)
    own = iter(results[: len(kept)])
    outputs = [next(own) if keep else v for v, keep in zip(equation.outputs, live, strict=True)]
    return outputs, results[len(kept) :]


def _part(program: Program, wanted: list[Variable]) -> Program:
    """What of a program is needed for some of its values."""
    return Program(program.inputs, [], live_equations(program.equations, wanted), wanted)
