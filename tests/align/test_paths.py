import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from onebasin.align.paths import PATHS, interpolate
from onebasin.posterior import Draws, Gaussian, Mixture


def tree(rng, *lead):
    return {
        "b": jnp.asarray(rng.normal(size=(*lead, 2))),
        "w": jnp.asarray(rng.normal(size=(*lead, 3))),
    }


def gaussian(seed, rank=0):
    rng = np.random.default_rng(seed)
    std = jax.tree.map(lambda x: 0.1 + jnp.abs(x), tree(rng))
    return Gaussian(tree(rng), std, tree(rng, rank) if rank else None)


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def factor(q):
    return np.concatenate([np.reshape(f, (q.rank, -1)) for f in jax.tree.leaves(q.factor)], axis=1)


def covariance(q):
    low_rank = factor(q).T @ factor(q) if q.rank else 0
    return np.diag(flat(q.std) ** 2) + low_rank


def test_networks_are_joined_by_a_line():
    a, b = {"w": jnp.array([1.0, 2.0]), "n": 3}, {"w": jnp.array([3.0, 0.0]), "n": 9}
    half = interpolate(a, b, 0.25)
    np.testing.assert_allclose(half["w"], [1.5, 1.5])
    assert half["n"] == 3


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("path", [name for name in PATHS if name != "mixture"])
@pytest.mark.parametrize("ranks", [(0, 0), (1, 3), (2, 0)])
def test_every_path_joins_its_ends(path, ranks):
    a, b = gaussian(0, ranks[0]), gaussian(1, ranks[1])
    at = jax.jit(lambda t: interpolate(a, b, t, path))
    for t, end in ((0.0, a), (1.0, b)):
        np.testing.assert_allclose(flat(at(t).mean), flat(end.mean), rtol=1e-12)
        np.testing.assert_allclose(covariance(at(t)), covariance(end), rtol=1e-9, atol=1e-12)


def test_diagonal_geodesic_is_linear_in_mean_and_std():
    a, b = gaussian(0), gaussian(1)
    q = interpolate(a, b, 0.3)
    np.testing.assert_allclose(flat(q.mean), 0.7 * flat(a.mean) + 0.3 * flat(b.mean), rtol=1e-5)
    np.testing.assert_allclose(flat(q.std), 0.7 * flat(a.std) + 0.3 * flat(b.std), rtol=1e-5)


@pytest.mark.usefixtures("float64")
def test_low_rank_geodesic_is_that_of_the_bures_metric():
    """Without a diagonal the rotated factors are the exact Wasserstein-2 geodesic."""

    def pure(seed):
        q = gaussian(seed, rank=5)
        return Gaussian(q.mean, 0.0, q.factor)

    a, b = pure(0), pure(1)
    root = np.real(sqrtm(covariance(a)))
    inverse = np.linalg.inv(root)
    transport = inverse @ np.real(sqrtm(root @ covariance(b) @ root)) @ inverse
    step = 0.6 * np.eye(5) + 0.4 * transport
    found = covariance(interpolate(a, b, 0.4))
    np.testing.assert_allclose(found, step @ covariance(a) @ step, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("float64")
@given(st.floats(0, 1), st.integers(0, 99))
def test_independent_coupling_adds_covariances(t, seed):
    a, b = gaussian(seed, 2), gaussian(seed + 100, 1)
    found = covariance(interpolate(a, b, t, "independent"))
    expected = (1 - t) ** 2 * covariance(a) + t**2 * covariance(b)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("path", ["unit-norm", "unit-norm-independent"])
@given(t=st.floats(0, 1), seed=st.integers(0, 99))
def test_unit_norm_keeps_the_length_of_every_leaf(path, t, seed):
    a, b = gaussian(seed), gaussian(seed + 100)
    q, straight = interpolate(a, b, t, path), interpolate(a.mean, b.mean, t)
    for name in q.mean:
        length = (1 - t) * np.linalg.norm(a.mean[name]) + t * np.linalg.norm(b.mean[name])
        np.testing.assert_allclose(np.linalg.norm(q.mean[name]), length, rtol=1e-9)
        aligned = np.dot(q.mean[name], straight[name])
        assert aligned >= (1 - 1e-9) * length * np.linalg.norm(straight[name])
    noise = interpolate(a, b, t, "independent" if "independent" in path else "geodesic")
    np.testing.assert_array_equal(flat(q.std), flat(noise.std))


def test_opposite_and_zero_means_have_no_direction_and_stay_finite():
    a, b = Gaussian({"u": jnp.ones(2), "v": jnp.zeros(2)}, 1.0), gaussian(0)
    b = Gaussian({"u": -jnp.ones(2), "v": jnp.zeros(2)}, 1.0)
    assert np.all(flat(interpolate(a, b, 0.5, "unit-norm").mean) == 0)


def test_the_mixture_path_weighs_both_ends():
    mixture = interpolate(gaussian(0), gaussian(1), 0.25, "mixture")
    assert isinstance(mixture, Mixture)
    np.testing.assert_allclose(mixture.weights, [0.75, 0.25])


def test_a_function_is_a_path():
    assert interpolate(jnp.ones(1), jnp.zeros(1), 0.5, lambda a, b, t: a + b + t)[0] == 1.5


POINT = {"w": jnp.ones(2)}


@pytest.mark.parametrize(
    ("a", "b", "path", "message"),
    [
        (POINT, POINT, "independent", "is between Gaussians, and these are two networks"),
        (POINT, POINT, "bezier", "there is no path 'bezier', expected one of 'geodesic'"),
        (POINT, Gaussian(POINT, 1.0), "geodesic", "one end is a Gaussian"),
        (Draws(POINT), Draws(POINT), "geodesic", "no path between populations"),
        (POINT, {"w": jnp.ones(3)}, "geodesic", r"'w' of b has shape \(3,\), expected \(2,\)"),
        (POINT, {"v": jnp.ones(2)}, "geodesic", "b has no leaf 'w', which a has"),
    ],
)
def test_bad_input_is_named(a, b, path, message):
    with pytest.raises((ValueError, TypeError), match=message):
        interpolate(a, b, 0.5, path)


@pytest.mark.parametrize("end", [POINT, Gaussian(POINT, 1.0)])
def test_one_point_at_a_time(end):
    t = jnp.linspace(0, 1, 3)
    with pytest.raises(ValueError, match=r"t has shape \(3,\), expected one number: .* jax.vmap"):
        interpolate(end, end, t)
    along = jax.vmap(lambda t: interpolate(end, end, t))(t)
    assert jax.tree.leaves(along)[0].shape == (3, 2)
