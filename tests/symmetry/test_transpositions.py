"""The number of transpositions against a count of cycles, and what a distance must do."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onebasin as ob

permutations = st.integers(0, 30).flatmap(lambda n: st.permutations(range(n)))
pairs = st.integers(1, 20).flatmap(
    lambda n: st.tuples(st.permutations(range(n)), st.permutations(range(n)))
)


def count_by_walking(permutation: list[int]) -> int:
    """n minus the number of cycles, by following every cycle to its end."""
    seen: set[int] = set()
    cycles = 0
    for start in range(len(permutation)):
        if start in seen:
            continue
        cycles += 1
        while start not in seen:
            seen.add(start)
            start = permutation[start]
    return len(permutation) - cycles


def not_of(permutation: list[int]) -> int:
    return ob.transpositions(np.array(permutation, int))


@given(permutations)
def test_counts_like_walking_the_cycles(permutation: list[int]) -> None:
    assert not_of(permutation) == count_by_walking(permutation)


def test_counts_all_permutations_of_five() -> None:
    rows = list(itertools.permutations(range(5)))
    assert ob.transpositions(np.array(rows)).tolist() == [count_by_walking(list(r)) for r in rows]


@pytest.mark.parametrize("n", [2, 3, 16, 17, 33, 257])
def test_one_long_cycle(n: int) -> None:
    """Doubling has to reach all around a cycle of any length."""
    assert ob.transpositions(np.roll(np.arange(n), 1)) == n - 1


@given(permutations)
def test_undone_by_the_inverse(permutation: list[int]) -> None:
    array = np.array(permutation, int)
    inverse = np.argsort(array)
    assert ob.transpositions(array[inverse]) == 0
    assert ob.transpositions(inverse) == ob.transpositions(array)


@given(pairs)
def test_triangle_inequality(pair: tuple[list[int], list[int]]) -> None:
    p, q = map(np.array, pair)
    assert ob.transpositions(p[q]) <= ob.transpositions(p) + ob.transpositions(q)


@given(pairs)
def test_conjugation_keeps_it(pair: tuple[list[int], list[int]]) -> None:
    p, q = map(np.array, pair)
    assert ob.transpositions(q[p[np.argsort(q)]]) == ob.transpositions(p)


@given(permutations, st.data())
def test_one_swap_changes_it_by_one(permutation: list[int], data: st.DataObject) -> None:
    if len(permutation) < 2:
        return
    two = st.lists(st.integers(0, len(permutation) - 1), min_size=2, max_size=2, unique=True)
    a, b = data.draw(two)
    swapped = list(permutation)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    assert abs(not_of(swapped) - not_of(permutation)) == 1


def test_batches() -> None:
    batch = np.array([[[0, 1, 2], [1, 0, 2]], [[1, 2, 0], [2, 1, 0]]])
    assert ob.transpositions(batch).tolist() == [[0, 1], [2, 1]]
    assert isinstance(ob.transpositions(batch[0, 1]), int)
    assert ob.transpositions(jax.numpy.array([1, 0])) == 1
    assert ob.transpositions(np.zeros((0, 3), int)).shape == (0,)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_random_permutations_have_exactly_k(n: int) -> None:
    for k in range(n):
        drawn = [
            np.asarray(ob.random_permutation(key, n, k))
            for key in jax.random.split(jax.random.key(k), 4)
        ]
        assert [ob.transpositions(p) for p in drawn] == [k] * 4


def test_random_permutations_reach_every_permutation() -> None:
    """All 11 permutations of four units with two transpositions, none much more than others."""
    keys = jax.random.split(jax.random.key(0), 2000)
    drawn = np.asarray(jax.vmap(lambda key: ob.random_permutation(key, 4, 2))(keys))
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(found) == 11
    assert counts.min() > 60


def test_random_permutations_of_nothing() -> None:
    assert ob.random_permutation(jax.random.key(0), 0, 0).shape == (0,)


@pytest.mark.parametrize(
    ("permutation", "what"),
    [
        ([0, 0, 1], "not a permutation"),
        ([1, 2, 3], "not a permutation"),
        ([-1, 0], "not a permutation"),
        ([[0, 1], [1, 1]], "not a permutation"),
        ([0.0, 1.0], "integers"),
        ([True, False], "integers"),
        (3, "integers"),
    ],
)
def test_bad_permutations(permutation: object, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        ob.transpositions(permutation)


@pytest.mark.parametrize(("n", "k"), [(3, 3), (3, -1), (0, 1), (1, 1)])
def test_too_many_transpositions(n: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"has between 0 and .* transpositions"):
        ob.random_permutation(jax.random.key(0), n, k)
