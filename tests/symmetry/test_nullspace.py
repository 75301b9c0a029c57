"""Exact null spaces against plain elimination, over the rationals and over two elements."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebasin.symmetry.nullspace import Eliminator, Row, add_multiple, null_space, reduce_mod

FIELDS = (None, 2)
coefficients = st.fractions(-3, 3, max_denominator=4)


@st.composite
def systems(draw: st.DrawFn, modulus: int | None) -> tuple[list[Row], int]:
    """Sparse rows over up to eight unknowns, zeros and repeats among them."""
    count = draw(st.integers(1, 8))
    value: st.SearchStrategy = coefficients if modulus is None else st.integers(-3, 3)
    row = st.dictionaries(st.integers(0, count - 1), value, max_size=4)
    return draw(st.lists(row, max_size=10)), count


def dense(rows: list[Row], count: int) -> list[list[Fraction]]:
    return [[Fraction(row.get(k, 0)) for k in range(count)] for row in rows]


def rank(matrix: list[list[Fraction]], modulus: int | None) -> int:
    """Dense Gaussian elimination as in the textbook."""
    rows = [[x if modulus is None else x % modulus for x in row] for row in matrix]
    found = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        lead = rows[found]
        for i in range(found + 1, len(rows)):
            factor = rows[i][column] / lead[column]
            reduced = [a - factor * b for a, b in zip(rows[i], lead, strict=True)]
            rows[i] = [x if modulus is None else x % modulus for x in reduced]
        found += 1
    return found


@pytest.mark.parametrize("modulus", FIELDS)
@given(data=st.data())
def test_spans_all_solutions(modulus: int | None, data: st.DataObject) -> None:
    rows, count = data.draw(systems(modulus))
    basis = null_space(rows, range(count), modulus)
    for vector in basis:
        for row in rows:
            total = sum(c * vector.get(k, 0) for k, c in row.items())
            assert total == 0 if modulus is None else total % modulus == 0
    assert len(basis) == count - rank(dense(rows, count), modulus)
    assert rank(dense(basis, count), modulus) == len(basis)


@pytest.mark.parametrize("modulus", FIELDS)
@given(data=st.data())
def test_eliminator_counts_rank(modulus: int | None, data: st.DataObject) -> None:
    rows, count = data.draw(systems(modulus))
    eliminator = Eliminator(modulus)
    fresh = [eliminator.insert(row) for row in rows]
    for number in range(len(rows) + 1):
        assert sum(fresh[:number]) == rank(dense(rows[:number], count), modulus)
    assert not any(eliminator.residual(row) for row in rows)


def test_the_same_rank_as_numpy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix = rng.integers(-2, 3, (30, 40)) * (rng.random((30, 40)) < 0.15)
        rows: list[Row] = [{k: int(c) for k, c in enumerate(row) if c} for row in matrix]
        basis = null_space(rows, range(40))
        assert len(basis) == 40 - np.linalg.matrix_rank(matrix)
        solutions = np.array([[float(v.get(k, 0)) for k in range(40)] for v in basis])
        assert np.abs(matrix @ solutions.T).max() < 1e-9


def test_unknowns_that_no_row_names_are_free() -> None:
    assert null_space([], ["a", "b"]) == [{"a": 1}, {"b": 1}]
    assert null_space([{"a": 1}], ["a", "b"]) == [{"b": 1}]


def test_unknowns_that_are_not_asked_for_are_left_out() -> None:
    """Auxiliary unknowns tie the others together, and stay out of the basis."""
    basis = null_space([{"a": 1, "t": -1}, {"b": 1, "t": -1}], ["a", "b"])
    assert basis == [{"a": 1, "b": 1}]


def test_stays_exact() -> None:
    """A chain of thirds that floating point would lose."""
    rows: list[Row] = [{k: Fraction(1, 3), k + 1: -1} for k in range(60)]
    (vector,) = null_space(rows, range(61))
    assert Fraction(vector[0]) == Fraction(vector[60]) * 3**60


def test_no_solution_but_zero() -> None:
    assert null_space([{0: 1, 1: 1}, {0: 1, 1: -1}], [0, 1]) == []
    assert null_space([{0: 1, 1: 1}, {0: 1, 1: -1}], [0, 1], 2) == [{0: 1, 1: 1}]


def test_rows_in_the_field() -> None:
    assert reduce_mod({"a": 2, "b": -1, "c": 0}, 2) == {"b": 1}
    assert reduce_mod({"a": Fraction(0), "b": Fraction(1, 2)}, None) == {"b": Fraction(1, 2)}
    assert add_multiple({"a": 1}, {"a": 1, "b": 1}, -1, None) == {"b": -1}
    assert add_multiple({"a": 1}, {"a": 1, "b": 1}, 1, 2) == {"b": 1}
