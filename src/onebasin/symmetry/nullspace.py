"""Exact null spaces of sparse homogeneous systems, over the rationals or over two elements."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
Row = dict[K, Fraction | int]


def reduce_mod(row: Row[K], modulus: int | None) -> Row[K]:
    """The row without zeros, its entries brought into the field."""
    if modulus is None:
        return {k: c for k, c in row.items() if c}
    return {k: int(c) % modulus for k, c in row.items() if int(c) % modulus}


def add_multiple(row: Row[K], other: Row[K], factor: Fraction | int, modulus: int | None) -> Row[K]:
    """Row + factor * other; the row may hold no zeros."""
    total = dict(row)
    for k, c in other.items():
        entry = total.get(k, 0) + factor * c
        if modulus is not None:
            entry = int(entry) % modulus
        if entry:
            total[k] = entry
        else:
            total.pop(k, None)
    return total


class Eliminator:
    """Sparse Gaussian elimination, one row at a time."""

    def __init__(self, modulus: int | None = None):
        self.modulus = modulus
        self.pivots: dict[Hashable, Row] = {}

    def residual(self, row: Row) -> Row:
        """What is left of a row after the pivots found so far."""
        row = reduce_mod(row, self.modulus)
        while True:
            hit = next((k for k in row if k in self.pivots), None)
            if hit is None:
                return row
            row = add_multiple(row, self.pivots[hit], -row[hit], self.modulus)

    def insert(self, row: Row) -> bool:
        """Adds a row; False when it says nothing new."""
        row = self.residual(row)
        if not row:
            return False
        pivot = next(reversed(row))
        lead = row[pivot]
        if not self.modulus and lead != 1:
            scale = -1 if lead == -1 else Fraction(1) / lead
            row = {k: c * scale for k, c in row.items()}
        self.pivots[pivot] = row
        return True


def null_space(
    rows: Iterable[Row], unknowns: Sequence[Hashable], modulus: int | None = None
) -> list[Row]:
    """A basis of all assignments to `unknowns` that satisfy every row (each row sums to zero)."""
    eliminator = Eliminator(modulus)
    for row in sorted(rows, key=len):
        eliminator.insert(row)
    # A row holds no pivot found before it, so going backwards every other pivot is solved already.
    solved: dict[Hashable, Row] = {}
    for pivot, row in reversed(eliminator.pivots.items()):
        total: Row = {}
        for k, c in row.items():
            if k != pivot:
                total = add_multiple(total, solved.get(k, {k: 1}), -c, modulus)
        solved[pivot] = total

    basis: dict[Hashable, Row] = {}
    for unknown in unknowns:
        for free, coefficient in solved.get(unknown, {unknown: 1}).items():
            basis.setdefault(free, {})[unknown] = coefficient
    return list(basis.values())
