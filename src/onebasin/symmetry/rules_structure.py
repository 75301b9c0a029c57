"""Rules for primitives that move values about: shapes, slices, concatenation, indexing."""

from __future__ import annotations

from collections.abc import Sequence

from onebasin.symmetry.axes import ANY, FIXED
from onebasin.symmetry.program import Equation
from onebasin.symmetry.steps import Name, Operand, Recorder, Value


def broadcast_in_dim(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    source, shape = values[0], equation.params["shape"]
    dims = equation.params["broadcast_dimensions"]
    return _rename(recorder, source, dims, shape, range(len(shape)))


def transpose(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    order = equation.params["permutation"]
    return _rename(recorder, values[0], range(values[0].rank), equation.outputs[0].shape, order)


def squeeze(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    dropped = {d % values[0].rank for d in equation.params["dimensions"]}
    kept = [d for d in range(values[0].rank) if d not in dropped]
    return _rename(recorder, values[0], range(values[0].rank), equation.outputs[0].shape, kept)


def _rename(
    recorder: Recorder,
    source: Value,
    names: Sequence[Name],
    shape: Sequence[int],
    out_names: Sequence[Name],
) -> list[Value]:
    results = recorder.operation([Operand(source, tuple(names))], [(shape, tuple(out_names))])
    results[0].known = source.known
    return results


def identity(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Primitives that hand their operands through, one by one."""
    return list(values)


def reshape(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    if equation.params.get("dimensions") is not None:
        return recorder.opaque(values, [equation.outputs[0].shape])
    return [recorder.reshape(values[0], equation.outputs[0].shape)]


def concatenate(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    axis = equation.params["dimension"]
    return [recorder.join(values, [v.shape[axis] for v in values], axis)]


def stack(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Values side by side along a new axis."""
    axis = equation.params["axis"]
    lifted = [recorder.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in values]
    return [recorder.join(lifted, [1] * len(lifted), axis)]


def split(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    results, start = [], 0
    for length in equation.params["sizes"]:
        results.append(recorder.slice(values[0], equation.params["axis"], start, start + length))
        start += length
    return results


def unstack(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """The entries along one axis, each without it."""
    value, axis = values[0], equation.params["axis"]
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    return [
        recorder.reshape(recorder.slice(value, axis, i, i + 1), shape)
        for i in range(value.shape[axis])
    ]


def static_slice(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    value = values[0]
    strides = equation.params["strides"] or (1,) * value.rank
    ranges = zip(
        equation.params["start_indices"], equation.params["limit_indices"], strides, strict=True
    )
    for axis, (start, stop, stride) in enumerate(ranges):
        length = value.shape[axis]
        if stride > 1:
            value = _strided(recorder, value, axis, start, stop, stride)
        elif (start, stop) != (0, length):
            value = recorder.slice(value, axis, start, stop)
    return [value]


def _strided(
    recorder: Recorder, value: Value, axis: int, start: int, stop: int, stride: int
) -> Value:
    """x[start::stride] is one column of the axis folded into (length / stride, stride)."""
    shape = list(value.shape)
    length = shape[axis]
    shape[axis] = -(-(stop - start) // stride)
    if shape[axis] == 1:
        return recorder.slice(value, axis, start, start + 1)
    rest = length % stride
    if start >= stride or shape[axis] != length // stride + (start < rest):
        return recorder.mixed(value, [axis], shape)
    main = value if not rest else recorder.slice(value, axis, 0, length - rest)
    rows = length // stride
    folded = recorder.reshape(main, [*shape[:axis], rows, stride, *shape[axis + 1 :]])
    column = recorder.slice(folded, axis + 1, start, start + 1)
    column = recorder.reshape(column, [*shape[:axis], rows, *shape[axis + 1 :]])
    if start >= rest:
        return column
    last = recorder.slice(value, axis, length - rest + start, length - rest + start + 1)
    return recorder.join([column, last], [rows, 1], axis)


def pad(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    value, filling = values
    shape = list(value.shape)
    for axis, (low, high, interior) in enumerate(equation.params["padding_config"]):
        if low == high == interior == 0:
            continue
        shape[axis] = equation.outputs[0].shape[axis]
        if interior or low < 0 or high < 0 or value.axes[axis] is FIXED:
            value = _padded_windows(recorder, value, filling, axis, shape)
        else:
            sources: list[Value | None] = [None] * bool(low) + [value] + [None] * bool(high)
            lengths = [low] * bool(low) + [value.shape[axis]] + [high] * bool(high)
            value = recorder.join(sources, lengths, axis, filling)
    return [value]


def _padded_windows(
    recorder: Recorder, value: Value, filling: Value, axis: int, shape: list[int]
) -> Value:
    names = tuple(range(value.rank))
    operands = [Operand(value, names), Operand(filling, ())]
    (result,) = recorder.operation(
        operands, [(shape, names)], fixed=frozenset([axis]), combine="equal"
    )
    return result


def tile(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Copies laid end to end: every copy has the same order."""
    value, shape = values[0], equation.outputs[0].shape
    for axis in range(value.rank):
        repeats = shape[axis] // value.shape[axis] if value.shape[axis] else 1
        if repeats == 1:
            continue
        if value.shape[axis] == 1:
            wide = (*value.shape[:axis], repeats, *value.shape[axis + 1 :])
            (value,) = _rename(recorder, value, range(value.rank), wide, range(value.rank))
        else:
            value = recorder.join([value] * repeats, [value.shape[axis]] * repeats, axis)
    return [value]


def reverse(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    value = values[0]
    dims = [d for d in equation.params["dimensions"] if value.axes[d] is not ANY]
    return [recorder.mixed(value, dims, value.shape)]


def iota(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    shape = equation.params["shape"]
    return [
        Value(
            shape,
            tuple(FIXED if d == equation.params["dimension"] else ANY for d in range(len(shape))),
        )
    ]


def source(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Values that come from nowhere (random bits): told apart along every axis."""
    return recorder.opaque(values, [v.shape for v in equation.outputs])


def gather(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Axes that are taken whole pass through; indexed ones are pinned and mixed."""
    operand, indices = values
    numbers = equation.params["dimension_numbers"]
    sizes = equation.params["slice_sizes"]
    batching = list(numbers.operand_batching_dims)
    names: list[Name] = [("operand", d) for d in range(operand.rank)]
    index_names: list[Name] = [("index", d) for d in range(indices.rank)]
    for d, i in zip(batching, numbers.start_indices_batching_dims, strict=True):
        names[d] = index_names[i]
    fixed = set()
    for d in range(operand.rank):
        if d not in batching and sizes[d] != operand.shape[d]:
            fixed.add(names[d])
    offsets = [
        names[d]
        for d in range(operand.rank)
        if d not in numbers.collapsed_slice_dims and d not in batching
    ]
    shape = equation.outputs[0].shape
    batches = iter(index_names[:-1])
    windows = iter(offsets)
    out_names = [
        next(windows) if d in numbers.offset_dims else next(batches) for d in range(len(shape))
    ]
    # Indices beyond the end may be filled with a number, which is scaled by nothing.
    fill = equation.params.get("fill_value")
    filled = fill is not None and fill == fill and fill != 0
    return recorder.operation(
        [Operand(operand, tuple(names)), Operand(indices, tuple(index_names), None)],
        [(shape, out_names)],
        fixed=frozenset(fixed),
        closed=frozenset(index_names[-1:]),
        scale="zero" if filled else "keep",
        sign="zero" if filled else "keep",
    )


def scatter(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Windows as wide as the operand pass through; scattered axes are pinned and mixed."""
    operand, indices, updates = values
    numbers = equation.params["dimension_numbers"]
    batching = list(numbers.operand_batching_dims)
    windows = [
        d
        for d in range(operand.rank)
        if d not in numbers.inserted_window_dims and d not in batching
    ]
    names: list[Name] = [("operand", d) for d in range(operand.rank)]
    index_names: list[Name] = [("index", d) for d in range(indices.rank)]
    update_names: list[Name] = [None] * updates.rank
    scattered = iter(index_names[:-1])
    for d in range(updates.rank):
        if d not in numbers.update_window_dims:
            update_names[d] = next(scattered)
    fixed: set[Name] = set(index_names)
    for d, i in zip(batching, numbers.scatter_indices_batching_dims, strict=True):
        names[d] = index_names[i]
        fixed.discard(index_names[i])
    for d, u in zip(windows, numbers.update_window_dims, strict=True):
        if updates.shape[u] == operand.shape[d]:
            update_names[u] = names[d]
        else:
            update_names[u] = ("update", u)
            fixed |= {names[d], ("update", u)}
    fixed |= {names[d] for d in numbers.inserted_window_dims}
    name = equation.name
    plain = name in ("scatter", "scatter-add", "scatter_add")
    return recorder.operation(
        [
            Operand(operand, tuple(names)),
            Operand(updates, tuple(update_names)),
            Operand(indices, tuple(index_names), None),
        ],
        [(operand.shape, names)],
        fixed=frozenset(fixed),
        combine="equal",
        scale="zero" if "mul" in name else "keep",
        sign="keep" if plain else "zero",
    )


def dynamic_slice(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    operand, *starts = values
    sizes = equation.params["slice_sizes"]
    names = tuple(range(operand.rank))
    partial = frozenset(d for d in names if sizes[d] != operand.shape[d])
    return recorder.operation(
        [Operand(operand, names), *(Operand(s, (None,) * s.rank, None) for s in starts)],
        [(sizes, names)],
        fixed=partial,
    )


def dynamic_update_slice(
    recorder: Recorder, equation: Equation, values: list[Value]
) -> list[Value]:
    operand, update, *starts = values
    names = tuple(range(operand.rank))
    partial = {d for d in names if update.shape[d] != operand.shape[d]}
    update_names = tuple(("update", d) if d in partial else d for d in names)
    fixed = frozenset(partial) | {("update", d) for d in partial}
    return recorder.operation(
        [
            Operand(operand, names),
            Operand(update, update_names),
            *(Operand(s, (None,) * s.rank, None) for s in starts),
        ],
        [(operand.shape, names)],
        fixed=fixed,
        combine="equal",
    )


RULES = {
    "broadcast_in_dim": broadcast_in_dim,
    "transpose": transpose,
    "squeeze": squeeze,
    "reshape": reshape,
    "concatenate": concatenate,
    "split": split,
    "stack": stack,
    "unstack": unstack,
    "slice": static_slice,
    "pad": pad,
    "tile": tile,
    "rev": reverse,
    "iota": iota,
    "gather": gather,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
}
RULES |= dict.fromkeys(
    ("scatter", "scatter-add", "scatter_add", "scatter-min", "scatter_min", "scatter-max"), scatter
)
RULES |= dict.fromkeys(("scatter_max", "scatter-mul", "scatter_mul"), scatter)
RULES |= dict.fromkeys(
    ("optimization_barrier", "name", "sharding_constraint", "device_put", "pvary"), identity
)
RULES |= dict.fromkeys(
    (
        *("random_bits", "random_wrap", "random_unwrap", "random_fold_in", "random_split"),
        *("random_seed", "random_clone", "random_gamma", "threefry2x32", "rng_bit_generator"),
        *("rng_uniform", "empty", "create_token"),
    ),
    source,
)
