from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from onebasin.posterior import Draws, Gaussian, Mixture


def gaussian(rank, seed=0):
    rng = np.random.default_rng(seed)

    def tree(*lead, scale=1.0):
        return {
            "b": jnp.asarray(scale * rng.normal(size=(*lead, 3))),
            "w": jnp.asarray(scale * rng.normal(size=(*lead, 2, 2))),
        }

    std = jax.tree.map(lambda x: 0.2 + jnp.abs(x), tree())
    return Gaussian(tree(), std, tree(rank, scale=2.0) if rank else None)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def covariance(q):
    dense = np.diag(flat(q.std) ** 2)
    for number in range(q.rank):
        row = flat(jax.tree.map(lambda f, i=number: f[i], q.factor))
        dense += np.outer(row, row)
    return dense


def test_log_density_stands_a_weight_of_tiny_std():
    rng = np.random.default_rng(0)
    size, rank = 20_000, 10
    std = (1e-12 + np.abs(0.01 * rng.normal(size=size))).astype("f")
    factor = (0.01 * rng.normal(size=(rank, size))).astype("f")
    q = Gaussian(jnp.zeros(size), jnp.asarray(std), jnp.asarray(factor))
    x = q.draw(jax.random.key(0))
    A, u = factor.astype(float) / std, np.asarray(x, float) / std
    M = np.eye(rank) + A @ A.T
    expected = -0.5 * (
        size * np.log(2 * np.pi)
        + 2 * np.sum(np.log(std.astype(float)))
        + np.linalg.slogdet(M)[1]
        + u @ u
        - (A @ u) @ np.linalg.solve(M, A @ u)
    )
    np.testing.assert_allclose(q.log_density(x), expected, rtol=1e-5)


@pytest.mark.usefixtures("float64")
@given(st.sampled_from([0, 1, 9]), st.integers(0, 1000))
def test_log_density_is_that_of_scipy(rank, seed):
    q = gaussian(rank, seed)
    at = gaussian(0, seed + 1).mean
    expected = multivariate_normal(flat(q.mean), covariance(q)).logpdf(flat(at))
    np.testing.assert_allclose(q.log_density(at), expected, rtol=1e-9)
    np.testing.assert_allclose(flat(q.variance()), np.diag(covariance(q)))


@pytest.mark.parametrize("rank", [0, 2])
def test_samples_have_the_moments(rank):
    q, n = gaussian(rank), 20_000
    draws = q.sample(jax.random.key(1), n)
    rows = np.concatenate([np.reshape(x, (n, -1)) for x in jax.tree.leaves(draws.params)], axis=1)
    dense = covariance(q)
    sd = np.sqrt(np.diag(dense))
    assert np.all(np.abs(rows.mean(0) - flat(q.mean)) < 5 * sd / np.sqrt(n))
    error = np.abs(np.cov(rows.T) - dense)
    assert np.all(error < 5 * np.sqrt(2) * np.outer(sd, sd) / np.sqrt(n))


def test_a_draw_is_what_sample_stacks():
    q, key = gaussian(1), jax.random.key(3)
    one = q.draw(jax.random.split(key, 2)[1])
    both = q.sample(jax.random.clone(key), 2)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y[1], rtol=1e-5), one, both.params)


def test_log_density_of_draws_is_that_of_each():
    q = gaussian(2)
    draws = q.sample(jax.random.key(0), 3)
    each = [q.log_density(x) for x in draws]
    np.testing.assert_allclose(q.log_density(draws), each, rtol=1e-5)


def test_log_density_does_not_cancel_in_single_precision():
    """Where the low-rank part is far wider than the diagonal."""
    rng = np.random.default_rng(0)
    factor = jnp.asarray(30 * rng.normal(size=(3, 50)), jnp.float32)
    q = Gaussian(jnp.zeros(50), jnp.full(50, 0.03), factor)
    x = q.draw(jax.random.key(0))
    dense = 0.03**2 * np.eye(50) + np.asarray(factor, float).T @ np.asarray(factor, float)
    expected = multivariate_normal(np.zeros(50), dense).logpdf(np.asarray(x, float))
    assert abs(float(q.log_density(x)) - expected) < 1e-3 * abs(expected)


def test_gaussians_go_through_jit_vmap_and_grad():
    rng = np.random.default_rng(0)
    mean, other, at, row = (jnp.asarray(v, "f") for v in rng.normal(size=(4, 3)))
    q = Gaussian(mean, 0.5, row[None])
    two = jax.tree.map(lambda *x: jnp.stack(x), q, Gaussian(other, 0.7, row[None]))
    batch = jax.jit(jax.vmap(lambda p: p.log_density(at)))(two)
    np.testing.assert_allclose(batch[0], q.log_density(at), rtol=1e-5)
    samples = jax.vmap(lambda p, k: p.sample(k, 4))(two, jax.random.split(jax.random.key(0)))
    assert samples.params.shape == (2, 4, 3)
    slope = jax.grad(q.log_density)(q.mean)
    np.testing.assert_allclose(flat(slope), 0, atol=1e-5)


def test_parameters_may_be_a_list_of_layers():
    layers = [[jnp.ones((2, 3)), jnp.ones(3)], [jnp.ones((3, 1)), jnp.ones(1)]]
    q = Gaussian(layers, jax.tree.map(lambda x: 2 * x, layers))
    assert [float(v.max()) for v in jax.tree.leaves(q.variance())] == [4.0] * 4


def test_std_as_a_number_and_text():
    q = Gaussian({"w": jnp.zeros((2, 3))}, 0.5)
    np.testing.assert_array_equal(q.std["w"], np.full((2, 3), 0.5))
    assert (repr(q), q.rank) == ("Gaussian(6 weights, rank 0)", 0)


def test_a_std_of_unknown_value_is_taken_as_it_is():
    """While JAX traces there are no values; a std of 0 is a weight that is known."""
    traced = jax.jit(lambda m, s: Gaussian(m, s))(jnp.ones(2), -jnp.ones(2))
    assert isinstance(traced, Gaussian)
    shape = jax.ShapeDtypeStruct((2,), jnp.float32)
    assert Gaussian(shape, shape).std is shape
    known = jax.jit(lambda m: Gaussian(m, np.zeros(2, "f")).draw(jax.random.key(0)))
    np.testing.assert_array_equal(known(jnp.ones(2)), jnp.ones(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian({}, {}), "no leaves"),
        (lambda: Gaussian({"n": jnp.arange(2)}, 1.0), "'n' of mean is int32"),
        (lambda: Gaussian({"w": jnp.ones(2)}, {"v": jnp.ones(2)}), "std has no leaf 'w'"),
        (lambda: Gaussian({"w": jnp.ones(2)}, {"w": jnp.ones(3)}), r"'w' of std has shape \(3,\)"),
        (
            lambda: Gaussian(jnp.ones(2), jnp.ones(2), jnp.ones(2)),
            r"has shape \(2,\), expected \(2, 2\)",
        ),
        (lambda: gaussian(0).sample(jax.random.key(0), 0), "n=0 samples"),
        (lambda: gaussian(0).log_density(jnp.ones(2)), "params has no leaf 'b'"),
        (lambda: Gaussian(jnp.ones(2), -1.0), "'params' of std is negative"),
        (lambda: Gaussian(jnp.ones(2), float("nan")), "of std is NaN"),
        (lambda: Gaussian({"w": np.ones(2)}, {"w": np.array([1, -1.0])}), "'w' of std is negative"),
        (lambda: Gaussian(jnp.ones(2), jnp.array([1, jnp.nan])), "of std is NaN"),
        (
            lambda: jax.jit(lambda m: Gaussian(m, -jnp.ones(2)))(jnp.ones(2)).check_finite(),
            "std is",
        ),
        (lambda: Gaussian(jnp.full(2, jnp.inf), 1.0).check_finite(), "of mean holds 2 NaN"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.usefixtures("float64")
def test_mixture_density_is_the_weighted_sum():
    rng, weights = np.random.default_rng(0), np.array([0.3, 0.7])
    first, second, at, row = (jnp.asarray(v) for v in rng.normal(size=(4, 3)))
    parts = [Gaussian(first, 0.5), Gaussian(second, 0.7, row[None])]
    mixture = Mixture(parts, weights)
    each = [multivariate_normal(flat(p.mean), covariance(p)).logpdf(flat(at)) for p in parts]
    np.testing.assert_allclose(
        mixture.log_density(at), np.logaddexp(*(np.log(weights) + each)), rtol=1e-9
    )
    draws = Draws(jnp.stack([first, at]))
    np.testing.assert_allclose(mixture.log_density(draws)[1], mixture.log_density(at), rtol=1e-9)


def test_mixture_samples_say_where_they_came_from():
    mixture = Mixture([Gaussian(jnp.full(2, m), 0.1) for m in (-5.0, 0.0, 5.0)], [0.2, 0.3, 0.5])
    draws = mixture.sample(jax.random.key(0), 4000)
    shares = np.bincount(draws.mode) / 4000
    assert np.all(np.abs(shares - [0.2, 0.3, 0.5]) < 4 * np.sqrt(0.25 / 4000))
    np.testing.assert_array_equal(np.round(draws.params[:, 0] / 5) + 1, draws.mode)
    assert mixture.draw(jax.random.key(1)).shape == (2,)
    np.testing.assert_array_equal(
        Mixture(mixture.components).weights, np.full(3, np.float32(1 / 3))
    )


DRAWS: Any = Draws(jnp.ones((2, 2)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Mixture([]), ValueError, "at least one component"),
        (lambda: Mixture([DRAWS]), TypeError, "component 0 is a Draws"),
        (
            lambda: Mixture([Gaussian(jnp.ones(2), 1.0), Gaussian(jnp.ones(3), 1.0)]),
            ValueError,
            "of component 1 has shape",
        ),
        (lambda: Mixture([gaussian(0)], [0.5]), ValueError, "sum to one"),
        (lambda: Mixture([gaussian(0)], [0.5, 0.5]), ValueError, r"expected \(1,\)"),
    ],
)
def test_bad_mixtures_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()
