"""The headline on digits: one Gaussian, in one basin, speaks for HMC as another run of HMC does."""

import jax
import numpy as np
import pytest
from full_speed import at_full_speed
from zoo import THOROUGH

import onebasin as ob


def agreement(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean(a.argmax(axis=-1) == b.argmax(axis=-1)))


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    return float(0.5 * np.abs(a - b).sum(axis=-1).mean())


def measured() -> dict[str, float]:
    """8 chains, 64-64-10, prior variance 0.3; in sample, then judged by a chain left out."""
    data = ob.data.load("digits")
    (train, labels), (test, _) = (
        (x.reshape(len(x), -1), y) for x, y in map(data.part, ("train", "test"))
    )
    net = ob.nets.mlp(hidden=(64,), outputs=10)
    problem = ob.Problem(net, (train, labels), prior=ob.Normal(0.3**0.5))
    draws = ob.infer.hmc(
        jax.random.key(0), problem, num_chains=8, num_samples=60, num_warmup=50, max_leapfrogs=60
    )
    symmetry = ob.discover(net.apply, draws[0], train[:2])

    def predictive(posterior) -> np.ndarray:
        return np.asarray(ob.predict(net.apply, posterior, test)).mean(axis=0)

    hmc = predictive(draws)
    options = {"apply_fn": net.apply, "inputs": train, "cost": "weights", "refine": "distil"}
    found = ob.compact(symmetry, draws, **options)
    left_in = draws[np.flatnonzero(np.asarray(draws.mode) != 7)]
    way = found.choice.way
    again = ob.compact(symmetry, left_in, scaling=way.scaling, num_starts=1, **options)
    judge = predictive(draws.of_mode(7))
    posteriors = {
        "unaligned": ob.fit_gaussian(draws),
        "moments": found.moments,
        "distilled": found.posterior,
    }
    result = {}
    for name, posterior in posteriors.items():
        result[f"{name} agreement"] = agreement(predictive(posterior), hmc)
        result[f"{name} TV"] = total_variation(predictive(posterior), hmc)
    result["remaining chains TV"] = total_variation(predictive(left_in), judge)
    result["left-out TV"] = total_variation(predictive(again.posterior), judge)
    return result


@pytest.mark.skipif(not THOROUGH, reason="minutes of HMC: set ONEBASIN_THOROUGH=1")
def test_one_gaussian_speaks_for_hmc() -> None:
    found = at_full_speed("compact.test_hmc", "measured")
    assert found["unaligned agreement"] < 0.3
    assert found["moments agreement"] >= 0.97
    assert found["moments TV"] <= 0.07
    assert found["distilled agreement"] >= 0.995
    assert found["distilled TV"] <= 0.02
    assert found["left-out TV"] <= 1.05 * found["remaining chains TV"]
