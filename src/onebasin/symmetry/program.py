"""A JAX function as a flat list of equations: calls inlined, dead code gone.

Everything in this room reads programs through this module, so that the shape of a jaxpr is known in
one place only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

# Primitives that are known to run their inner jaxpr once, on exactly their own operands.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
}
# Those that bring derivatives of their own, which an inlined body would lose.
_CUSTOM = {
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
# What only moves or repeats the entries of an array.
MOVES = (
    "broadcast_in_dim",
    "convert_element_type",
    "copy",
    "expand_dims",
    "reshape",
    "squeeze",
    "transpose",
)


@dataclasses.dataclass(eq=False, slots=True)
class Variable:
    """A value of the program; `constant` holds its array when it is known at trace time."""

    aval: Any
    constant: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(getattr(self.aval, "shape", ()))


@dataclasses.dataclass(eq=False, slots=True)
class Equation:
    """One primitive operation."""

    primitive: core.Primitive
    params: dict[str, Any]
    inputs: list[Variable]
    outputs: list[Variable]
    live: list[bool]

    @property
    def name(self) -> str:
        return self.primitive.name


def new_equation(
    primitive: Any, inputs: Sequence[Variable], output: Variable, **params: Any
) -> Equation:
    """An equation with one result."""
    return Equation(primitive, params, list(inputs), [output], [True])


def broadcast(source: Variable, dims: Sequence[int], target: Variable) -> Equation:
    """The equation that gives a variable the shape of another, its axes being those named."""
    params = {"shape": target.shape, "broadcast_dimensions": tuple(dims), "sharding": None}
    return new_equation(lax.broadcast_in_dim_p, [source], target, **params)


@dataclasses.dataclass(eq=False, slots=True)
class Program:
    """Equations in order of execution, from `inputs` to `outputs`.

    What is `watched` is computed too, whether or not an output needs it.
    """

    inputs: list[Variable]
    outputs: list[Variable]
    equations: list[Equation]
    watched: list[Variable] = dataclasses.field(default_factory=list)

    def rewritten(self, equations: list[Equation]) -> Program:
        """The same from other equations, those that are needed."""
        own = [dataclasses.replace(equation) for equation in equations]
        needed = live_equations(own, [*self.outputs, *self.watched])
        return Program(self.inputs, self.outputs, needed, self.watched)


def trace(fun: Callable[..., Any], *args: Any, custom: bool = True) -> Program:
    """The program of `fun` on arrays or shapes.

    Args:
        fun: The function.
        *args: Its arguments.
        custom: Whether functions with derivatives of their own are inlined too; where the program
            is to be differentiated they must not be.
    """
    return flatten(jax.make_jaxpr(fun)(*args), custom=custom)


def flatten(
    closed: core.ClosedJaxpr, live: Sequence[bool] | None = None, *, custom: bool = True
) -> Program:
    """Inlines the calls of a jaxpr and drops what its live outputs do not need."""
    inputs = [Variable(var.aval) for var in closed.jaxpr.invars]
    equations: list[Equation] = []
    calls = _CALLS | _CUSTOM if custom else _CALLS
    outputs = _inline(closed.jaxpr, closed.consts, inputs, equations, calls)
    wanted = outputs if live is None else [v for v, keep in zip(outputs, live, strict=True) if keep]
    return Program(inputs, outputs, live_equations(equations, wanted))


def inlined(
    closed: core.ClosedJaxpr, inputs: list[Variable], equations: list[Equation]
) -> list[Variable]:
    """Appends the equations of a jaxpr on some variables, and returns what it gives."""
    return _inline(closed.jaxpr, closed.consts, inputs, equations, _CALLS | _CUSTOM)


def written(
    function: Callable[..., Any], inputs: Sequence[Variable], equations: list[Equation]
) -> list[Variable]:
    """Appends the equations of a function of some variables, and returns what it gives."""
    return inlined(jax.make_jaxpr(function)(*(v.aval for v in inputs)), list(inputs), equations)


def _inline(
    jaxpr: core.Jaxpr,
    consts: Sequence[Any],
    inputs: list[Variable],
    equations: list[Equation],
    calls: Mapping[str, str],
) -> list[Variable]:
    names: dict[core.Var, Variable] = dict(zip(jaxpr.invars, inputs, strict=True))
    for var, const in zip(jaxpr.constvars, consts, strict=True):
        names[var] = Variable(var.aval, const)

    def read(atom: Any) -> Variable:
        if isinstance(atom, core.Literal):
            return Variable(atom.aval, atom.val)
        return names[atom]

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        inner = _called(eqn, calls)
        if inner is not None:
            results = _inline(inner.jaxpr, inner.consts, operands, equations, calls)
        else:
            results = [Variable(var.aval) for var in eqn.outvars]
            live = [True] * len(results)
            equations.append(Equation(eqn.primitive, dict(eqn.params), operands, results, live))
        names.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _called(eqn: core.JaxprEqn, calls: Mapping[str, str]) -> core.ClosedJaxpr | None:
    key = calls.get(eqn.primitive.name)
    inner = eqn.params.get(key) if key else None
    if isinstance(inner, core.Jaxpr) and not hasattr(inner, "jaxpr") and not inner.constvars:
        inner = core.ClosedJaxpr(inner, [])
    if inner is None or not hasattr(inner, "consts"):
        return None
    shapes = [getattr(v.aval, "shape", None) for v in eqn.invars]
    inner_shapes = [getattr(v.aval, "shape", None) for v in inner.jaxpr.invars]
    same = shapes == inner_shapes and len(inner.jaxpr.outvars) == len(eqn.outvars)
    return inner if same else None


def live_equations(equations: list[Equation], wanted: list[Variable]) -> list[Equation]:
    """The equations that some wanted variable depends on."""
    needed = {id(variable) for variable in wanted}
    kept = []
    for equation in reversed(equations):
        equation.live = [id(variable) in needed for variable in equation.outputs]
        if any(equation.live):
            needed.update(id(variable) for variable in equation.inputs)
            kept.append(equation)
    return kept[::-1]


def depends_on(program: Program, roots: Sequence[Variable]) -> set[int]:
    """The ids of the variables that depend on any of the roots, these included."""
    reached = {id(v) for v in roots}
    for equation in program.equations:
        if any(id(v) in reached for v in equation.inputs):
            reached.update(id(v) for v in equation.outputs)
    return reached


def numbers(program: Program) -> dict[int, float]:
    """By the id of each variable that is one known number throughout, that number."""
    found: dict[int, float] = {}
    for equation in program.equations:
        for variable in equation.inputs:
            one = variable.constant is not None and set(variable.shape) <= {1}
            if one and _is_real(variable.aval.dtype):
                found[id(variable)] = float(np.asarray(variable.constant).flat[0])
        if equation.name in MOVES and id(equation.inputs[0]) in found:
            target = equation.outputs[0]
            if _is_real(target.aval.dtype):
                with np.errstate(all="ignore"):
                    value = np.asarray(found[id(equation.inputs[0])]).astype(target.aval.dtype)
                found[id(target)] = float(value)
    return found


def _is_real(dtype: Any) -> bool:
    return any(jax.dtypes.issubdtype(dtype, kind) for kind in (np.floating, np.integer))


def is_floating(variable: Variable) -> bool:
    return bool(jax.dtypes.issubdtype(variable.aval.dtype, np.floating))


def origins(program: Program, roots: Sequence[Variable]) -> dict[int, tuple[int, list[Equation]]]:
    """By the id of each variable that is a root, moved: which root, and the moves."""
    found: dict[int, tuple[int, list[Equation]]] = {id(v): (n, []) for n, v in enumerate(roots)}
    for equation in program.equations:
        if equation.name in MOVES and id(equation.inputs[0]) in found:
            root, moves = found[id(equation.inputs[0])]
            found[id(equation.outputs[0])] = (root, [*moves, equation])
    return found


def sources_of_axes(equation: Equation) -> list[int | None] | None:
    """By axis of a moved array, the axis that it was; None for an axis of repeats or one entry.

    None in all if axes are merged, split or cut, or if nothing is moved.
    """
    if equation.name not in MOVES:
        return None
    params, source = equation.params, equation.inputs[0].shape
    target = equation.outputs[0].shape
    if equation.name == "broadcast_in_dim":
        came = {d: i for i, d in enumerate(params["broadcast_dimensions"]) if source[i] > 1}
        return [came.get(d) for d in range(len(target))]
    if equation.name == "transpose":
        return list(params["permutation"])
    long = [d for d, n in enumerate(source) if n != 1]
    if [source[d] for d in long] != [n for n in target if n != 1]:
        return None
    places = iter(long)
    return [None if n == 1 else next(places) for n in target]


def moved_index(shape: Sequence[int], moves: Sequence[Equation]) -> np.ndarray:
    """Where in a raveled array of some shape the entries of the moved array come from."""
    index = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    steps = [equation for equation in moves if equation.name != "convert_element_type"]
    with jax.ensure_compile_time_eval():
        return np.asarray(moved(steps, jnp.asarray(index)))


def moved(moves: Sequence[Equation], value: Any) -> Any:
    """A value after some moves."""
    for equation in moves:
        value = equation.primitive.bind(value, **equation.params)
    return value


def calls_host(program: Program) -> bool:
    """Whether any equation, inside loops too, calls back to Python."""
    return any(
        "callback" in equation.name or any(map(calls_host, inner_programs(equation)))
        for equation in program.equations
    )


def inner_programs(equation: Equation) -> list[Program]:
    """The bodies of a loop, the branches of a choice."""
    return [flatten(_closed(j)) for j in core.jaxprs_in_params(equation.params)]


def _closed(jaxpr: Any) -> Any:
    return jaxpr if hasattr(jaxpr, "consts") else core.ClosedJaxpr(jaxpr, [])


def scan_counts(equation: Equation) -> tuple[int, int]:
    """How many operands of a scan are constants, and how many are carried."""
    params = equation.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    # From JAX 0.11 on the operands are grouped by a tree: (constants, carried, stacked).
    consts, carried, _ = params["ft_in"].update(range(len(equation.inputs))).unpack()
    return len(list(consts)), len(list(carried))


def evaluate(
    program: Program,
    arguments: Sequence[Any],
    watch: Sequence[Variable],
    hooks: Mapping[int, Callable[[list[Any], Any], Any]] | None = None,
) -> list[Any]:
    """Runs a program and returns the values of the watched variables (outputs among them).

    Args:
        program: The program.
        arguments: Its inputs.
        watch: What to return.
        hooks: By the id of an equation, what takes its operands and its result and gives the result
            that the rest of the program sees.
    """
    values: dict[int, Any] = dict(zip(map(id, program.inputs), arguments, strict=True))

    def read(variable: Variable) -> Any:
        return variable.constant if variable.constant is not None else values[id(variable)]

    for equation in program.equations:
        operands = [read(variable) for variable in equation.inputs]
        params = equation.primitive.get_bind_params(equation.params)
        results = equation.primitive.bind(*operands, **params)
        if hooks and id(equation) in hooks:
            results = hooks[id(equation)](operands, results)
        if not equation.primitive.multiple_results:
            results = [results]
        values.update(zip(map(id, equation.outputs), results, strict=True))
    return [read(variable) for variable in watch]


def uniform_axes(array: Any) -> list[bool]:
    """For each axis of a constant, whether the constant is uniform along it."""
    array = np.asarray(array)
    return [
        bool(np.all(array == np.take(array, [0], axis=axis))) if array.shape[axis] else False
        for axis in range(array.ndim)
    ]
