"""A model on trial: on randomised parameters, compiled once, in the best precision it allows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from onebasin.symmetry.elements import Element, act_on_leaf
from onebasin.symmetry.errors import SymmetryError
from onebasin.symmetry.examples import doubled
from onebasin.symmetry.group import Symmetry
from onebasin.symmetry.precision import DOUBLE, Precision, rounds_to
from onebasin.symmetry.program import (
    Equation,
    Program,
    Variable,
    calls_host,
    depends_on,
    evaluate,
    inner_programs,
    scan_counts,
    trace,
)

# By the bits of the mantissa: double, single, half, and whatever is less.
TOLERANCES = {52: 1e-9, 23: 1e-4, 10: 0.02, 0: 0.15}
ALIGNMENT = 64


class Trial:
    """The model on randomised parameters, compiled once."""

    def __init__(
        self, symmetry: Symmetry, apply_fn: Callable[..., Any], params: Any, inputs: Any, seed: int
    ):
        # The model as it was before it moved: what moves is not kept twice.
        self.afresh = functools.partial(Trial, symmetry, apply_fn, params, inputs, seed)
        self.symmetry = symmetry
        self.rng = np.random.default_rng(seed)
        leaves, _ = symmetry.flatten(params)
        program, narrowest = _program(apply_fn, params, inputs)
        self.double = narrowest == DOUBLE
        self.tolerance = next(t for bits, t in TOLERANCES.items() if bits <= narrowest.mantissa)
        # Values are products of a few parameters: these keep to a part of what the type can hold.
        self.room = narrowest.log_range / 7
        given = [self._example(x) for x in jax.tree.leaves(inputs)]
        # Run once or twice: time spent on optimising code would not come back.
        generators = [_implementation(x) for x in (*leaves, *jax.tree.leaves(inputs))]

        def run(*arguments: Any) -> list[Any]:
            whole = [
                x if impl is None else jax.random.wrap_key_data(x, impl=impl)
                for x, impl in zip(arguments, generators, strict=True)
            ]
            return evaluate(program, whole, program.outputs)

        self._run = jax.jit(
            run,
            compiler_options={
                "xla_backend_optimization_level": 0,
                "xla_llvm_disable_expensive_passes": True,
            },
        )
        effects = calls_host(program)
        pool = self.rng.standard_normal(1_000_003)
        filled = [self._filled(x) for x in given]
        # Zeros, as models are often initialised with, hide whatever meets them first.
        ways = (
            [given] if all(a is b for a, b in zip(filled, given, strict=True)) else [filled, given]
        )
        for self.inputs, noise in itertools.product(ways, (0.3, 0.03, 0.0)):
            self.leaves = [_settled(self._randomise(leaf, noise, pool)) for leaf in leaves]
            self.reference = self.outputs(self.leaves)
            if all(np.all(np.isfinite(x)) for x in self.reference):
                break
        else:
            raise SymmetryError(
                "the model's output holds NaN or infinity at the check, so nothing can be proved; "
                "pass parameters and inputs on which it is finite"
            )
        if symmetry.factors and not any(x.size for x in self.reference):
            raise SymmetryError(
                "the check has no power: the model's outputs are empty, so nothing can be proved; "
                "pass at least one example"
            )
        if not effects:
            return
        again = self.outputs(self.leaves)
        if not all(np.array_equal(a, b) for a, b in zip(self.reference, again, strict=True)):
            raise SymmetryError(
                "the model gives different outputs on the same parameters and inputs: it draws "
                "random numbers inside; fix its random key (or switch dropout off) and try again"
            )

    def _precision(self, dtype: Any) -> Any:
        return _widest(dtype) if self.double else dtype

    def _example(self, x: Any) -> Any:
        dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
        if not isinstance(x, jax.ShapeDtypeStruct):
            if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
                return _plain(x)
            return np.asarray(x, self._precision(dtype))
        if jax.dtypes.issubdtype(dtype, np.floating):
            return self.rng.standard_normal(x.shape).astype(self._precision(dtype))
        return self.rng.integers(0, 2, x.shape).astype(dtype)

    def _filled(self, x: Any) -> Any:
        """Random numbers where an input is zero everywhere."""
        array = np.asarray(x)
        float_type = jax.dtypes.issubdtype(array.dtype, np.floating)
        if not float_type or array.ndim < 2 or not array.size or array.any():
            return x
        return self.rng.standard_normal(array.shape).astype(array.dtype)

    def _randomise(self, leaf: Any, noise: float, pool: np.ndarray) -> Any:
        """Keeps the scale and the sign of leaves that are positive (variances), moves all else."""
        if not jax.dtypes.issubdtype(leaf.dtype, np.inexact):
            return np.zeros(leaf.shape, leaf.dtype) if _is_shape(leaf) else _plain(leaf)
        size = int(np.prod(leaf.shape))
        start = int(self.rng.integers(len(pool) // 2))
        normal = _repeated(pool[start:], size).reshape(leaf.shape)
        dtype = self._precision(leaf.dtype)
        if _is_shape(leaf):
            fan = int(np.prod(leaf.shape[:-1]))
            normal *= 0.3 if len(leaf.shape) < 2 else 1 / np.sqrt(max(fan, 1))
            value = np.exp(normal) if len(leaf.shape) < 2 else normal
            return value.astype(dtype, copy=False)
        value = np.asarray(leaf)
        if not value.size:
            return value.astype(dtype)
        low, high = value.min(), value.max()
        if low == high == 0:
            value = noise * normal
        elif low >= 0 or high <= 0:
            value = value * np.exp(noise * normal)
        else:
            scale = float(np.abs(value.ravel()[:: value.size // 1000 + 1]).mean())
            value = value + (0.3 * noise * scale) * normal
        return value.astype(dtype, copy=False)

    def outputs(self, leaves: Sequence[Any]) -> list[np.ndarray]:
        with jax.enable_x64(self.double or jax.config.read("jax_enable_x64")):
            return [np.asarray(x) for x in self._run(*leaves, *self.inputs)]

    def look_at_one(self) -> None:
        """Twice the second example instead of two, expecting of both what it gave beside the first.

        Whatever lets examples mix, or treats them differently, shows as a change.
        """
        self.inputs, self.reference = doubled(self.inputs), doubled(self.reference)

    def walk(self, element: Element) -> float:
        """Moves the parameters in place: a second copy of them would cost more than the run."""
        for array, leaf in zip(self.leaves, self.symmetry.leaves, strict=True):
            moved = act_on_leaf(self.symmetry, element, array, leaf.blocks, np)
            if moved is not array:
                array[...] = moved
        return self.difference(self.leaves)

    def change(self, element: Element) -> float:
        return self.difference(self.symmetry.act_on_leaves(element, self.leaves, np))

    def difference(self, leaves: Sequence[Any]) -> float:
        """Largest change relative to the largest entry, over all outputs; NaN is infinite."""
        largest = 0.0
        for a, b in zip(self.reference, self.outputs(leaves), strict=True):
            if not a.size:
                continue
            if not np.all(np.isfinite(b)):
                return float("inf")
            # NumPy alone does not take bfloat16 for a number.
            if not jax.dtypes.issubdtype(a.dtype, np.inexact):
                largest = max(largest, float(np.any(a != b)))
                continue
            scale = float(np.max(np.abs(a))) or 1.0
            largest = max(largest, float(np.max(np.abs(a - b))) / scale)
        return largest


def _repeated(values: np.ndarray, size: int) -> np.ndarray:
    """The values over and over, each written once: these arrays are as large as the model."""
    whole = np.empty(size, values.dtype)
    for start in range(0, size, len(values)):
        part = whole[start : start + len(values)]
        part[:] = values[: len(part)]
    return whole


def _settled(value: Any) -> Any:
    """The values at an address that the compiled model reads where they are, instead of copying."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    value = np.asarray(value)
    room = np.empty(value.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    settled = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    settled[...] = value
    return settled


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _plain(leaf: Any) -> Any:
    """Random keys as their bits: the same key may then be used again."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return leaf


def _implementation(leaf: Any) -> Any:
    """Which generator a random key belongs to; None for all other leaves."""
    dtype = getattr(leaf, "dtype", None)
    is_key = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    return jax.random.key_impl(leaf) if is_key and not _is_shape(leaf) else None


def _program(apply_fn: Callable[..., Any], params: Any, inputs: Any) -> tuple[Program, Precision]:
    """The model as it runs on doubles, or as it is, and the least precision it computes in."""

    def as_double(x: Any) -> Any:
        dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
        return jax.ShapeDtypeStruct(np.shape(x), _widest(dtype))

    count = len(jax.tree.leaves(params))
    try:
        with jax.enable_x64(True):
            program = trace(
                apply_fn, jax.tree.map(as_double, params), jax.tree.map(as_double, inputs)
            )
            if _narrowest(program, program.inputs[:count]) == DOUBLE:
                return program, DOUBLE
    except Exception:
        pass
    program = trace(apply_fn, params, inputs)
    return program, _narrowest(program, program.inputs[:count])


def _widest(dtype: Any) -> Any:
    """The most precise type of a kind."""
    if jax.dtypes.issubdtype(dtype, np.complexfloating):
        return np.complex128
    return np.float64 if jax.dtypes.issubdtype(dtype, np.floating) else dtype


def _narrowest(program: Program, roots: Sequence[Variable]) -> Precision:
    """The least precision of all values that some go into, in loops too."""
    reached = depends_on(program, roots)
    found = DOUBLE
    for equation in program.equations:
        if not any(id(v) in reached for v in equation.inputs):
            continue
        inside = inner_programs(equation)
        for inner in inside:
            found = found.least(_narrowest(inner, _entered(equation, inner, reached)))
        for number in range(0 if inside else len(equation.outputs)):
            found = found.least(rounds_to(equation, number) or DOUBLE)
    return found


def _entered(equation: Equation, inner: Program, reached: set[int]) -> list[Variable]:
    """The inputs of a loop's body that values go into; all, where it is not known which."""
    if equation.name != "scan":
        return inner.inputs
    consts, carried = scan_counts(equation)
    found = [v for own, v in zip(equation.inputs, inner.inputs, strict=True) if id(own) in reached]
    state = list(zip(inner.inputs[consts : consts + carried], inner.outputs, strict=False))
    for _ in state:
        inside = depends_on(inner, found)
        found += [v for v, after in state if id(after) in inside and id(v) not in inside]
    return found
