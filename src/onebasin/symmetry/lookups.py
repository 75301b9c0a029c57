"""What is looked up, or put, at places that are chosen: sums over rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from onebasin.symmetry.late import Late
from onebasin.symmetry.program import Equation, Variable, is_floating
from onebasin.symmetry.rows import Row, Rows


@dataclasses.dataclass(frozen=True, slots=True)
class Lookup:
    """Indices into an array of which one component is chosen and the others count along.

    Attributes:
        row: The chosen component.
        place: The axis of the array that it goes along.
        shared: By axis of the array, the axis of the indices that counts along with it.
    """

    row: Row
    place: int
    shared: dict[int, int]

    @property
    def row_names(self) -> list[int]:
        """The axes of the row as `einsum` names them: those of the indices, then the place."""
        return list(range(len(self.row.variable.shape)))

    def names(self, rank: int) -> list[int]:
        """The axes of the array: those that it shares with the row, and its own."""
        first = len(self.row_names)
        names = [self.shared.get(d, first + d) for d in range(rank)]
        names[self.place] = first - 1
        return names

    def windows(self, rank: int) -> list[int]:
        """The axes of the array that are taken whole."""
        return [d for d in range(rank) if d != self.place and d not in self.shared]

    def spread(self, rank: int, windows: Sequence[int], count: int) -> list[int]:
        """The axes of what is looked up, or put: some are windows, the others of the indices."""
        names = self.names(rank)
        inner, outer = iter([names[d] for d in self.windows(rank)]), iter(self.row_names)
        return [next(inner if d in windows else outer) for d in range(count)]

    def late(
        self, rows: Rows, array: Variable, names: Sequence[int], shape: tuple[int, ...]
    ) -> Late:
        """What is looked up in an array, with such axes and such a shape."""
        place = len(self.row_names) - 1
        own, wanted = self.names(len(array.shape)), [*names, place]
        order = [own.index(n) for n in wanted if n in own]
        missing = [d for d, n in enumerate(wanted) if n not in own]

        def everywhere(array: Any) -> Any:
            array = jnp.expand_dims(jnp.transpose(array, order), missing)
            return jnp.broadcast_to(array, (*shape, self.row.places))

        axes = tuple(self.row.axes[n] if n < place else None for n in names)
        return Late(self.row.base, axes, rows.write(everywhere, array))


def look_up(rows: Rows, equation: Equation) -> Late | None:
    """Gather."""
    array, indices = equation.inputs
    numbers, sizes = equation.params["dimension_numbers"], equation.params["slice_sizes"]
    batching = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    along, dropped = numbers.start_index_map, numbers.collapsed_slice_dims
    kept = [d for d in range(len(array.shape)) if d not in (*dropped, *batching[0])]
    # One entry of an axis may be kept as an axis of one, as a slice that is vmapped does.
    single = [d for d in kept if sizes[d] == 1 < array.shape[d]]
    lookup = _lookup(rows, array, indices, along, batching, (*dropped, *single), sizes)
    rank = len(array.shape)
    if lookup is None or any(sizes[d] != array.shape[d] for d in lookup.windows(rank)):
        return None
    shape = equation.outputs[0].shape
    ones = [numbers.offset_dims[kept.index(d)] for d in single]
    left = [d for d in range(len(shape)) if d not in ones]
    offsets = [left.index(d) for d in numbers.offset_dims if d not in ones]
    names = lookup.spread(rank, offsets, len(left))
    late = lookup.late(rows, array, names, tuple(shape[d] for d in left))
    if not ones:
        return late
    axes = [None if d in ones else late.axes[left.index(d)] for d in range(len(shape))]
    everywhere = rows.write(lambda a: jnp.expand_dims(a, ones), late.everywhere)
    return Late(late.base, tuple(axes), everywhere)


def look_up_one(rows: Rows, equation: Equation) -> Late | None:
    """A slice of one entry from a chosen start."""
    array, *starts = equation.inputs
    chosen = [d for d, start in enumerate(starts) if rows[start] is not None]
    if len(chosen) != 1 or not is_floating(array):
        return None
    (place,) = chosen
    row = rows[starts[place]]
    sizes = [1 if d == place else n for d, n in enumerate(array.shape)]
    if row is None or row.places != array.shape[place]:
        return None
    if list(equation.params["slice_sizes"]) != sizes:
        return None
    everywhere = rows.write(lambda a: jnp.expand_dims(jnp.moveaxis(a, place, -1), place), array)
    return Late(row.base, (None,) * len(sizes), everywhere)


def put(rows: Rows, equation: Equation) -> Variable | None:
    """Scatter, of which none falls on another, and scatter that adds."""
    array, indices, updates = equation.inputs
    numbers = equation.params["dimension_numbers"]
    batching = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
    along, dropped = numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims
    lookup = _lookup(rows, array, indices, along, batching, dropped)
    if lookup is None:
        return None
    rank = len(array.shape)
    whole = [array.shape[d] for d in lookup.windows(rank)]
    if [updates.shape[d] for d in numbers.update_window_dims] != whole:
        return None
    adds = equation.name != "scatter"
    summed = set(range(len(indices.shape) - 1)) - set(lookup.shared.values())
    if not adds and not lookup.row.is_distinct(summed):
        return None
    given = lookup.spread(rank, numbers.update_window_dims, len(updates.shape))

    def total(row: Any, updates: Any) -> Any:
        row = row.astype(updates.dtype)
        return jnp.einsum(row, lookup.row_names, updates, given, lookup.names(rank))

    def result(row: Any, array: Any, updates: Any) -> Any:
        if adds:
            return array + total(row, updates)
        taken = total(row, jnp.ones_like(updates)) > 0
        return jnp.where(taken, total(row, updates), array)

    return rows.write(result, lookup.row.variable, array, updates)


def _lookup(
    rows: Rows,
    array: Variable,
    indices: Variable,
    along: Sequence[int],
    batching: tuple[Sequence[int], Sequence[int]],
    dropped: Sequence[int],
    sizes: Sequence[int] = (),
) -> Lookup | None:
    """Indices as a lookup, if all their components are of the two kinds.

    Args:
        rows: All rows.
        array: What they are indices into.
        indices: The indices, their components last.
        along: The axis of the array for each component.
        batching: Axes of the array, and those of the indices that go along with them.
        dropped: The axes of the array of which one entry is meant.
        sizes: How much of each axis is meant, if not just one entry.
    """
    together, found = dict(zip(*batching, strict=True)), []
    columns = _columns(rows, indices)
    if len(columns) != len(along) or not is_floating(array):
        return None
    for column, d in zip(columns, along, strict=True):
        row = rows[column]
        if row is not None and row.places == array.shape[d]:
            found.append((row, d))
            continue
        if sizes and sizes[d] == array.shape[d]:
            start = rows.constant(column)
            if start is None or start.any():
                return None
            continue
        axis = rows.counts_along(column, column.shape)
        if axis is None or axis in together.values() or column.shape[axis] != array.shape[d]:
            return None
        together[d] = axis
    if len(found) != 1:
        return None
    ((row, place),) = found
    last = len(indices.shape) - 1
    flat = rows.write(lambda r: lax.squeeze(r, (last,)), row.variable)
    row = dataclasses.replace(row, variable=flat, axes=row.axes[:-1])
    lookup = Lookup(row, place, together)
    gone = set(range(len(array.shape))) - set(lookup.windows(len(array.shape)))
    return lookup if gone == {*dropped, *batching[0]} else None


def _columns(rows: Rows, indices: Variable) -> list[Variable]:
    """The components of indices, each with a last axis of one."""
    last = len(indices.shape) - 1
    if indices.shape[last] == 1:
        return [indices]
    maker = rows.makers.get(id(indices))
    if maker is None or maker.name != "concatenate" or maker.params["dimension"] != last:
        return []
    return maker.inputs if all(v.shape[last] == 1 for v in maker.inputs) else []
