"""Parameters under which every layer carries signal.

What a network computes at random parameters may hardly depend on most of them: signals vanish layer
by layer, or saturate. A group is proved at all parameters or at none, so the proof may choose them.
The program is run once; where a matrix or a kernel first meets a signal, it is rescaled so that
their product is of unit size. What is added to such a product, a bias, is made a part of that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from onebasin.symmetry.program import (
    MOVES,
    Equation,
    Program,
    Variable,
    depends_on,
    flatten,
    is_floating,
    moved,
    origins,
    scan_counts,
)

# Biases that are spread, and yet do not drown what depends on the layers before.
SUMMAND = 0.3

_PRODUCTS = frozenset(("dot_general", "conv_general_dilated"))
_SUMS = frozenset(("add", "add_any", "sub"))
# What gives a signal from a parameter and positions in it.
_PICKS = frozenset(("gather", "dynamic_slice"))
# What passes a factor of its first operand on; of any operand.
_LINEAR = frozenset((*MOVES, *_PICKS, "neg", "reduce_sum", "rev", "slice", "split", "unstack"))
_BILINEAR = _PRODUCTS | {"mul"}
LEAST = 1e-24


class Tuned(NamedTuple):
    """What a run gave, and by what its parameters are to be multiplied and then moved."""

    outputs: list[Any]
    scales: dict[int, Any]
    shifts: dict[int, Any]


def run_tuned(
    program: Program, arguments: Sequence[Any], count: int, size: Any, *, centred: bool = False
) -> Tuned:
    """Runs a program at parameters that are rescaled on the way.

    Args:
        program: The program.
        arguments: Its inputs.
        count: How many of them, from the first on, are parameters.
        size: Root mean square that products of parameters and signals are given; 0: change nothing.
        centred: Whether that is counted around the mean of each unit over all examples, and biases
            are moved against that mean. Activations that are positive everywhere need it.
    """
    own = [n for n, v in enumerate(program.inputs[:count]) if is_floating(v)]
    walk = _Walk(program, arguments, own, program.inputs[count:], size, dict.fromkeys(own, True))
    walk.centred = centred
    walk.run()
    outputs = [walk.read(v) for v in program.outputs]
    return Tuned(outputs, walk.scales, walk.shifts)


def summands(program: Program, count: int) -> list[int]:
    """Which of the first inputs are added to what products with parameters give: biases, means."""
    found: dict[int, None] = {}
    places = origins(program, program.inputs[:count])
    live = depends_on(program, program.inputs[count:])
    sized: set[int] = set()
    for equation in program.equations:
        name, operands = equation.name, equation.inputs
        has_signal = [id(v) in live for v in operands]
        if name in _SUMS and sum(has_signal) == 1:
            own, signal = sorted(operands, key=lambda v: id(v) in live)
            fits = id(signal) in sized
            found |= {places[id(own)][0]: None} if fits and id(own) in places else {}
        else:
            fits = (name in MOVES and id(operands[0]) in sized) or (
                name in _PRODUCTS and sum(has_signal) == 1
            )
        if fits:
            sized.add(id(equation.outputs[0]))
    return list(found)


class _Walk:
    """One run; `source` has the parameter that a value without signal is proportional to."""

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Any],
        own: Collection[int],
        signals: Sequence[Variable],
        size: Any,
        enabled: Mapping[int, Any],
    ):
        self.program, self.size, self.enabled, self.centred = program, size, enabled, False
        self.is_on = size > 0
        self.values = dict(zip(map(id, program.inputs), arguments, strict=True))
        self.live = depends_on(program, signals)
        self.source = {id(program.inputs[n]): n for n in own}
        self.origins = origins(program, program.inputs)
        self.scales: dict[int, Any] = {}
        self.shifts: dict[int, Any] = {}

    def read(self, variable: Variable) -> Any:
        return variable.constant if variable.constant is not None else self.values[id(variable)]

    def run(self) -> None:
        for equation in self.program.equations:
            results = self._results(equation)
            self.values.update(zip(map(id, equation.outputs), results, strict=True))

    def _results(self, equation: Equation) -> list[Any]:
        met = self._met(equation)
        if met and equation.name == "scan":
            return self._loop(equation, met)
        if met and equation.name in _SUMS:
            self._centre(equation, met[0])
        results = _bind(equation, [self.read(v) for v in equation.inputs])
        if not met:
            self._pass_on(equation)
        elif equation.name not in _SUMS:
            scale = self._factor(met[0], equation, results[0])
            return [results[0] * scale.astype(results[0].dtype)]
        return results

    def _met(self, equation: Equation) -> list[int]:
        """Which operands are parameters that meet their first signal here."""
        if not any(id(v) in self.live for v in equation.inputs):
            return []
        places = [n for n, v in enumerate(equation.inputs) if self._untouched(v)]
        if equation.name in _PICKS:
            return places[:1] if 0 in places else []
        if equation.name == "scan":
            return places
        known = equation.name in _PRODUCTS or (self.centred and equation.name in _SUMS)
        return places[:1] if known and is_floating(equation.outputs[0]) else []

    def _untouched(self, variable: Variable) -> bool:
        number = self.source.get(id(variable))
        return number is not None and number not in self.scales

    def _pass_on(self, equation: Equation) -> None:
        """What is proportional to a parameter, stays so, without signals."""
        if any(id(v) in self.live for v in equation.inputs):
            return
        linear, product = equation.name in _LINEAR, equation.name in _BILINEAR
        operands = equation.inputs[:1] if linear else equation.inputs if product else []
        number = next((self.source[id(v)] for v in operands if id(v) in self.source), None)
        if number is not None:
            self.source.update((id(v), number) for v in equation.outputs if is_floating(v))

    def _factor(self, place: int, equation: Equation, result: Any) -> Any:
        """By what a parameter is multiplied, so that its product with a signal has unit size."""
        number = self.source[id(equation.inputs[place])]
        across = _examples(equation, place) if self.centred else ()
        power = _power(result)
        if across:
            spread = _power(result - result.mean(across, keepdims=True))
            power = jnp.where(spread > 1e-6 * power, spread, power)
        is_on = self.is_on & (power > LEAST) & self.enabled[number]
        scale = jnp.where(is_on, self.size * lax.rsqrt(power), 1)
        self._multiply(number, scale)
        return scale

    def _centre(self, equation: Equation, place: int) -> None:
        """Moves a summand against the mean of the signal that it meets."""
        own, signal = equation.inputs[place], self.read(equation.inputs[1 - place])
        if id(own) not in self.origins:
            return
        number, moves = self.origins[id(own)]
        start = self.values[id(self.program.inputs[number])]
        shape = equation.outputs[0].shape
        _, back = jax.vjp(lambda x: jnp.broadcast_to(moved(moves, x), shape), start)
        target = jnp.broadcast_to(signal, shape).astype(self.read(own).dtype)
        (total,), (times,) = back(target), back(jnp.ones_like(target))
        mean = total / jnp.maximum(times, 1)
        keeps_sign = jnp.all(start >= 0) | jnp.all(start <= 0)
        sign = 1 if equation.name == "sub" else -1
        shift = jnp.where(self.is_on & ~keeps_sign, sign * mean, 0)
        self.scales[number], self.shifts[number] = jnp.ones((), self.size.dtype), shift
        self.values[id(own)] = moved(moves, start + shift)

    def _multiply(self, number: int, scale: Any) -> None:
        self.scales[number] = scale
        for key, found in self.source.items():
            if found == number and key in self.values:
                value = self.values[key]
                self.values[key] = value * jnp.asarray(scale).astype(value.dtype)

    def _loop(self, equation: Equation, met: Sequence[int]) -> list[Any]:
        """A loop: what stays is tuned at its first step, what is stacked at each."""
        params, (consts, carried) = equation.params, scan_counts(equation)
        operands = [self.read(v) for v in equation.inputs]
        state = slice(consts, consts + carried)
        body = flatten(params["jaxpr"])
        tuned: set[int] = set()
        held = [n for n in met if n < consts]
        stacked = [n for n in met if n >= consts + carried]
        signals = [
            inner
            for n, (v, inner) in enumerate(zip(equation.inputs, body.inputs, strict=True))
            if id(v) in self.live or consts <= n < consts + carried
        ]

        def step(before: Any, row: Any) -> Any:
            first, scales, values = before
            start = [
                x * scales[n].astype(x.dtype) if n in held else x
                for n, x in enumerate(operands[:consts])
            ]
            enabled = dict.fromkeys(held, first) | dict.fromkeys(stacked, True)
            walk = _Walk(body, [*start, *values, *row], enabled, signals, self.size, enabled)
            walk.run()
            tuned.update(walk.scales)
            results = [walk.read(v) for v in body.outputs]
            found = {n: jnp.asarray(walk.scales.get(n, 1), self.size.dtype) for n in enabled}
            kept = {n: scales[n] * found[n] for n in held}
            after = (jnp.zeros_like(first), kept, results[:carried])
            return after, (results[carried:], {n: found[n] for n in stacked})

        one = jnp.ones((), self.size.dtype)
        start = (jnp.ones((), bool), dict.fromkeys(held, one), operands[state])
        (_, kept, last), (rows, found) = lax.scan(
            step,
            start,
            operands[consts + carried :],
            length=params["length"],
            reverse=params["reverse"],
        )
        for n in sorted(tuned):
            self._after_loop(equation.inputs[n], (kept | found)[n])
        return [*last, *rows]

    def _after_loop(self, variable: Variable, scale: Any) -> None:
        number = self.source[id(variable)]
        if number in self.scales:
            return
        if scale.ndim and variable is not self.program.inputs[number]:
            scale = jnp.exp(jnp.log(scale).mean())
        if scale.ndim:
            scale = scale.reshape(-1, *(1,) * (len(variable.shape) - 1))
        self._multiply(number, jnp.where(self.is_on & self.enabled[number], scale, 1))


def _bind(equation: Equation, operands: list[Any]) -> list[Any]:
    params = equation.primitive.get_bind_params(equation.params)
    results = equation.primitive.bind(*operands, **params)
    return results if equation.primitive.multiple_results else [results]


def _power(values: Any) -> Any:
    """Mean square, in single precision at least."""
    wide = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    return jnp.mean(jnp.square(wide))


def _examples(equation: Equation, place: int) -> tuple[int, ...]:
    """The axes of a product along which all units are multiplied by the same parameters."""
    if equation.name == "conv_general_dilated":
        batch, _, *spatial = equation.params["dimension_numbers"].out_spec
        return (batch, *spatial) if place == 1 else ()
    if equation.name != "dot_general":
        return ()
    sums, batches = equation.params["dimension_numbers"]
    free = [
        len(v.shape) - len(sums[n]) - len(batches[n]) for n, v in enumerate(equation.inputs[:2])
    ]
    start = len(batches[0]) + (free[0] if place == 0 else 0)
    return tuple(range(start, start + free[1 - place]))
