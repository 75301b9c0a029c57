"""Metrics of regressions, against scikit-learn and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics

import onebasin as ob
from onebasin import metrics

RNG = np.random.default_rng(0)
TARGETS = RNG.normal(size=(30, 2))
MEANS = TARGETS + RNG.normal(size=(5, 30, 2))
NOISE = RNG.uniform(0.3, 2, size=5)
WEIGHTS = RNG.uniform(0.5, 2, size=30)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_rmse_is_that_of_scikit_learn(weights: np.ndarray | None) -> None:
    expected = sklearn.metrics.root_mean_squared_error(
        TARGETS.ravel(),
        MEANS.mean(axis=0).ravel(),
        sample_weight=None if weights is None else np.repeat(weights, 2),
    )
    found = metrics.rmse(TARGETS, MEANS, sample_weight=weights)
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("noise", [0.7, NOISE])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_nll_is_that_of_a_mixture(noise: float | np.ndarray, weights: np.ndarray | None) -> None:
    scale = np.broadcast_to(noise, (5,))[:, None, None]
    logs = scipy.stats.norm.logpdf(TARGETS, MEANS, scale).sum(axis=-1)
    densities = scipy.special.logsumexp(logs, axis=0) - np.log(5)
    found = metrics.gaussian_nll(TARGETS, MEANS, noise, sample_weight=weights)
    assert float(found) == pytest.approx(-np.average(densities, weights=weights), rel=1e-5)


@pytest.mark.parametrize(
    "means", [MEANS[0, :, 0], MEANS[0, :, :1], MEANS[:1, :, 0], MEANS[:1, :, :1]]
)
def test_one_network_may_come_without_its_axes(means: np.ndarray) -> None:
    expected = np.sqrt(np.mean((MEANS[0, :, 0] - TARGETS[:, 0]) ** 2))
    assert float(metrics.rmse(TARGETS[:, 0], means)) == pytest.approx(expected, rel=1e-5)
    assert float(metrics.rmse(TARGETS[:, :1], means)) == pytest.approx(expected, rel=1e-5)


def test_they_can_be_jitted() -> None:
    own = jax.jit(metrics.gaussian_nll)(TARGETS, MEANS, NOISE)
    assert float(own) == pytest.approx(float(metrics.gaussian_nll(TARGETS, MEANS, NOISE)), rel=1e-5)


def test_a_fitted_regression_is_judged() -> None:
    x = np.linspace(-1, 1, 40)[:, None]
    y = (2 * x + 0.1 * RNG.normal(size=x.shape))[:, 0]
    net = ob.Net(lambda key, inputs: jnp.zeros(1), lambda w, inputs: inputs * w)
    problem = ob.Problem(net, (x, y), likelihood="gaussian")
    draws = ob.infer.ensemble(jax.random.key(0), problem, num_networks=3)
    means = ob.predict(net.apply, draws, x, link="identity")
    assert float(metrics.rmse(y, means)) < 0.2
    found = float(metrics.gaussian_nll(y, means, draws.statistics["noise"]))
    assert found < float(metrics.gaussian_nll(y, means, 1.0))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((TARGETS, MEANS[:, :7], 1.0), "as many numbers"),
        ((1.0, MEANS, 1.0), "y_true has shape"),
        ((TARGETS, MEANS, NOISE[:3]), "one of each of the 5 samples"),
        ((TARGETS, MEANS, 0.0), "noise is zero"),
    ],
)
def test_what_does_not_fit_is_said(arguments: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        metrics.gaussian_nll(*arguments)
