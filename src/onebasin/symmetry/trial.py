"""A model on trial: on parameters chosen for it, compiled once, in the best precision it allows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry.conditioning import SUMMAND, run_tuned, summands
from onebasin.symmetry.drawing import Drawing, generator_of, settled
from onebasin.symmetry.elements import Element, act_on_leaf
from onebasin.symmetry.errors import SymmetryError
from onebasin.symmetry.examples import doubled
from onebasin.symmetry.finest import in_finest
from onebasin.symmetry.group import Factor, Symmetry
from onebasin.symmetry.precision import DOUBLE
from onebasin.symmetry.probes import only
from onebasin.symmetry.program import (
    calls_host,
    evaluate,
)

# By the bits of the mantissa: double, single, half, and whatever is less.
TOLERANCES = {52: 1e-9, 23: 1e-4, 10: 0.02, 0: 0.15}
# Rounding must stay this far below what is taken for a change.
MARGIN = 10
NOISES = (0.3, 0.03, 0.0)
# Run a few times: time spent on optimising code would not come back.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Unfit(SymmetryError):
    """Parameters at which nothing can be proved."""


class Way(NamedTuple):
    """How the parameters of a trial are chosen.

    Attributes:
        size: Of signals in the model; 0: whatever it comes to.
        fresh: Whether nothing is kept of the parameters that were given but their size.
        centred: Whether signals are spread around the mean of each unit.
    """

    size: float = 1.0
    fresh: bool = True
    centred: bool = False


# The first is near what was given. Others are for what it does not see: units that are dead by
# chance, activations without a zero, saturated outputs, depth at which rounding errors grow.
WAYS = (
    Way(fresh=False),
    Way(),
    Way(centred=True),
    Way(0.3),
    Way(4.0),
    Way(0.03),
    Way(0.0, fresh=False),
)


class Trial:
    """The model at parameters that are chosen in one way or another, compiled once."""

    def __init__(
        self, symmetry: Symmetry, apply_fn: Callable[..., Any], params: Any, inputs: Any, seed: int
    ):
        self.symmetry, self.seed = symmetry, seed
        self._given, _ = symmetry.flatten(params)
        self._examples = jax.tree.leaves(inputs)
        self.program, narrowest = in_finest(apply_fn, params, inputs)
        self.double = narrowest == DOUBLE
        self.tolerance = next(t for bits, t in TOLERANCES.items() if bits <= narrowest.mantissa)
        # Values are products of a few parameters: these keep to a part of what the type can hold.
        self.room = narrowest.log_range / 7
        self.rounding = 2.0**-narrowest.mantissa
        self._summands = summands(self.program, len(self._given))
        self._run = functools.cache(self._compiled)
        self.settle(WAYS[0])
        if symmetry.factors and not any(x.size for x in self.reference):
            raise SymmetryError(
                "the check has no power: the model's outputs are empty, so nothing can be proved; "
                "pass at least one example"
            )
        if calls_host(self.program):
            self._expect_the_same()

    def _compiled(self, centred: bool) -> Any:
        generators = [generator_of(x) for x in (*self._given, *self._examples)]

        def run(size: Any, *arguments: Any) -> Any:
            whole = [
                x if impl is None else jax.random.wrap_key_data(x, impl=impl)
                for x, impl in zip(arguments, generators, strict=True)
            ]
            return tuple(run_tuned(self.program, whole, len(self._given), size, centred=centred))

        return jax.jit(run, compiler_options=QUICK)

    def settle(self, way: Way) -> None:
        """Chooses parameters, and what the outputs are to be compared with.

        Raises:
            Unfit: If the outputs are not finite whatever is done.
        """
        self.way = way
        self.rng = np.random.default_rng([self.seed, WAYS.index(way)])
        draw = Drawing(self.rng, self.double)
        given = [draw.example(x) for x in self._examples]
        filled = [draw.filled(x) for x in given]
        # Zeros, as models are often initialised with, hide whatever meets them first.
        same = all(a is b for a, b in zip(filled, given, strict=True))
        for self.inputs, noise in itertools.product([given] if same else [filled, given], NOISES):
            self.leaves = [settled(draw.parameter(x, noise, way.fresh)) for x in self._given]
            if way.size and self._tuned(way):
                return
            self.reference = self.outputs(self.leaves)
            if _finite(self.reference):
                return
        raise Unfit(
            "the model's output holds NaN or infinity at the check, so nothing can be proved; "
            "pass parameters and inputs on which it is finite"
        )

    def _tuned(self, way: Way) -> bool:
        """Rescales the parameters until all of them show; not where that is out of range."""
        sums = {n: self.leaves[n].copy() for n in self._summands}
        for n, value in sums.items():
            self.leaves[n] *= _quotient(SUMMAND * way.size, _root_mean_square(value), value.dtype)
        _, scales, shifts = self._call(self.leaves, way)
        changes = [(n, np.asarray(s).astype(self.leaves[n].dtype)) for n, s in scales.items()]
        for n, scale in changes:
            self.leaves[n] *= scale
        for n, shift in shifts.items():
            self.leaves[n] += np.asarray(shift).astype(self.leaves[n].dtype)
        self.reference = self.outputs(self.leaves)
        if _finite(self.reference):
            return True
        for n, scale in changes:
            self.leaves[n] /= scale
        for n, value in sums.items():
            self.leaves[n][...] = value
        return False

    def _call(self, leaves: Sequence[Any], way: Way) -> Any:
        with jax.enable_x64(self.double or jax.config.read("jax_enable_x64")):
            size = np.asarray(way.size, np.float64 if self.double else np.float32)
            return self._run(way.centred)(size, *leaves, *self.inputs)

    def outputs(self, leaves: Sequence[Any]) -> list[np.ndarray]:
        return [np.asarray(x) for x in self._call(leaves, Way(0.0, centred=self.way.centred))[0]]

    def _expect_the_same(self) -> None:
        again = self.outputs(self.leaves)
        if not all(np.array_equal(a, b) for a, b in zip(self.reference, again, strict=True)):
            raise SymmetryError(
                "the model gives different outputs on the same parameters and inputs: it draws "
                "random numbers inside; fix its random key (or switch dropout off) and try again"
            )

    @functools.cached_property
    def _weighed(self) -> Any:
        """The slopes of a random sum of the outputs, along some of the parameters."""

        def total(chosen: dict[int, Any], others: list[Any], weights: list[Any]) -> Any:
            arguments = [chosen.get(n, x) for n, x in enumerate(others)]
            outputs = evaluate(self.program, arguments, self.program.outputs)
            return sum(
                (jnp.sum(w * jnp.real(y)) for w, y in zip(weights, outputs, strict=True) if w.size),
                start=jnp.zeros(()),
            )

        return jax.jit(jax.grad(total), compiler_options=QUICK)

    def slopes(self, numbers: Sequence[int]) -> dict[int, np.ndarray] | None:
        """How a random sum of the outputs, each of unit size, depends on some parameters.

        None where the model cannot be differentiated.
        """
        weights = [
            self.rng.standard_normal(x.shape) / (np.sqrt(x.size) * _largest(x))
            if jax.dtypes.issubdtype(x.dtype, np.inexact) and x.size
            else np.zeros(0)
            for x in self.reference
        ]
        arguments = [*self.leaves, *self.inputs]
        try:
            with jax.enable_x64(self.double or jax.config.read("jax_enable_x64")):
                found = self._weighed({n: self.leaves[n] for n in numbers}, arguments, weights)
        except Exception:
            return None
        return {n: np.asarray(x) for n, x in found.items()}

    def expect_steady(self) -> None:
        """Refuses parameters whose last bits change the outputs about as much as is allowed.

        Raises:
            Unfit: If they do.
        """
        change = self.unsteadiness()
        if MARGIN * change > self.tolerance:
            raise Unfit(
                f"not proved: the last bits of the parameters change the outputs by {change:.1g}, "
                "so rounding cannot be told from a wrong group; pass parameters at which the "
                "model is steadier"
            )

    def unsteadiness(self) -> float:
        """How much the outputs change with the last bits of the parameters."""
        if self.tolerance > TOLERANCES[23]:
            return 0.0
        leaves = [
            x * (1 + self.rounding * self.rng.choice([-1.0, 1.0], x.shape)).astype(x.dtype)
            if _is_inexact(x)
            else x
            for x in self.leaves
        ]
        return self.difference(leaves)

    def look_at_one(self) -> None:
        """Twice the second example instead of two, expecting of both what it gave beside the first.

        Whatever lets examples mix, or treats them differently, shows as a change.
        """
        self.inputs, self.reference = doubled(self.inputs), doubled(self.reference)

    def stay(self) -> None:
        """Compares with the outputs as they are, without what moving has rounded off so far."""
        self.reference = self.outputs(self.leaves)

    def walk(self, element: Element) -> float:
        """Moves the parameters in place: a second copy of them would cost more than the run."""
        for array, leaf in zip(self.leaves, self.symmetry.leaves, strict=True):
            moved = act_on_leaf(self.symmetry, element, array, leaf.blocks, np)
            if moved is not array:
                array[...] = moved
        return self.difference(self.leaves)

    def moved(self, element: Element, factor: Factor, but: int | None = None) -> list[Any]:
        """The parameters after one factor's part of an element, which may leave out one of them."""
        leaves, part = list(self.leaves), only(element, factor)
        for number in self._touched.get(factor.name, ()):
            if number != but:
                blocks = self.symmetry.leaves[number].blocks
                leaves[number] = act_on_leaf(self.symmetry, part, leaves[number], blocks, np)
        return leaves

    @functools.cached_property
    def _touched(self) -> dict[str, list[int]]:
        """By the name of a factor, the parameters that it moves."""
        found: dict[str, dict[int, None]] = {}
        for number, leaf in enumerate(self.symmetry.leaves):
            for block in leaf.blocks:
                weightings = (w.factor for w in (*block.scalings, *block.signs))
                for name in (*block.sides, *weightings):
                    found.setdefault(name, {})[number] = None
        return {name: list(numbers) for name, numbers in found.items()}

    def difference(self, leaves: Sequence[Any]) -> float:
        """Largest change relative to the largest entry, over all outputs; NaN is infinite."""
        largest = 0.0
        for a, b in zip(self.reference, self.outputs(leaves), strict=True):
            if not a.size:
                continue
            if not np.all(np.isfinite(b)):
                return float("inf")
            # NumPy alone does not take bfloat16 for a number.
            if not _is_inexact(a):
                largest = max(largest, float(np.any(a != b)))
                continue
            largest = max(largest, float(np.max(np.abs(a - b))) / _largest(a))
        return largest


def _is_inexact(array: Any) -> bool:
    return bool(jax.dtypes.issubdtype(array.dtype, np.inexact))


def _root_mean_square(array: np.ndarray) -> float:
    wide = array.astype(np.float64)
    return float(np.sqrt(np.mean(np.square(wide)))) if array.size else 0.0


def _quotient(a: float, b: float, dtype: Any) -> Any:
    return np.asarray(a / b if b else 1.0).astype(dtype)


def _finite(arrays: Sequence[np.ndarray]) -> bool:
    return all(np.all(np.isfinite(x)) for x in arrays)


def _largest(array: np.ndarray) -> float:
    return float(np.max(np.abs(array))) or 1.0
