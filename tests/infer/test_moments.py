"""Every method against a posterior that is known: Bayesian linear regression.

A new method adds a row to EXACT (its draws have the posterior's moments) or a test of its own.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob

from .problems import linear_regression, stacked

EXACT: dict[str, Any] = {
    "hmc": (ob.infer.hmc, {"num_samples": 400}),
    "nuts": (ob.infer.nuts, {"num_samples": 400}),
    "mclmc": (ob.infer.mclmc, {"num_samples": 400}),
    "sgld": (ob.infer.sgld, {"num_samples": 400}),
    "sgld, cyclical": (
        ob.infer.sgld,
        {"num_samples": 400, "num_cycles": 10, "init": "prior", "step_size": 3e-3},
    ),
    "sghmc": (ob.infer.sghmc, {"num_samples": 400}),
}
# Without batches the step may be large; with them their noise is part of the test.
BATCHED = {
    "sgld": (ob.infer.sgld, {"num_samples": 400, "batch_size": 15, "thin": 200}),
    "sghmc": (ob.infer.sghmc, {"num_samples": 400, "batch_size": 15, "thin": 100}),
}


def standard_errors(draws: ob.Draws, answer) -> tuple[float, float]:
    """How far mean and covariance are off, in standard deviations of the posterior.

    The chains' own disagreement is the scale of the first; the second is relative.
    """
    samples = stacked(draws)
    std = np.sqrt(np.diag(answer.covariance))
    mean_error = np.max(np.abs(samples.mean(axis=0) - answer.mean) / std)
    relative = np.cov(samples.T) - answer.covariance
    return float(mean_error), float(np.max(np.abs(relative) / np.outer(std, std)))


@pytest.mark.parametrize("name", EXACT)
def test_draws_have_the_posteriors_moments(name: str) -> None:
    """1,600 draws: a mean is known to 0.03 to 0.06 standard deviations, a covariance to 5 %."""
    answer = linear_regression()
    method, arguments = EXACT[name]
    init = {"init": {"w": jnp.asarray(answer.mean, jnp.float32)}}
    draws = method(jax.random.key(1), answer.problem, num_chains=4, **{**init, **arguments})
    assert draws.mode.tolist() == np.repeat(np.arange(4), 400).tolist()
    mean_error, covariance_error = standard_errors(draws, answer)
    assert mean_error < 0.15
    assert covariance_error < 0.16


@pytest.mark.parametrize("name", BATCHED)
def test_batches_target_the_posterior_of_all_data(name: str) -> None:
    """A factor N / M = 4 that is missing would make the spread twice as large."""
    answer = linear_regression()
    method, arguments = BATCHED[name]
    draws = method(
        jax.random.key(2),
        answer.problem,
        num_chains=4,
        init={"w": jnp.asarray(answer.mean, jnp.float32)},
        **arguments,
    )
    mean_error, covariance_error = standard_errors(draws, answer)
    assert mean_error < 0.2
    assert covariance_error < 0.3


@pytest.mark.parametrize("batch_size", [None, 20])
@pytest.mark.parametrize("reparameterisation", ["local", "weights"])
def test_mean_field_has_the_mean_and_the_conditional_spread(reparameterisation, batch_size) -> None:
    answer = linear_regression()
    q = ob.infer.mean_field(
        jax.random.key(0),
        answer.problem,
        batch_size=batch_size,
        epochs=2500 if batch_size is None else 800,
        reparameterisation=reparameterisation,
    )
    std = 1 / np.sqrt(np.diag(answer.precision))
    assert np.max(np.abs(np.asarray(q.mean["w"]) - answer.mean) / std) < 0.15
    np.testing.assert_allclose(q.std["w"], std, rtol=0.06)


@pytest.mark.parametrize("batch_size", [None, 20])
def test_ensembles_find_the_mode(batch_size) -> None:
    answer = linear_regression()
    draws = ob.infer.ensemble(
        jax.random.key(0),
        answer.problem,
        num_networks=2,
        batch_size=batch_size,
        epochs=1000,
        learning_rate=0.03,
    )
    std = np.sqrt(np.diag(answer.covariance))
    assert np.max(np.abs(stacked(draws) - answer.mean) / std) < 0.05
    expected = jax.vmap(answer.problem.log_density)(draws.params)
    np.testing.assert_allclose(draws.log_density, expected, rtol=1e-5)


def test_the_temperature_scales_the_covariance() -> None:
    answer = linear_regression()
    cold = ob.Problem(
        answer.problem.net,
        (answer.problem.inputs, answer.problem.targets),
        likelihood="gaussian",
        noise=0.5,
        temperature=0.25,
    )
    draws = ob.infer.hmc(jax.random.key(3), cold, num_chains=4, num_samples=300)
    np.testing.assert_allclose(
        stacked(draws).std(axis=0), np.sqrt(np.diag(answer.covariance) / 4), rtol=0.12
    )
    q = ob.infer.mean_field(jax.random.key(3), cold, epochs=2000)
    np.testing.assert_allclose(q.std["w"], 0.5 / np.sqrt(np.diag(answer.precision)), rtol=0.06)


def test_nuts_of_numpyro_agrees_on_a_logistic_regression() -> None:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 2)).astype(np.float32)
    y = (x @ np.array([1.5, -1.0]) + rng.logistic(size=40) > 0).astype(np.int32)

    def model():
        w = numpyro.sample("w", dist.Normal(jnp.zeros(2), 2.0))
        numpyro.sample("y", dist.BernoulliLogits(x @ w), obs=y)

    # numpyro's own keys; its programs trip JAX's check for reused ones.
    with jax.debug_key_reuse(False):
        sampler = MCMC(NUTS(model), num_warmup=200, num_samples=1000, progress_bar=False)
        sampler.run(jax.random.key(0))
        oracle = np.asarray(sampler.get_samples()["w"])

    def apply(params, inputs):
        margin = inputs @ params["w"]
        return jnp.stack([jnp.zeros_like(margin), margin], axis=-1)

    net = ob.Net(lambda key, inputs: {"w": jnp.zeros(2)}, apply)
    problem = ob.Problem(net, (x, y), prior=ob.Normal(2.0))
    draws = stacked(ob.infer.nuts(jax.random.key(0), problem, num_chains=4, num_samples=400))
    error = np.abs(draws.mean(axis=0) - oracle.mean(axis=0)) / oracle.std(axis=0)
    assert np.max(error) < 0.18
    np.testing.assert_allclose(draws.std(axis=0), oracle.std(axis=0), rtol=0.15)


def test_swag_has_the_moments_of_its_snapshots() -> None:
    """Against NumPy: half the diagonal variance, half the sample covariance; std, not variance."""
    from onebasin.infer.swag import swag_moments

    rng = np.random.default_rng(0)
    snapshots = rng.normal(size=(7, 5)).astype(np.float32)
    mean, std, factor = swag_moments(snapshots, rank=7)
    covariance = np.diag(np.asarray(std) ** 2) + np.asarray(factor).T @ np.asarray(factor)
    expected = np.diag(snapshots.var(axis=0)) / 2 + np.cov(snapshots.T) / 2
    np.testing.assert_allclose(mean, snapshots.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(covariance, expected, rtol=1e-4, atol=1e-6)
    _, _, last = swag_moments(snapshots, rank=3)
    deviations = snapshots[-3:] - snapshots.mean(axis=0)
    np.testing.assert_allclose(last.T @ last, deviations.T @ deviations / 4, rtol=1e-4, atol=1e-6)


def test_swag_has_a_spread_with_no_other_argument() -> None:
    """Sixty examples fit into one batch; SGD has no noise then. Its spread is of the right size."""
    answer = linear_regression()
    q = ob.infer.swag(jax.random.key(0), answer.problem)
    ratio = np.sqrt(np.asarray(q.variance()["w"]) / np.diag(answer.covariance))
    assert 0.2 < ratio.min() < ratio.max() < 5
    assert np.max(np.abs(q.mean["w"] - answer.mean) / np.sqrt(np.diag(answer.covariance))) < 0.5
    with pytest.warns(UserWarning, match=r"hardly any spread.*pass a smaller batch_size="):
        ob.infer.swag(jax.random.key(0), answer.problem, batch_size=60)


def test_swag_spreads_over_several_networks() -> None:
    answer = linear_regression()
    mixture = ob.infer.swag(
        jax.random.key(0),
        answer.problem,
        num_networks=2,
        num_samples=5,
        rank=0,
        epochs=500,
        learning_rate=0.03,
    )
    assert len(mixture.components) == 2
    assert mixture.components[0].rank == 0
    std = np.sqrt(np.diag(answer.covariance))
    for component in mixture.components:
        assert np.max(np.abs(component.mean["w"] - answer.mean) / std) < 1
