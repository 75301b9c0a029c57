"""Products with one matrix per group of rows, read as what each group would do with every row.

`ragged_dot` multiplies the first rows by the first matrix, the next ones by the second, and so on.
What a row gives is looked up among what it would give in every group: an index that a row has one
of, as if it had been chosen. So each group has units of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from onebasin.symmetry.late import Late, in_steps, lifted, looked_up
from onebasin.symmetry.program import Equation, Program, Variable, new_equation
from onebasin.symmetry.rows import Rows

Bases = dict[tuple[Hashable, int], tuple[Variable, Variable]]
"""By the sizes of groups and the number of rows: which group a row is in, and if it is in any."""

NAME = "ragged_dot_general"


def without_groups(program: Program) -> Program:
    """A program that computes the same, with rows for groups; the same one if it has none."""
    if not any(_is_plain(equation) for equation in program.equations):
        return program
    rows = Rows(program)
    bases: Bases = {}
    lates: dict[int, Late] = {}
    for each in program.equations:
        for equation in in_steps(lates, each):
            _write(rows, bases, lates, equation)
    return program.rewritten(rows.equations)


def _write(
    rows: Rows,
    bases: Bases,
    lates: dict[int, Late],
    equation: Equation,
) -> None:
    """Appends an equation, or what stands for it."""
    late = (
        _product(rows, bases, lates, equation)
        if _is_plain(equation)
        else lifted(rows, lates, equation)
    )
    if late is None:
        rows.equations.append(equation)
    else:
        lates[id(equation.outputs[0])] = late
        result = looked_up(rows, late)
        rows.equations.append(new_equation(lax.copy_p, [result], equation.outputs[0]))
    rows.makers.update((id(v), equation) for v in equation.outputs)


def _is_plain(equation: Equation) -> bool:
    """Whether an equation is rows (m, k) times matrices (g, k, n), by the sizes of groups (g)."""
    if equation.name != NAME or equation.params.get("group_offset") is not None:
        return False
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (sums, batches) = numbers.dot_dimension_numbers
    ranks = [len(v.shape) for v in equation.inputs]
    return (
        ranks == [2, 3, 1]
        and [tuple(d) for d in sums] in ([(1,), (1,)], [(1,), (2,)])
        and not any(map(tuple, batches))
        and tuple(numbers.lhs_ragged_dimensions) == (0,)
        and tuple(numbers.rhs_group_dimensions) == (0,)
    )


def _product(
    rows: Rows,
    bases: Bases,
    lates: dict[int, Late],
    equation: Equation,
) -> Late:
    """What rows would give in every group; nothing, for those beyond the last group."""
    left, right, sizes = equation.inputs
    count = left.shape[0]
    key = id(sizes) if sizes.constant is None else np.asarray(sizes.constant).tobytes(), count
    if key not in bases:
        bases[key] = (
            rows.write(lambda sizes: _groups(sizes, count), sizes),
            rows.write(lambda sizes: jnp.arange(count) < jnp.sum(sizes), sizes),
        )
    base, inside = bases[key]
    axis = equation.params["ragged_dot_dimension_numbers"].dot_dimension_numbers[0][1][0]
    matrices = "gkn" if axis == 1 else "gnk"
    late = lates.get(id(left))
    own = late if late is not None and late.base is base and late.axes == (0, None) else None
    names = "mk" if own is None else "mkg"

    def everywhere(left: Any, right: Any, inside: Any) -> Any:
        shape = (count,) + (1,) * (left.ndim - 1)
        left = left * inside.astype(left.dtype).reshape(shape)
        found = jnp.einsum(f"{names},{matrices}->mng", left, right)
        return found.astype(equation.outputs[0].aval.dtype)

    source = left if own is None else own.everywhere
    return Late(base, (0, None), rows.write(everywhere, source, right, inside))


def _groups(sizes: Any, count: int) -> Any:
    """By row, which group it is in; rows beyond the last are in the last."""
    ends = jnp.cumsum(sizes)
    starts = ends - sizes
    place = jnp.arange(count)[:, None]
    last = jnp.arange(sizes.shape[0]) == sizes.shape[0] - 1
    return (place >= starts) & ((place < ends) | last)
