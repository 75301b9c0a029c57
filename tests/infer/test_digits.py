"""On real data every method predicts as well as a tuned network of scikit-learn, less one point."""

import functools

import jax
import numpy as np
from full_speed import at_full_speed
from sklearn.neural_network import MLPClassifier
from zoo import THOROUGH

import onebasin as ob

CHAINS = {"num_chains": 4, "num_samples": 20}
METHODS = {
    "hmc": {**CHAINS, "num_warmup": 30, "max_leapfrogs": 40},
    "nuts": {**CHAINS, "num_warmup": 15, "max_doublings": 5},
    "mclmc": {**CHAINS, "num_warmup": 10, "num_tuning_steps": 600},
    "sgld": {"num_chains": 8, "num_samples": 20, "num_warmup": 5, "thin": 50},
    "sghmc": {"num_chains": 4, "num_samples": 40, "num_warmup": 15, "thin": 50},
    "ensemble": {"num_networks": 3},
    "mean_field": {},
    "swag": {"num_samples": 10},
    "laplace": {"num_samples": 30},
    "dropout": {"num_samples": 50},
}


@functools.cache
def digits() -> tuple:
    data = ob.data.load("digits")
    return tuple((x.reshape(len(x), -1), y) for x, y in map(data.part, ("train", "test")))


# What takes longest is asked for.
THOROUGH_ONLY = ("hmc", "nuts", "mclmc", "sgld", "sghmc")


def accuracies() -> dict[str, float]:
    """Of every method, and of scikit-learn's network at the best of some weight decays."""
    (x, y), (test, labels) = digits()
    scores = [
        MLPClassifier((64,), alpha=a, max_iter=400, random_state=0).fit(x, y).score(test, labels)
        for a in (1e-2, 1.0)
    ]
    net = ob.nets.mlp(hidden=(64,), outputs=10)
    problem = ob.Problem(net, (x, y), prior=ob.Normal(1.0))
    found = {"scikit-learn": float(max(scores))}
    for name, arguments in METHODS.items():
        if name in THOROUGH_ONLY and not THOROUGH:
            continue
        posterior = getattr(ob.infer, name)(jax.random.key(0), problem, **arguments)
        probs = np.asarray(ob.predict(net.apply, posterior, test)).mean(axis=0)
        found[name] = float(np.mean(probs.argmax(axis=-1) == labels))
    return found


def test_accuracy_is_that_of_a_tuned_network() -> None:
    found = at_full_speed("infer.test_digits", "accuracies")
    assert len(found) > len(METHODS) - len(THOROUGH_ONLY)
    worse = {name: a for name, a in found.items() if a < found["scikit-learn"] - 0.0101}
    assert not worse, found
