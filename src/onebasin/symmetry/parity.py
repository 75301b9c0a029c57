"""Sums and products of odd functions, expanded where only the whole has a parity.

JAX writes the derivative of y = tanh(x) as (g + g y) (1 - y): no factor keeps its sign, or loses
it, when y flips, but their product g - g y^2 does. So sums that mix even and odd powers of such a y
are followed as polynomials, and where terms cancel the result is computed from those that are left.
That is the same number, so nothing is assumed about where it came from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from fractions import Fraction
from typing import Any

import jax
import numpy as np
from jax import lax

from onebasin.symmetry.program import (
    Equation,
    Program,
    Variable,
    broadcast,
    new_equation,
    numbers,
)

Atom = tuple[int, tuple[int, ...]]
"""The number of a variable, and the axes of the result that its own axes are."""

Term = tuple[Atom, ...]
Polynomial = dict[Term, Fraction]

MAX_TERMS = 24
MAX_DEGREE = 12
MAX_NUMBER = 10_000


def _sum(left: Polynomial, right: Polynomial, factor: int = 1) -> Polynomial:
    total = dict(left)
    for term, coefficient in right.items():
        total[term] = total.get(term, Fraction(0)) + factor * coefficient
    return total


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for first, a in left.items():
        for second, b in right.items():
            term = tuple(sorted(first + second))
            total[term] = total.get(term, Fraction(0)) + a * b
    return total


_ARITHMETIC: dict[str, Callable[..., Polynomial]] = {
    "add": _sum,
    "add_any": _sum,
    "sub": lambda a, b: _sum(a, b, -1),
    "mul": _product,
    "neg": lambda a: _sum({}, a, -1),
    "square": lambda a: _product(a, a),
}


def expanded(program: Program, odd: Collection[str]) -> Program:
    """The program, with values in which odd terms cancel computed from their expansions.

    Args:
        program: Any program.
        odd: The names of primitives that are odd functions.
    """
    if not any(equation.name in odd for equation in program.equations):
        return program
    walk = _Walk(numbers(program), frozenset(odd))
    for equation in program.equations:
        walk.read(equation)
    return program.rewritten(walk.equations)


class _Walk:
    """What is known of the variables so far, and the equations that are to stand for them."""

    def __init__(self, known: dict[int, float], odd: frozenset[str]):
        self.known, self.odd = known, odd
        self.equations: list[Equation] = []
        self.atoms: list[Variable] = []
        self.flips: set[int] = set()
        self.polynomials: dict[int, Polynomial] = {}

    def read(self, equation: Equation) -> None:
        target = equation.outputs[0]
        if equation.name in self.odd:
            (((number, _),),) = self._of(target)
            self.flips.add(number)
        result = self._expand(equation)
        if result is None or not _is_small(result):
            self.equations.append(equation)
            return
        whole = {term: c for term, c in result.items() if c}
        if len(whole) == 1 or self._mixes(whole):
            self.polynomials[id(target)] = whole
        # What depends on a variable must go on doing so, even if it is by nothing that counts.
        if len(whole) < len(result) and _atoms(whole) and _atoms(whole) == _atoms(result):
            self._write(whole, target)
        else:
            self.equations.append(equation)

    def _of(self, variable: Variable) -> Polynomial:
        """A variable as a polynomial: itself, if nothing else is known."""
        if id(variable) in self.known and math.isfinite(self.known[id(variable)]):
            number = Fraction(self.known[id(variable)])
            return {(): number} if number else {}
        if id(variable) not in self.polynomials:
            atom = len(self.atoms), tuple(range(len(variable.shape)))
            self.atoms.append(variable)
            self.polynomials[id(variable)] = {(atom,): Fraction(1)}
        return self.polynomials[id(variable)]

    def _expand(self, equation: Equation) -> Polynomial | None:
        """The result of an equation as a polynomial, where it is one."""
        name, inputs, rank = equation.name, equation.inputs, len(equation.outputs[0].shape)
        if not jax.dtypes.issubdtype(equation.outputs[0].aval.dtype, np.floating):
            return None
        if name == "broadcast_in_dim" and len(inputs) == 1:
            dims = [int(d) for d in equation.params["broadcast_dimensions"]]
            return {
                tuple(sorted((number, tuple(dims[d] for d in own)) for number, own in term)): c
                for term, c in self._of(inputs[0]).items()
            }
        if name not in (*_ARITHMETIC, "integer_pow"):
            return None
        if any(len(v.shape) != rank and id(v) not in self.known for v in inputs):
            return None
        operands = [self._of(v) for v in inputs]
        if name == "integer_pow":
            power = equation.params["y"]
            return _power(operands[0], power) if 1 <= power <= MAX_DEGREE else None
        return _ARITHMETIC[name](*operands)

    def _mixes(self, polynomial: Polynomial) -> bool:
        """Whether some odd function occurs to even powers and to odd ones."""
        return any(
            len({term.count(atom) % 2 for term in polynomial}) > 1
            for atom in _atoms(polynomial)
            if atom[0] in self.flips
        )

    def _write(self, polynomial: Polynomial, target: Variable) -> None:
        """Equations that compute a polynomial, term by term."""
        rank = len(target.shape)
        terms = []
        for term, coefficient in polynomial.items():
            factors = [self._seen_from(atom, rank) for atom in term]
            if coefficient != 1 or not factors:
                number = np.asarray(float(coefficient), target.aval.dtype)
                factors.append(Variable(target.aval.update(shape=()), number))
            terms.append(self._chain(lax.mul_p, factors))
        total = self._chain(lax.add_p, terms)
        self.equations.append(broadcast(total, range(rank), target))

    def _seen_from(self, atom: Atom, rank: int) -> Variable:
        """The variable of an atom, with the axes that it lacks."""
        variable, dims = self.atoms[atom[0]], atom[1]
        if dims == tuple(range(rank)):
            return variable
        shape = [1] * rank
        for d, n in zip(dims, variable.shape, strict=True):
            shape[d] = n
        result = Variable(variable.aval.update(shape=tuple(shape)))
        self.equations.append(broadcast(variable, dims, result))
        return result

    def _chain(self, primitive: Any, operands: list[Variable]) -> Variable:
        total = operands[0]
        for operand in operands[1:]:
            shape = np.broadcast_shapes(total.shape, operand.shape)
            result = Variable(total.aval.update(shape=shape))
            self.equations.append(new_equation(primitive, [total, operand], result))
            total = result
        return total


def _power(base: Polynomial, power: int) -> Polynomial | None:
    total = base
    for _ in range(power - 1):
        if not _is_small(total):
            return None
        total = _product(total, base)
    return total


def _atoms(polynomial: Polynomial) -> set[Atom]:
    return {atom for term in polynomial for atom in term}


def _is_small(polynomial: Polynomial) -> bool:
    """Whether to go on with it; a number far from one might come out as zero, or as infinity."""
    sizes = [abs(c) for c in polynomial.values() if c]
    return (
        len(polynomial) <= MAX_TERMS
        and max(map(len, polynomial), default=0) <= MAX_DEGREE
        and all(1 <= c * MAX_NUMBER <= MAX_NUMBER**2 for c in sizes)
    )
