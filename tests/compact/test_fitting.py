import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onebasin as ob
from onebasin.compact.fitting import Spectrum, fit_mixture


def correlated(seed: int, count: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(size, size)) + 2 * np.eye(size)
    return (rng.normal(size=(count, size)) @ mixing + 3).astype(np.float32)


def as_tree(x: np.ndarray) -> dict:
    return {"a": x[:, :2].reshape(-1, 2, 1), "b": x[:, 2:]}


def dense(q: ob.Gaussian) -> np.ndarray:
    """The covariance of a Gaussian over a tree of a and b."""
    std = np.concatenate([np.ravel(q.std["a"]), np.ravel(q.std["b"])])
    if q.factor is None:
        return np.diag(std**2)
    factor = np.concatenate(
        [np.reshape(q.factor[name], (q.rank, -1)) for name in ("a", "b")], axis=1
    )
    return np.diag(std**2) + factor.T @ factor


@given(seed=st.integers(0, 100), count=st.sampled_from([3, 12]), size=st.sampled_from([3, 8]))
def test_the_full_rank_fit_is_the_sample_covariance(seed: int, count: int, size: int) -> None:
    x = correlated(seed, count, size)
    q = ob.fit_gaussian(ob.Draws(as_tree(x)), "low-rank", shrinkage=0.0)
    expected = np.cov(x.T)
    np.testing.assert_allclose(dense(q), expected, atol=2e-4 * np.max(np.abs(expected)))
    np.testing.assert_allclose(np.ravel(q.mean["b"]), x.mean(axis=0)[2:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rank", [1, 3])
def test_lower_ranks_keep_the_largest_components_and_every_variance(rank: int) -> None:
    x = correlated(0, 40, 6)
    q = ob.fit_gaussian(ob.Draws(as_tree(x)), "low-rank", rank=rank, shrinkage=0.0)
    covariance = np.cov(x.T)
    np.testing.assert_allclose(np.diag(dense(q)), np.diag(covariance), rtol=1e-4)
    values, vectors = np.linalg.eigh(covariance)
    largest = (vectors[:, -rank:] * values[-rank:]) @ vectors[:, -rank:].T
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(dense(q)[off], largest[off], atol=1e-3 * np.max(values))


def test_shrinkage_and_temperature() -> None:
    x = correlated(0, 40, 6)
    draws = ob.Draws(as_tree(x))
    expected = np.cov(x.T)
    q = dense(ob.fit_gaussian(draws, "low-rank", shrinkage=0.25, temperature=0.5))
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(q[off], 0.5 * 0.75 * expected[off], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(np.diag(q), 0.5 * np.diag(expected), rtol=1e-4)
    diagonal = ob.fit_gaussian(draws, temperature=0.5)
    np.testing.assert_allclose(np.diag(dense(diagonal)), 0.5 * np.diag(expected), rtol=1e-4)


@given(seed=st.integers(0, 100), count=st.sampled_from([3, 9, 30]))
def test_the_shrinkage_is_that_of_the_dense_formula(seed: int, count: int) -> None:
    x = correlated(seed, count, 5)
    centred = x - x.mean(axis=0)
    products = centred[:, :, None] * centred[:, None, :]
    mean = products.mean(axis=0)
    variance = count / (count - 1) ** 3 * np.sum((products - mean) ** 2, axis=0)
    covariance = count / (count - 1) * mean
    off = ~np.eye(5, dtype=bool)
    expected = np.clip(variance[off].sum() / np.sum(covariance[off] ** 2), 0, 1)
    assert Spectrum.of(as_tree(x)).shrinkage() == pytest.approx(expected, rel=1e-3)


def test_a_known_gaussian_is_recovered_within_sampling_error() -> None:
    mean = {"w": jnp.array([1.0, -2.0, 0.5])}
    truth = ob.Gaussian(mean, 0.3, {"w": jnp.array([[1.0, 0.5, -0.5]])})
    draws = truth.sample(jax.random.key(0), 1000)
    q = ob.fit_gaussian(draws, "low-rank")
    expected = 0.09 * np.eye(3) + np.outer([1.0, 0.5, -0.5], [1.0, 0.5, -0.5])
    found = np.diag(np.asarray(q.std["w"]) ** 2) + q.factor["w"].T @ q.factor["w"]
    np.testing.assert_allclose(found, expected, atol=0.15)
    np.testing.assert_allclose(q.mean["w"], mean["w"], atol=0.12)


def test_a_mixture_has_a_gaussian_for_each_mode() -> None:
    x = np.concatenate([correlated(0, 10, 4), correlated(1, 30, 4) + 50])
    draws = ob.Draws(as_tree(x), mode=np.repeat([0, 1], [10, 30]))
    q = fit_mixture(draws)
    np.testing.assert_allclose(q.weights, [0.25, 0.75])
    np.testing.assert_allclose(q.components[1].mean["b"], x[10:, 2:].mean(axis=0), rtol=1e-4)


DRAWS = ob.Draws(as_tree(correlated(0, 5, 4)))
BAD = {
    "one draw": ((DRAWS[:1],), {}, "one draw has no spread"),
    "rank": ((DRAWS, "low-rank"), {"rank": 5}, "rank=5 and 5 draws: expected 1 to 4"),
    "rank of a diagonal": ((DRAWS,), {"rank": 2}, "belongs to covariance='low-rank'"),
    "covariance": ((DRAWS, "full"), {}, "expected one of diagonal, low-rank"),
    "shrinkage": ((DRAWS, "low-rank"), {"shrinkage": 2.0}, "from 0 to 1"),
    "word": ((DRAWS, "low-rank"), {"shrinkage": "some"}, "a number or 'auto'"),
    "temperature": ((DRAWS,), {"temperature": -1.0}, "from 0 up"),
    "one network": (({"w": np.ones((3, 2)), "b": np.ones(2)},), {}, "first axis of every leaf is"),
    "not draws": ((3.0,), {}, "expected Draws"),
    "a Gaussian": ((ob.Gaussian(jnp.ones(2), 1.0),), {}, "its method sample"),
    "NaN": ((ob.Draws(jnp.full((3, 2), jnp.nan)),), {}, "NaN"),
}


@pytest.mark.parametrize("covariance", ["diagonal", "low-rank"])
def test_stacked_parameters_are_draws(covariance: str) -> None:
    for leaf, same in zip(
        *(jax.tree.leaves(ob.fit_gaussian(d, covariance)) for d in (DRAWS, DRAWS.params)),
        strict=True,
    ):
        np.testing.assert_array_equal(leaf, same)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_sentence(name: str) -> None:
    arguments, options, message = BAD[name]
    with pytest.raises((ValueError, TypeError), match=message):
        ob.fit_gaussian(*arguments, **options)
