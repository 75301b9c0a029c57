"""How strong the prior of Laplace's approximation is made: draws stay where they mean something."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onebasin import nets
from onebasin.infer.laplace import laplace
from onebasin.infer.multipliers import best_multiplier
from onebasin.infer.priors import Normal
from onebasin.infer.problem import Problem
from onebasin.nets import Net
from onebasin.posterior import Mixture


def test_the_best_multiplier_is_that_of_a_grid():
    values = jnp.asarray(np.random.default_rng(0).exponential(size=30) ** 3, jnp.float32)
    squares = jnp.array(7.0)
    grid = np.exp(np.linspace(-8, 8, 20_001))[:, None]
    evidence = 30 * np.log(grid[:, 0]) - grid[:, 0] * 7 - np.log(np.asarray(values) + grid).sum(1)
    best = float(best_multiplier(values, squares))
    np.testing.assert_allclose(best, grid[np.argmax(evidence), 0], rtol=2e-3)


def test_draws_stay_where_the_loss_can_still_rise():
    """Squares of tanh(w) / 10: with all of the prior, draws are where the loss is nearly flat."""
    net = Net(lambda key, x: jnp.zeros(1), lambda w, x: x * jnp.tanh(w))
    problem = Problem(net, (jnp.ones((4, 1)), jnp.zeros((4, 1))), Normal(3.0), "gaussian", 10.0)
    draws = laplace(
        jax.random.key(0), problem, init=jnp.zeros(1), epochs=0, structure="full", num_samples=2000
    )
    # tanh(s) tanh(s / 4) = 0.9^(1/2) tanh(s / 2)^2 at s = 0.56.
    assert 0.2 < np.std(np.asarray(draws.params)) < 1.0


@pytest.mark.parametrize("scale", [1.0, 3.0, 3.2, 3.4, 130.0])
def test_a_loss_that_first_rises_faster_and_then_no_further_is_not_quadratic_in_between(scale):
    net = Net(lambda key, x: jnp.zeros(1), lambda w, x: 20 * x * jnp.tanh((w + 3 * w**3) / 20))
    problem = Problem(net, (jnp.ones((1, 1)), jnp.zeros((1, 1))), Normal(scale), "gaussian", 100.0)
    draws = laplace(jax.random.key(0), problem, init=jnp.zeros(1), epochs=0, structure="full")
    assert np.std(np.asarray(draws.params)) < 0.3


def test_the_multiplier_is_the_first_that_does_and_kinks_close_by_change_nothing():
    x, noise = (
        np.random.default_rng(n).normal(size=(200, k)).astype(np.float32)
        for n, k in ((0, 5), (1, 3))
    )
    labels = np.argmax(noise, axis=1)
    problem = Problem(nets.mlp(hidden=(16, 16), outputs=3), (x, jnp.asarray(labels)))
    q = laplace(jax.random.key(0), problem, structure="diagonal", num_networks=4, epochs=50)
    assert isinstance(q, Mixture)
    assert (q.info["prior_multiplier"] < 1000).all()


def test_a_loss_that_falls_all_around_asks_for_no_more_than_the_prior():
    net = Net(lambda key, x: jnp.zeros(1), lambda w, x: x * jnp.cos(w))
    problem = Problem(net, (jnp.ones((1, 1)), jnp.zeros((1, 1))), Normal(1.0), "gaussian", 1.0)
    draws = laplace(jax.random.key(0), problem, init=jnp.zeros(1), epochs=0, structure="full")
    assert draws.info["prior_multiplier"] == 1
