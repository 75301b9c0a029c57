"""On real data every method predicts as well as a tuned network of scikit-learn, less one point."""

import functools

import jax
import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

import onebasin as ob

CHAINS = {"num_chains": 2, "num_samples": 20}
METHODS = {
    "hmc": {**CHAINS, "num_warmup": 40, "max_leapfrogs": 40},
    "nuts": {**CHAINS, "num_warmup": 25, "max_doublings": 5},
    "mclmc": {**CHAINS, "num_warmup": 20, "num_tuning_steps": 800},
    "sgld": {**CHAINS, "num_warmup": 10, "thin": 40},
    "sghmc": {**CHAINS, "num_warmup": 15, "thin": 40},
    "ensemble": {"num_networks": 3},
    "mean_field": {},
    "swag": {"num_samples": 10},
    "laplace": {"num_samples": 30},
    "dropout": {"num_samples": 50},
}


@functools.cache
def digits() -> tuple:
    data = ob.data.load("digits")
    return tuple((x.reshape(len(x), -1), y) for x, y in (data.train, data.test))


@functools.cache
def bar() -> float:
    """The best of some weight decays, as a person would tune it."""
    (x, y), (test, labels) = digits()
    return max(
        MLPClassifier((64,), alpha=alpha, max_iter=400, random_state=0)
        .fit(x, y)
        .score(test, labels)
        for alpha in (1e-2, 1.0)
    )


@pytest.mark.parametrize("name", METHODS)
def test_accuracy_is_that_of_a_tuned_network(name: str) -> None:
    train, (x, y) = digits()
    net = ob.nets.mlp(hidden=(64,), outputs=10)
    problem = ob.Problem(net, train, prior=ob.Normal(0.55))
    posterior = getattr(ob.infer, name)(jax.random.key(0), problem, **METHODS[name])
    probs = np.asarray(ob.predict(net.apply, posterior, x)).mean(axis=0)
    assert np.mean(probs.argmax(axis=-1) == y) >= bar() - 0.01
