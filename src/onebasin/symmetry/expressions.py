"""Expressions in one leaf, in one form each: what becomes of them when the leaf flips is looked up.

Signs are pulled out of products and of odd functions, and dropped in even ones; sums and maxima do
not mind the order of their operands; a minimum is a maximum of negatives, and rounding up is
rounding down of the negative. What is larger than zero is what is not smaller, but for zero itself,
which has to be looked at apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

from onebasin.symmetry.rules_elementwise import EVEN, ODD

Signed = tuple[int, int]
"""An expression by its number, and its sign; of a truth value, 1 as it is and -1 its opposite."""

Details = tuple[str, int | None]
"""What, besides its name, says which function a primitive is: its parameters; whether it is odd."""

_PLAIN = frozenset(("copy", "copy_p", "stop_gradient"))
_NONE: Details = ("", None)
_ODD = ODD | {"sign", "cbrt"}
_EITHER = frozenset(("integer_pow", "convert_element_type"))
_PRODUCTS = frozenset(("mul", "div"))
_ANY_ORDER = frozenset(("and", "or", "xor"))
_COMPARED: dict[str, tuple[bool, int]] = {
    # Whether the operands change places, and whether the opposite is meant.
    "lt": (False, 1),
    "gt": (True, 1),
    "ge": (False, -1),
    "le": (True, -1),
}


class Expressions:
    """Expressions in one form each, by number: two that are the same have the same number."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.keys: list[tuple[Any, ...]] = []
        self.roots: list[int | None] = []
        self._flipped: dict[int, Signed] = {}

    def _new(self, key: tuple[Any, ...], root: int | None) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.keys)
            self.keys.append(key)
            self.roots.append(root)
        return self.numbers[key]

    def number(self, value: float) -> Signed:
        sign = -1 if value < 0 else 1
        return self._new(("number", repr(abs(value))), None), sign

    def leaf(self, name: int, constant: bool) -> Signed:
        number = self._new(("leaf", name), None)
        if not constant:
            self.roots[number] = number
        return number, 1

    def parity(self, number: int) -> int | None:
        """0 of an even expression, 1 of an odd one."""
        flipped, sign = self.flipped(number)
        return None if flipped != number else (0 if sign == 1 else 1)

    def flipped(self, number: int) -> Signed:
        """The expression with the opposite of its only leaf."""
        if number not in self._flipped:
            self._flipped[number] = self._flip(number)
        return self._flipped[number]

    def _flip(self, number: int) -> Signed:
        name, *rest = self.keys[number]
        if self.roots[number] is None:
            return number, 1
        if name == "leaf":
            return number, -1
        details, operands = rest
        flipped = [_times(self.flipped(n), sign) for n, sign in operands]
        return self.make(name, details, flipped)

    def make(self, name: str, details: Details, operands: list[Signed]) -> Signed:
        """The expression of a primitive in its one form."""
        if name in _PLAIN:
            return operands[0]
        odd = details[1] == 1
        if name == "neg" or (name == "not" and odd):
            return _times(operands[0], -1)
        if name in _MAKERS:
            return _MAKERS[name](self, operands)
        if name in _PRODUCTS:
            bare = [(number, 1) for number, _ in operands]
            bare = sorted(bare) if name == "mul" else bare
            return self._add(name, details, bare), math.prod(sign for _, sign in operands)
        if name in _ODD or (name in _EITHER and odd):
            ((number, sign),) = operands
            return self._add(name, details, [(number, 1)]), sign
        if name in EVEN or name == "integer_pow":
            operands = [(number, 1) for number, _ in operands]
        elif name in _ANY_ORDER:
            operands = sorted(operands)
        return self._add(name, details, operands), 1

    def _add(self, name: str, details: Details, operands: list[Signed]) -> int:
        roots = {self.roots[n] for n, _ in operands} - {None}
        return self._new((name, details, tuple(operands)), next(iter(roots), None))

    def sum(self, operands: list[Signed]) -> Signed:
        """The same for a + b as for b + a; -a - b is -(a + b)."""
        first, second = sorted(operands)
        if first[0] == second[0] and first[1] != second[1]:
            return self._add("add", _NONE, [first, second]), 1
        sign = first[1]
        return self._add("add", _NONE, [_times(first, sign), _times(second, sign)]), sign

    def difference(self, operands: list[Signed]) -> Signed:
        return self.sum([operands[0], _times(operands[1], -1)])

    def largest(self, operands: list[Signed]) -> Signed:
        return self._add("max", _NONE, sorted(operands)), 1

    def least(self, operands: list[Signed]) -> Signed:
        return _times(self.largest([_times(o, -1) for o in operands]), -1)

    def clamp(self, operands: list[Signed]) -> Signed:
        low, value, high = operands
        return self.least([self.largest([low, value]), high])

    def floor(self, operands: list[Signed]) -> Signed:
        return self._add("floor", _NONE, operands), 1

    def ceil(self, operands: list[Signed]) -> Signed:
        return _times(self.floor([_times(operands[0], -1)]), -1)

    def select(self, operands: list[Signed]) -> Signed:
        """A choice of the first case where what chooses is true as it is."""
        if len(operands) != 3:
            return self._add("cases", _NONE, operands), 1
        (which, opposite), *cases = operands
        first, second = cases if opposite == 1 else cases[::-1]
        sign = first[1]
        own = [(which, 1), _times(first, sign), _times(second, sign)]
        return self._add("select_n", _NONE, own), sign

    def compare(self, name: str, operands: list[Signed]) -> Signed:
        swapped, opposite = _COMPARED[name]
        low, high = operands[::-1] if swapped else operands
        for value, other, below in ((low, high, 1), (high, low, -1)):
            if self._is_zero(other) and self._vanishes_with_its_root(value):
                # Zero itself is looked at apart, where it makes a difference.
                number, sign = value
                return self._add("below zero", _NONE, [(number, 1)]), opposite * below * sign
        forms = [low, high], [_times(high, -1), _times(low, -1)]
        return self._add("lt", _NONE, min(forms)), opposite

    def equal(self, operands: list[Signed]) -> Signed:
        forms = sorted(operands), sorted(_times(o, -1) for o in operands)
        return self._add("eq", _NONE, min(forms)), 1

    def _is_zero(self, operand: Signed) -> bool:
        return self.keys[operand[0]] == ("number", "0.0")

    def _vanishes_with_its_root(self, operand: Signed) -> bool:
        name, *rest = self.keys[operand[0]]
        if name == "leaf":
            return self.roots[operand[0]] is not None
        if name != "mul":
            return False
        found = [o for o in rest[1] if self.keys[o[0]][0] != "number"]
        factors = [float(self.keys[o[0]][1]) for o in rest[1] if o not in found]
        usual = all(1e-6 < factor < 1e6 for factor in factors)
        return len(found) == 1 and usual and self._vanishes_with_its_root(found[0])


def _times(operand: Signed, sign: int) -> Signed:
    return operand[0], operand[1] * sign


_MAKERS: dict[str, Callable[[Expressions, list[Signed]], Signed]] = {
    "add": Expressions.sum,
    "add_any": Expressions.sum,
    "sub": Expressions.difference,
    "max": Expressions.largest,
    "min": Expressions.least,
    "clamp": Expressions.clamp,
    "floor": Expressions.floor,
    "ceil": Expressions.ceil,
    "select_n": Expressions.select,
    "cases": lambda own, operands: (own._add("cases", _NONE, operands), 1),
    "eq": Expressions.equal,
    "ne": lambda own, operands: _times(own.equal(operands), -1),
    "below zero": lambda own, operands: own.compare("lt", [operands[0], own.number(0.0)]),
    **{
        name: (lambda own, operands, name=name: own.compare(name, operands))  # type: ignore[misc]
        for name in _COMPARED
    },
}
