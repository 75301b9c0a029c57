"""The headline on digits: one Gaussian, in one basin, speaks for HMC as another run of HMC does."""

import jax
import numpy as np

import onebasin as ob


def agreement(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean(a.argmax(axis=-1) == b.argmax(axis=-1)))


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    return float(0.5 * np.abs(a - b).sum(axis=-1).mean())


def test_one_gaussian_speaks_for_hmc() -> None:
    """8 chains, 64-64-10, prior variance 0.3; in sample, then judged by a chain left out."""
    data = ob.data.load("digits")
    (train, labels), (test, _) = ((x.reshape(len(x), -1), y) for x, y in (data.train, data.test))
    net = ob.nets.mlp(hidden=(64,), outputs=10)
    problem = ob.Problem(net, (train, labels), prior=ob.Normal(0.3**0.5))
    draws = ob.infer.hmc(
        jax.random.key(0), problem, num_chains=8, num_samples=40, num_warmup=40, max_leapfrogs=60
    )
    symmetry = ob.discover(net.apply, draws[0], train[:2])

    def predictive(posterior) -> np.ndarray:
        return np.asarray(ob.predict(net.apply, posterior, test, num_samples=None)).mean(axis=0)

    hmc = predictive(draws)
    raw = predictive(ob.fit_gaussian(draws))
    assert agreement(raw, hmc) < 0.3

    found = ob.compact(
        symmetry, draws, apply_fn=net.apply, inputs=train, cost="weights", refine="distil"
    )
    fitted = predictive(found.moments)
    assert agreement(fitted, hmc) >= 0.96
    assert total_variation(fitted, hmc) <= 0.07
    distilled = predictive(found.posterior)
    assert agreement(distilled, hmc) >= 0.99
    assert total_variation(distilled, hmc) <= 0.02

    left_in = draws[np.flatnonzero(np.asarray(draws.mode) != 7)]
    judge = predictive(draws.of_mode(7))
    again = ob.compact(
        symmetry,
        left_in,
        apply_fn=net.apply,
        inputs=train,
        cost="weights",
        scaling=found.choice.way.scaling,
        num_starts=1,
        refine="distil",
    )
    floor = total_variation(predictive(left_in), judge)
    assert total_variation(predictive(again.posterior), judge) <= 1.05 * floor
