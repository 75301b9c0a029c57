"""Rules for primitives that sum, search or mix along axes: contractions, reductions, windows."""

from __future__ import annotations

import math
from collections.abc import Callable

from onebasin.symmetry.program import Equation
from onebasin.symmetry.steps import Effect, Name, Operand, Recorder, Value


def dot_general(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    left, right = values
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left_names: list[Name] = [("left", d) for d in range(left.rank)]
    right_names: list[Name] = [("right", d) for d in range(right.rank)]
    for number, (a, b) in enumerate(zip(left_sum, right_sum, strict=True)):
        left_names[a] = right_names[b] = ("sum", number)
    for number, (a, b) in enumerate(zip(left_batch, right_batch, strict=True)):
        left_names[a] = right_names[b] = ("batch", number)
    out = [("batch", number) for number in range(len(left_batch))]
    out += [name for name in left_names if name[0] == "left"]
    out += [name for name in right_names if name[0] == "right"]
    return recorder.operation(
        [Operand(left, tuple(left_names)), Operand(right, tuple(right_names))],
        [(equation.outputs[0].shape, out)],
        closed=frozenset(("sum", number) for number in range(len(left_sum))),
    )


def convolution(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Channels contract; groups are one more shared index; windows tell positions apart."""
    image, kernel = values
    params = equation.params
    if params["batch_group_count"] != 1:
        return recorder.opaque(values, [equation.outputs[0].shape])
    numbers = params["dimension_numbers"]
    groups = params["feature_group_count"]
    spatial = len(numbers.lhs_spec) - 2
    image_names: list[Name] = [None] * image.rank
    kernel_names: list[Name] = [None] * kernel.rank
    out_names: list[Name] = [None] * image.rank
    fixed: set[Name] = set()
    for i in range(spatial):
        x, k = numbers.lhs_spec[2 + i], numbers.rhs_spec[2 + i]
        pointwise = (
            kernel.shape[k] == 1
            and params["window_strides"][i] == 1
            and tuple(params["padding"][i]) == (0, 0)
            and params["lhs_dilation"][i] == 1
        )
        image_names[x] = out_names[numbers.out_spec[2 + i]] = ("position", i)
        kernel_names[k] = ("window", i)
        fixed.add(("window", i))
        if not pointwise:
            fixed.add(("position", i))
    image_names[numbers.lhs_spec[0]] = out_names[numbers.out_spec[0]] = "example"
    image_names[numbers.lhs_spec[1]] = kernel_names[numbers.rhs_spec[1]] = "channel"
    kernel_names[numbers.rhs_spec[0]] = out_names[numbers.out_spec[1]] = "feature"
    shape = equation.outputs[0].shape
    full_shape = list(shape)
    if groups > 1:
        image = _split_axis(recorder, image, numbers.lhs_spec[1], groups)
        kernel = _split_axis(recorder, kernel, numbers.rhs_spec[0], groups)
        image_names.insert(numbers.lhs_spec[1], "group")
        kernel_names.insert(numbers.rhs_spec[0], "group")
        out_names.insert(numbers.out_spec[1], "group")
        features = numbers.out_spec[1]
        full_shape[features : features + 1] = [groups, shape[features] // groups]
    (result,) = recorder.operation(
        [Operand(image, tuple(image_names)), Operand(kernel, tuple(kernel_names))],
        [(full_shape, out_names)],
        closed=frozenset(["channel"]),
        fixed=frozenset(fixed),
    )
    return [recorder.reshape(result, shape) if groups > 1 else result]


def _split_axis(recorder: Recorder, value: Value, axis: int, outer: int) -> Value:
    shape = list(value.shape)
    shape[axis : axis + 1] = [outer, shape[axis] // outer]
    return recorder.reshape(value, shape)


def reduction(
    scale: Effect = "keep", sign: Effect = "keep", power: bool = False
) -> Callable[[Recorder, Equation, list[Value]], list[Value]]:
    """Sums, maxima and products over whole axes: any order of positions gives the same."""

    def rule(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
        value = values[0]
        dims = set(equation.params["axes"])
        names = tuple(range(value.rank))
        shape = equation.outputs[0].shape
        results = recorder.operation(
            [Operand(value, names)],
            [(shape, [d for d in names if d not in dims])],
            closed=frozenset(dims),
            scale=scale,
            sign=sign,
        )
        if power:
            weight = math.prod(value.shape[d] for d in dims)
            left = tuple(range(len(shape)))
            results = recorder.operation([Operand(results[0], left, weight)], [(shape, left)])
        return results

    return rule


def argument(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Argmax and argmin name positions, so the order of their axis matters."""
    value = values[0]
    dims = frozenset(equation.params["axes"])
    names = tuple(range(value.rank))
    return recorder.operation(
        [Operand(value, names)],
        [(equation.outputs[0].shape, [d for d in names if d not in dims])],
        fixed=dims,
        scale="clear",
        sign="zero",
    )


def cumulative(
    scale: Effect, sign: Effect
) -> Callable[[Recorder, Equation, list[Value]], list[Value]]:
    def rule(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
        axis = equation.params["axis"]
        return [recorder.mixed(values[0], [axis], values[0].shape, scale=scale, sign=sign)]

    return rule


def fourier(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Fourier transforms are linear: they mix the last axes and leave the others alone."""
    value, count = values[0], len(equation.params["fft_lengths"])
    dims = range(value.rank - count, value.rank)
    return [recorder.mixed(value, dims, equation.outputs[0].shape)]


def window(scale: Effect, sign: Effect) -> Callable[[Recorder, Equation, list[Value]], list[Value]]:
    """Pooling: an axis with a window of one passes through, others tell positions apart."""

    def rule(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
        value, params = values[0], equation.params
        dilation = params.get("base_dilation") or (1,) * value.rank
        moved = [
            d
            for d in range(value.rank)
            if params["window_dimensions"][d] != 1
            or params["window_strides"][d] != 1
            or tuple(params["padding"][d]) != (0, 0)
            or dilation[d] != 1
        ]
        shape = equation.outputs[0].shape
        return [recorder.mixed(value, moved, shape, scale=scale, sign=sign)]

    return rule


def sort(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    """Sorting forgets the order of its input; ties among several operands would not."""
    axis = equation.params["dimension"]
    shapes = [v.shape for v in equation.outputs]
    if len(values) > 1:
        return recorder.opaque(values, shapes)
    names = tuple(range(values[0].rank))
    out = tuple(None if d == axis else d for d in names)
    return recorder.operation(
        [Operand(values[0], names)], [(shapes[0], out)], closed=frozenset([axis]), sign="zero"
    )


def top_k(recorder: Recorder, equation: Equation, values: list[Value]) -> list[Value]:
    value = values[0]
    axis = equation.params.get("axis", value.rank - 1) % value.rank
    names = tuple(range(value.rank))
    shapes = [v.shape for v in equation.outputs]
    out = tuple(None if d == axis else d for d in names)
    fixed = frozenset([axis]) if equation.live[1] else frozenset()
    (largest,) = recorder.operation(
        [Operand(value, names)],
        [(shapes[0], out)],
        closed=frozenset([axis]),
        fixed=fixed,
        sign="zero",
    )
    (indices,) = recorder.operation(
        [Operand(value, names)],
        [(shapes[1], out)],
        closed=frozenset([axis]),
        fixed=fixed,
        scale="clear",
        sign="zero",
    )
    return [largest, indices]


RULES = {
    "dot_general": dot_general,
    "conv_general_dilated": convolution,
    "reduce_sum": reduction(),
    "reduce_max": reduction(sign="zero"),
    "reduce_min": reduction(sign="zero"),
    "reduce_prod": reduction(power=True),
    "reduce_and": reduction("zero", "zero"),
    "reduce_or": reduction("zero", "zero"),
    "reduce_xor": reduction("zero", "zero"),
    "argmax": argument,
    "argmin": argument,
    "cumsum": cumulative("keep", "keep"),
    "cummax": cumulative("keep", "zero"),
    "cummin": cumulative("keep", "zero"),
    "cumprod": cumulative("zero", "zero"),
    "cumlogsumexp": cumulative("zero", "zero"),
    "fft": fourier,
    "reduce_window_sum": window("keep", "keep"),
    "reduce_window_max": window("keep", "zero"),
    "reduce_window_min": window("keep", "zero"),
    "sort": sort,
    "top_k": top_k,
}
