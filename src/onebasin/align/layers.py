"""Where a model's layers are: the products with a parameter in its program, and their biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from onebasin.posterior import trees
from onebasin.symmetry import Site
from onebasin.symmetry.program import Equation, Program, Variable, evaluate, trace

Producers = dict[int, Equation]


class Incoming(NamedTuple):
    """The parameters that make a layer's preactivation, as in `x @ kernel + bias`.

    Attributes:
        weights: Parameters, each with the axis that runs along the layer's units.
        bias: The parameter that is added to each unit, if there is one.
    """

    weights: tuple[Site, ...]
    bias: Site | None = None


class _Layer(NamedTuple):
    """A layer in a program: its parameters, its preactivation and the axis of units there."""

    incoming: Incoming
    value: Variable
    axis: int


def find_layers(
    apply_fn: Callable[[Any, Any], Any], params: Any, inputs: Any
) -> tuple[dict[str, Incoming], Callable[[Any, Any], dict[str, jax.Array]]]:
    """The dense and convolutional layers of a model, and a function that captures them.

    A layer is a matrix product or a convolution of something with a parameter that is used once
    and has one axis of units; the vector that is added next is its bias. Layers that are outputs
    of the model, and products that are more involved (attention, shared weights, loops), are left
    out.

    Args:
        apply_fn: The model, `apply_fn(params, inputs) -> outputs`.
        params: Its parameters, or their shapes.
        inputs: An example of its inputs, or their shapes.

    Returns:
        The layers by the path of their kernel, in order of execution; and a function of
        (params, inputs) that gives their preactivations, (..., unit), by the same names.
    """

    def capture(params: Any, inputs: Any) -> dict[str, jax.Array]:
        program, layers = _layers(apply_fn, params, inputs)
        arguments = [*jax.tree.leaves(params), *jax.tree.leaves(inputs)]
        values = evaluate(program, arguments, [layer.value for layer in layers.values()])
        return {
            name: jnp.moveaxis(value, layer.axis, -1)
            for (name, layer), value in zip(layers.items(), values, strict=True)
        }

    _, layers = _layers(apply_fn, params, inputs)
    return {name: layer.incoming for name, layer in layers.items()}, capture


def producers(program: Program) -> Producers:
    """The equation that makes each variable, by the variable's identity."""
    return {id(v): equation for equation in program.equations for v in equation.outputs}


def repeated_vector(variable: Variable, made_by: Producers) -> tuple[Variable, int] | None:
    """The vector that a value repeats, and the axis of the value along which it lies."""
    chain = []
    while (equation := made_by.get(id(variable))) is not None:
        if equation.name not in ("broadcast_in_dim", "convert_element_type", "reshape", "copy"):
            return None
        chain.append(equation)
        variable = equation.inputs[0]
    if len(variable.shape) != 1:
        return None
    axis = 0
    for equation in reversed(chain):
        shape = equation.outputs[0].shape
        if equation.name == "broadcast_in_dim":
            axis = equation.params["broadcast_dimensions"][axis]
        elif equation.name == "reshape":
            wide = [place for place, size in enumerate(shape) if size != 1]
            if len(wide) != 1 or shape[wide[0]] != variable.shape[0]:
                return None
            (axis,) = wide
    return variable, axis


def _layers(apply_fn: Any, params: Any, inputs: Any) -> tuple[Program, dict[str, _Layer]]:
    program = trace(apply_fn, params, inputs)
    paths = [path for path, _ in trees.named_leaves(params)]
    names = {id(v): path for v, path in zip(program.inputs, paths, strict=False)}
    made_by = producers(program)
    users: dict[int, list[Equation]] = {}
    for equation in program.equations:
        for variable in equation.inputs:
            users.setdefault(id(variable), []).append(equation)
    outputs = {id(v) for v in program.outputs}
    layers = {}
    for equation in program.equations:
        found = [
            (*behind, axis)
            for side, own_axis, axis in _candidates(equation)
            if (behind := _kernel(equation.inputs[side], own_axis, made_by, users))
            and id(behind[0]) in names
        ]
        value = equation.outputs[0]
        if len(found) != 1 or id(value) in outputs:
            continue
        ((kernel, kernel_axis, axis),) = found
        bias = None
        (user, *more) = users[id(value)]
        if user.name == "add" and not more:
            other = user.inputs[1] if user.inputs[0] is value else user.inputs[0]
            added = repeated_vector(other, made_by)
            if added is not None and id(added[0]) in names and added[1] == axis:
                if len(users[id(added[0])]) > 1 or id(user.outputs[0]) in outputs:
                    continue
                bias = Site(names[id(added[0])], 0)
                value = user.outputs[0]
        path = names[id(kernel)]
        layers[path] = _Layer(Incoming((Site(path, kernel_axis),), bias), value, axis)
    return program, layers


def _kernel(
    variable: Variable, axis: int, made_by: Producers, users: dict[int, list[Equation]]
) -> tuple[Variable, int] | None:
    """The value behind transpositions and changes of precision, and where its axis of units is."""
    while len(users[id(variable)]) == 1:
        equation = made_by.get(id(variable))
        if equation is None:
            return variable, axis
        if equation.name == "transpose":
            axis = equation.params["permutation"][axis]
        elif equation.name != "convert_element_type":
            return None
        variable = equation.inputs[0]
    return None


def _candidates(equation: Equation) -> list[tuple[int, int, int]]:
    """Which operands could be a kernel: the operand, its axis of units and that of the result."""
    if equation.name == "conv_general_dilated":
        numbers = equation.params["dimension_numbers"]
        return [(1, numbers.rhs_spec[0], numbers.out_spec[1])]
    if equation.name != "dot_general":
        return []
    contracted, batch = equation.params["dimension_numbers"]
    found = []
    for side in (0, 1) if not batch[0] else ():
        axes = range(len(equation.inputs[side].shape))
        free = [axis for axis in axes if axis not in contracted[side]]
        if len(free) == 1 and len(axes) > 1:
            last = len(equation.outputs[0].shape) - 1
            found.append((side, free[0], last if side else 0))
    return found
