from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import onebasin as ob
from onebasin.evaluate import gaussians


def gaussian(seed: int, rank: int, spread: float = 1.0) -> ob.Gaussian:
    keys = jax.random.split(jax.random.key(seed), 5)
    mean = {"a": jax.random.normal(keys[0], (3, 4)), "b": jax.random.normal(keys[1], (5,))}
    std = jax.tree.map(
        lambda x, k: jnp.exp(spread * jax.random.normal(k, x.shape)),
        mean,
        {"a": keys[2], "b": keys[3]},
    )
    if not rank:
        return ob.Gaussian(mean, std)
    factor = jax.random.normal(keys[4], (rank, 17))
    return ob.Gaussian(mean, std, {"a": factor[:, :12].reshape(rank, 3, 4), "b": factor[:, 12:]})


def dense(q: ob.Gaussian) -> tuple[Any, Any]:
    def flat(tree: Any, lead: tuple[int, ...] = ()) -> Any:
        return np.concatenate(
            [np.reshape(x, (*lead, -1)) for x in jax.tree.leaves(tree)], -1
        ).astype(float)

    covariance = np.diag(flat(q.std) ** 2)
    if q.rank:
        factor = flat(q.factor, (q.rank,))
        covariance += factor.T @ factor
    return flat(q.mean), covariance


RANKS = [(0, 0), (0, 2), (3, 0), (2, 4)]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("chunk", [4, 1 << 16])
def test_kl_is_the_closed_form(ranks: Any, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussians, "CHUNK", chunk)
    p, q = gaussian(0, ranks[0]), gaussian(1, ranks[1])
    (m, c), (n, d) = dense(p), dense(q)
    inverse = np.linalg.inv(d)
    logs = np.linalg.slogdet(d)[1] - np.linalg.slogdet(c)[1]
    expected = 0.5 * (np.trace(inverse @ c) + (n - m) @ inverse @ (n - m) - 17 + logs)
    np.testing.assert_allclose(ob.kl(p, q), expected, 1e-8)
    np.testing.assert_allclose(ob.kl(p, p), 0, atol=1e-9)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_wasserstein_is_the_closed_form(ranks: Any, spread: float) -> None:
    p, q = gaussian(0, ranks[0], spread), gaussian(1, ranks[1], spread)
    (m, c), (n, d) = dense(p), dense(q)
    root = scipy.linalg.sqrtm(c)
    cross = np.sum(np.sqrt(np.maximum(np.linalg.eigvalsh(root @ d @ root), 0)))
    expected = np.sum((m - n) ** 2) + np.trace(c) + np.trace(d) - 2 * cross
    np.testing.assert_allclose(ob.wasserstein(p, q, squared=True), expected, 1e-6)
    np.testing.assert_allclose(ob.wasserstein(p, q), ob.wasserstein(q, p), 1e-6)
    scale = np.sqrt(np.trace(c))
    assert ob.wasserstein(p, p) < 1e-3 * scale


def test_weights_without_spread() -> None:
    """A point has no spread: W2 is finite, and so is that to a low-rank Gaussian alone."""
    mean = jnp.zeros(4)
    factor = jnp.array([[3.0, 4.0, 0.0, 0.0]])
    flat, point = ob.Gaussian(mean, 0.0, factor), ob.Gaussian(mean + 1, 0.0)
    np.testing.assert_allclose(ob.wasserstein(flat, point, squared=True), 4 + 25, 1e-6)
    other = ob.Gaussian(mean, 0.0, 2 * factor)
    np.testing.assert_allclose(ob.wasserstein(flat, other), 5, 1e-6)
    assert ob.kl(flat, ob.Gaussian(mean, 1.0)) == ob.kl(ob.Gaussian(mean, 1.0), flat) == np.inf


def test_samples_agree_with_kl() -> None:
    p, q = gaussian(0, 2, 0.3), gaussian(1, 1, 0.3)
    draws = p.sample(jax.random.key(0), 3000)
    gap = np.asarray(p.log_density(draws) - q.log_density(draws), float)
    assert abs(gap.mean() - ob.kl(p, q)) < 4 * gap.std() / np.sqrt(len(gap))


@pytest.mark.parametrize("distance", [ob.kl, ob.wasserstein])
def test_bad_input_is_said(distance: Any) -> None:
    p = gaussian(0, 1)
    with pytest.raises(TypeError, match="q is a Draws, expected a Gaussian"):
        distance(p, p.sample(jax.random.key(0), 3))
    with pytest.raises(ValueError, match="same model"):
        distance(p, ob.Gaussian({"a": jnp.zeros((3, 4))}, 1.0))
    with pytest.raises(ValueError, match="the mean of q holds 12 NaN"):
        distance(p, ob.Gaussian(jax.tree.map(lambda x: x * jnp.nan, p.mean), p.std))


@pytest.mark.parametrize(("size", "rank"), [(5, 2), (200, 5), (1000, 5)])
def test_a_small_step_between_wide_gaussians_is_seen(size: int, rank: int) -> None:
    factor = jax.random.normal(jax.random.key(0), (rank, size))
    p, q = (ob.Gaussian(jnp.full(size, shift), 1.0, factor) for shift in (0.0, 1e-3))
    assert ob.wasserstein(p, q) == pytest.approx(1e-3 * size**0.5, rel=1e-2)


@pytest.mark.parametrize("size", [1.0, 1e4, 1e8])
def test_kl_keeps_its_digits_where_the_low_rank_part_is_large(size: float) -> None:
    count, step, stretch = 6, 0.25, 1.5
    direction = size * np.arange(1, count + 1, dtype=np.float32)
    q = ob.Gaussian(jnp.zeros(count), jnp.ones(count), direction[None])
    p = ob.Gaussian(step * direction, jnp.full(count, stretch), direction[None])
    # Both covariances have the direction as an axis, of that length, and are round otherwise.
    long = float(np.sum(direction.astype(float) ** 2))
    ratios = np.array([(stretch**2 + long) / (1 + long)] + [stretch**2] * (count - 1))
    expected = np.sum(ratios - 1 - np.log(ratios)) + step**2 * long / (1 + long)
    assert ob.kl(p, q) == pytest.approx(expected / 2, rel=1e-6)
