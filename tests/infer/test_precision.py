"""Every method on weights of half precision, and with double precision switched on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob

QUICK: dict[str, dict[str, Any]] = {
    "hmc": {"num_chains": 2, "num_samples": 2, "num_warmup": 1, "init": "random"},
    "nuts": {"num_chains": 2, "num_samples": 2, "num_warmup": 1, "max_doublings": 3},
    "mclmc": {"num_chains": 2, "num_samples": 2, "num_warmup": 1, "num_tuning_steps": 10},
    "sgld": {"num_chains": 2, "num_samples": 2, "num_warmup": 1, "thin": 2},
    "sghmc": {"num_chains": 2, "num_samples": 2, "num_warmup": 1, "thin": 2},
    "ensemble": {"num_networks": 2, "epochs": 2, "every": 2},
    "mean_field": {"num_networks": 2, "epochs": 2},
    "swag": {"num_networks": 2, "num_samples": 2, "epochs": 2},
    "laplace": {"num_networks": 2, "num_samples": 2, "epochs": 2},
    "laplace, diagonal": {"epochs": 2, "structure": "diagonal"},
    "laplace, low-rank": {"epochs": 2, "structure": "low-rank", "num_samples": 2},
    "laplace, full": {
        "epochs": 2,
        "structure": "full",
        "num_samples": 2,
        "prior_precision": "marginal-likelihood",
    },
    "dropout": {"num_networks": 2, "num_samples": 2, "epochs": 2},
}
# So few doublings that trajectories are cut short is what makes it quick.
SHORT = pytest.mark.filterwarnings("ignore:.*cut short:onebasin.infer.SamplingWarning")
CHAINS = ("hmc", "nuts", "mclmc", "sgld", "sghmc")


def network(dtype: type) -> ob.Net:
    net = ob.nets.mlp(hidden=(3,), outputs=1, activation="tanh")

    def init(key, inputs):
        return jax.tree.map(lambda w: w.astype(dtype), net.init(key, inputs))

    return ob.Net(init, net.apply)


# Equal networks share compiled programs.
NETWORKS = {dtype: network(dtype) for dtype in (jnp.bfloat16, np.float32, np.float64)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.usefixtures("float64")
@SHORT
def test_double_precision_keeps_the_type_of_the_weights(name: str, dtype) -> None:
    assert_type_is_kept(name, dtype)


@pytest.mark.parametrize("name", QUICK)
@SHORT
def test_half_precision_keeps_the_type_of_the_weights(name: str) -> None:
    assert_type_is_kept(name, jnp.bfloat16)


def assert_type_is_kept(name: str, dtype) -> None:
    x = np.linspace(-1, 1, 12, dtype=dtype)[:, None]
    problem = ob.Problem(NETWORKS[dtype], (x, x**2), likelihood="gaussian", noise=0.2)
    method = name.split(",")[0]
    options = {"init": "prior"} if method in CHAINS else {}
    found = getattr(ob.infer, method)(jax.random.key(0), problem, **{**options, **QUICK[name]})
    parts = found.components if isinstance(found, ob.Mixture) else (found,)
    weights = [p.params if isinstance(p, ob.Draws) else (p.mean, p.std) for p in parts]
    for leaf in jax.tree.leaves(weights):
        assert leaf.dtype == dtype
        assert np.all(np.isfinite(leaf))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["hmc", "laplace"])
def test_double_precision_for_classes_and_a_learned_noise(name: str) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
    classes = ob.Problem(ob.nets.mlp(hidden=(3,), outputs=2), (x, (x[:, 0] > 0).astype(int)))
    learned = ob.Problem(NETWORKS[np.float32], (x, x**2), likelihood="gaussian")
    for problem in (classes, learned):
        found = getattr(ob.infer, name)(jax.random.key(0), problem, **QUICK[name])
        assert {leaf.dtype for leaf in jax.tree.leaves(found.params)} == {np.dtype(np.float32)}
