"""Choices that only keep numbers out of trouble: what is never used is taken away.

`where(n == 0, 0, x / where(n == 0, 1, n))` divides by n wherever it divides at all: the one that
stands for n is never used. In `where(isnan(h), h, f(h))` the first case is no number. Read as they
stand, such cases say that n and h may not be rescaled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping

import numpy as np

from onebasin.symmetry.program import Equation, Variable, broadcast, new_equation
from onebasin.symmetry.rules_elementwise import RULES as ELEMENTWISE

Makers = Mapping[int, Equation]
"""By the id of a variable, the equation that made it."""

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "is_finite")
_STRICT = frozenset(
    (
        *("add", "add_any", "sub", "mul", "neg", "abs", "exp", "log", "sqrt", "tanh", "copy"),
        "stop_gradient",
    )
)
MAX_CONE = 32
"""How far back a guard is looked for."""


def no_number(
    equation: Equation, makers: Makers, known: Mapping[int, float]
) -> list[Equation] | None:
    """A case that is chosen where x is no number, and then is none itself."""
    if len(equation.inputs) != 3:
        return None
    which, other, case = equation.inputs
    test = makers.get(id(which))
    if test is None or test.name != "ne" or test.inputs[0] is not test.inputs[1]:
        return None
    if id(case) in known or not _is_strict(case, test.inputs[0], makers):
        return None
    number = Variable(case.aval.update(shape=()), np.asarray(np.nan, case.aval.dtype))
    spread = Variable(case.aval)
    chosen = dataclasses.replace(equation, inputs=[which, other, spread])
    return [broadcast(number, (), spread), chosen]


def _is_strict(value: Variable, source: Variable, makers: Makers) -> bool:
    """Whether a value is no number where another is none."""
    for _ in range(MAX_CONE):
        if value is source:
            return True
        maker = makers.get(id(value))
        if maker is None or maker.name not in _STRICT:
            return False
        # Of two operands the first is followed: that is how choices of this kind are written.
        value = maker.inputs[0]
    return False


def unused_cases(
    equation: Equation, makers: Makers, known: Mapping[int, float]
) -> list[Equation] | None:
    """A choice of cases, in which the same choice is made again."""
    if len(equation.inputs) != 3:
        return None
    which, *cases = equation.inputs
    made: list[Equation] = []
    taken: list[Variable] = []
    for place, case in enumerate(cases):
        walk = _Walk(makers, known, place)
        taken.append(walk.bare(case, *_test(which, makers, known)) or case)
        made += walk.made
    if not made and all(a is b for a, b in zip(taken, cases, strict=True)):
        return None
    return [*made, new_equation(equation.primitive, [which, *taken], equation.outputs[0])]


Layers = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""How something was broadcast, the last time first: along which axes, to which shape."""


class _Walk:
    """What remains of a value where the case of a given place is chosen.

    Args:
        makers: What made each value.
        known: Values that are known numbers.
        place: 0 where the test fails, 1 where it holds.
    """

    def __init__(self, makers: Makers, known: Mapping[int, float], place: int):
        self.makers, self.known, self.place = makers, known, place
        self.made: list[Equation] = []
        self._seen: dict[tuple[int, int], Variable | None] = {}

    def bare(
        self, value: Variable, layers: Layers, test: Hashable, opposite: bool
    ) -> Variable | None:
        """The value without guards; None if it has none."""
        key = id(value), len(layers)
        if key not in self._seen and len(self._seen) < MAX_CONE:
            self._seen[key] = self._bare(value, layers, test, opposite)
        return self._seen.get(key)

    def _bare(
        self, value: Variable, layers: Layers, test: Hashable, opposite: bool
    ) -> Variable | None:
        maker = self.makers.get(id(value))
        if maker is None or len(maker.outputs) != 1:
            return None
        if maker.name == "broadcast_in_dim":
            if not layers or _layer(maker) != layers[0]:
                return None
            return self._again(maker, [self.bare(maker.inputs[0], layers[1:], test, opposite)])
        if maker.name == "select_n" and len(maker.inputs) == 3:
            own_layers, own, own_opposite = _test(maker.inputs[0], self.makers, self.known)
            if (own_layers, own) == (layers, test):
                case = maker.inputs[1 + (self.place ^ (own_opposite != opposite))]
                return self.bare(case, layers, test, opposite) or case
        if maker.name not in ELEMENTWISE:
            return None
        # An operand with axes of one is broadcast without a word.
        spread = tuple(range(len(value.shape))), tuple(value.shape)
        below = layers[1:] if layers and layers[0] == spread else None
        inputs: list[Variable | None] = []
        for operand in maker.inputs:
            own = layers if operand.shape == value.shape else below
            fits = own is not None and len(operand.shape) == len(value.shape)
            inputs.append(self.bare(operand, own, test, opposite) if fits else None)  # type: ignore[arg-type]
        return self._again(maker, inputs)

    def _again(self, maker: Equation, inputs: list[Variable | None]) -> Variable | None:
        if all(v is None for v in inputs):
            return None
        own = [a or b for a, b in zip(inputs, maker.inputs, strict=True)]
        result = Variable(maker.outputs[0].aval)
        self.made.append(dataclasses.replace(maker, inputs=own, outputs=[result]))
        return result


def _layer(maker: Equation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    dims = tuple(int(d) for d in maker.params["broadcast_dimensions"])
    return dims, tuple(maker.outputs[0].shape)


def _test(
    which: Variable, makers: Makers, known: Mapping[int, float]
) -> tuple[Layers, Hashable, bool]:
    """What a truth value says, in words that are the same for all who say it; and if it denies."""
    layers: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    opposite = False
    while True:
        maker = makers.get(id(which))
        if maker is None:
            return tuple(layers), id(which), opposite
        if maker.name == "broadcast_in_dim":
            layers.append(_layer(maker))
        elif maker.name == "not":
            opposite = not opposite
        elif maker.name in _COMPARISONS:
            operands = [known.get(id(v), id(v)) for v in maker.inputs]
            kinds = [id(v) in known for v in maker.inputs]
            if maker.name == "ne":
                return tuple(layers), ("eq", *operands, *kinds), not opposite
            return tuple(layers), (maker.name, *operands, *kinds), opposite
        else:
            return tuple(layers), id(which), opposite
        which = maker.inputs[0]
