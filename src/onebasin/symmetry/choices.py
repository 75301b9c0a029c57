"""Places that are chosen by what stands there, written without their numbers.

The place of the largest entry is a number, and numbers tell places apart. But where all that is
done with it is to look something up there, to put something there, or to compare it with every
place, the order of places does not matter. The largest entry is the one that equals the maximum:
the row h == max(h), true at its place and false elsewhere, moves along when places do. Indices from
argmax, argmin, top_k and argsort are written as such rows here. Routers of experts, codebooks and
sparse autoencoders choose in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import jax.numpy as jnp
from jax import lax

from onebasin.symmetry.generic import Generic
from onebasin.symmetry.late import Late, in_steps, lifted, looked_up
from onebasin.symmetry.lookups import look_up, look_up_one, put
from onebasin.symmetry.program import Equation, Program, Variable, new_equation
from onebasin.symmetry.rows import Row, Rows


def without_indices(program: Program, parameters: Collection[int]) -> Program:
    """A program that computes the same wherever no two scores tie, with rows for indices.

    What is not understood goes on using the index. Where scores may well tie, nothing changes.

    Args:
        program: The program.
        parameters: The ids of its variables that are parameters, or parts of some.
    """
    choosers = [each for each in program.equations if each.name in _CHOOSERS]
    if not choosers:
        return program
    rows = Rows(program)
    generic = Generic(program, parameters, rows.known)
    told = {
        id(each)
        for each in choosers
        if generic.along(each.inputs[0], _axis(each), _LOST.get(each.name, 0))
    }
    if not told:
        return program
    lates: dict[int, Late] = {}
    for each in program.equations:
        for equation in in_steps(lates, each):
            _write(rows, lates, equation)
            if id(equation) in told:
                _CHOOSERS[equation.name](rows, equation)
    return program.rewritten(rows.equations)


def _write(rows: Rows, lates: dict[int, Late], equation: Equation) -> None:
    """Appends an equation, or what stands for it."""
    if equation.name in _LOOKUPS:
        late = _LOOKUPS[equation.name](rows, equation)
    else:
        late = lifted(rows, lates, equation)
    if late is not None:
        lates[id(equation.outputs[0])] = late
        result: Variable | None = looked_up(rows, late)
    else:
        use = _USES.get(equation.name)
        result = use(rows, equation) if use else None
    if result is None:
        rows.equations.append(equation)
    else:
        rows.equations.append(new_equation(lax.copy_p, [result], equation.outputs[0]))
    rows.makers.update((id(v), equation) for v in equation.outputs)
    rows.follow(equation)


def _axis(chooser: Equation) -> int:
    """The axis along which something is chosen."""
    params, rank = chooser.params, len(chooser.inputs[0].shape)
    if chooser.name == "top_k":
        return int(params.get("axis", rank - 1)) % rank
    return int(params["dimension"] if chooser.name == "sort" else params["axes"][0])


def _extreme(rows: Rows, equation: Equation) -> None:
    """Argmax and argmin."""
    axis = _axis(equation)
    best = jnp.max if equation.name == "argmax" else jnp.min

    def row(x: Any) -> Any:
        x = lax.optimization_barrier(x)
        return jnp.moveaxis(x == best(x, axis, keepdims=True), axis, -1)

    rows[equation.outputs[0]] = Row.new(rows.write(row, equation.inputs[0]))


def _extremes(rows: Rows, equation: Equation) -> None:
    """The places of top_k."""
    values, index = equation.outputs
    rows[index] = _ranked(rows, equation.inputs[0], values, _axis(equation))


def _order(rows: Rows, equation: Equation) -> None:
    """Argsort: what counts along is sorted by the entries."""
    axis = _axis(equation)
    if len(equation.inputs) != 2 or equation.params["num_keys"] != 1:
        return
    source, places = equation.inputs
    if rows.counts_along(places, places.shape) == axis:
        values = rows.write(lambda x: lax.sort(x, dimension=axis), source)
        rows[equation.outputs[1]] = _ranked(rows, source, values, axis)


def _ranked(rows: Rows, source: Variable, values: Variable, axis: int) -> Row:
    def row(x: Any, values: Any) -> Any:
        return jnp.expand_dims(jnp.moveaxis(x, axis, -1), axis) == values[..., None]

    return Row.new(rows.write(row, source, values), axis)


def _compare(rows: Rows, equation: Equation) -> Variable | None:
    """An index that is compared with every place, or with one."""
    shape = equation.outputs[0].shape
    for index, other in (equation.inputs, equation.inputs[::-1]):
        row = rows[index]
        if row is None:
            continue
        number = rows.known.get(id(other))
        if number is not None and index.shape == shape:
            read = _at_one(row, number)
        else:
            read = _at_every(rows, row, index, rows.counts_along(other, shape), shape)
        if read is None:
            continue
        equal = rows.write(read, row.variable)
        return equal if equation.name == "eq" else rows.write(jnp.logical_not, equal)
    return None


def _at_one(row: Row, place: float) -> Callable[[Any], Any] | None:
    if not (0 <= place < row.places and place == int(place)):
        return None
    return lambda rows: lax.index_in_dim(rows, int(place), axis=-1, keepdims=False)


def _at_every(
    rows: Rows, row: Row, index: Variable, axis: int | None, shape: tuple[int, ...]
) -> Callable[[Any], Any] | None:
    if axis is None or shape[axis] != row.places or not rows.uniform(index, axis):
        return None

    def read(rows: Any) -> Any:
        rows = lax.index_in_dim(rows, 0, axis=axis, keepdims=False)
        return jnp.broadcast_to(jnp.moveaxis(rows, -1, axis), shape)

    return read


_LOST = {"argmax": -1, "top_k": -1, "argmin": 1}
"""The side on which no entry is chosen."""
_CHOOSERS: dict[str, Callable[[Rows, Equation], None]] = {
    "argmax": _extreme,
    "argmin": _extreme,
    "top_k": _extremes,
    "sort": _order,
}
_USES: dict[str, Callable[[Rows, Equation], Variable | None]] = {
    **dict.fromkeys(("eq", "ne"), _compare),
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add"), put),
}
_LOOKUPS: dict[str, Callable[[Rows, Equation], Late | None]] = {
    "gather": look_up,
    "dynamic_slice": look_up_one,
}
