"""Costs on Gaussians: which of them see a swap of variances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.align.channels import GAUSSIAN_COSTS
from onebasin.align.pairing import Pairing
from onebasin.align.state import State


def model(params, x):
    return jnp.sum(jax.nn.relu(params["w"] * x), axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def toy():
    """One hidden layer of two units, one weight each: the group swaps (and, by ReLU, no more)."""
    params = {"w": jnp.ones(2)}
    symmetry = ob.discover(model, params, jnp.ones((3, 1)))
    assert [f.size for f in symmetry.factors] == [2]
    return symmetry


def gaussian(mean, std):
    return ob.Gaussian({"w": jnp.asarray(mean)}, {"w": jnp.asarray(std)})


@pytest.mark.parametrize(
    ("cost", "recovers"),
    [("wasserstein", True), ("kl", True), ("kl-reverse", True), ("kl-mean", False)],
)
def test_mirrored_gaussians(toy, cost, recovers):
    """Two Gaussians mirrored about y = x that differ in their spread only."""
    q0, q1 = gaussian([1.0, 1.0], [0.3, 1.2]), gaussian([1.0, 1.0], [1.2, 0.3])
    found = ob.align(toy, q1, to=q0, cost=cost)
    same = bool(jnp.allclose(found.params.std["w"], q0.std["w"]))
    assert same == recovers


def test_trace_term_depends_on_the_permutation():
    """Variances (1, 2) against (1, 2): the trace is 2 for the identity and 2.5 for the swap."""
    variances = np.array([1.0, 2.0])
    assert np.sum(variances / variances) == 2
    assert np.sum(variances[::-1] / variances) == 2.5


@pytest.mark.parametrize("cost", sorted(GAUSSIAN_COSTS))
def test_price_is_the_divergence(toy, cost):
    """The cost that is reported equals the divergence computed from its definition."""
    rng = np.random.default_rng(0)
    m0, m1 = rng.standard_normal((2, 2)).astype(np.float32)
    s0, s1 = np.exp(rng.standard_normal((2, 2))).astype(np.float32)
    channels = GAUSSIAN_COSTS[cost]([m0], [s0], [m1], [s1])
    pairing = Pairing(toy, channels.channels)
    for columns in ([0, 1], [1, 0]):
        state = State.identity(toy)
        state.permutations[next(iter(state.permutations))] = np.array(columns)
        m, s = m1[columns], s1[columns]
        forward = np.log(s0 / s) - 0.5 + (s**2 + (m - m0) ** 2) / (2 * s0**2)
        reverse = np.log(s / s0) - 0.5 + (s0**2 + (m - m0) ** 2) / (2 * s**2)
        expected = {
            "wasserstein": (m - m0) ** 2 + (s - s0) ** 2,
            "kl": forward,
            "kl-forward": forward,
            "kl-reverse": reverse,
            "kl-mean": (m - m0) ** 2 / (2 * s0**2),
        }[cost]
        price = channels.cost(pairing.objective(state))
        assert price == pytest.approx(float(np.sum(expected)), rel=1e-4, abs=1e-4)
