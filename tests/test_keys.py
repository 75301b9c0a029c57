"""Whatever draws random numbers says what a key is, and takes both kinds of keys."""

import jax
import jax.numpy as jnp
import pytest

import onebasin as ob

X = jax.random.normal(jax.random.key(0), (5, 3))
NET = ob.nets.mlp(hidden=(4,), outputs=2)
PARAMS = NET.init(jax.random.key(1), X)
GAUSSIAN = ob.Gaussian(PARAMS, 0.1)
MIXTURE = ob.Mixture([GAUSSIAN, GAUSSIAN])
DRAWS = ob.Draws.stack([PARAMS] * 3)
SYMMETRY = ob.discover(NET.apply, PARAMS, X)


def loss(params, *_):
    return jnp.sum(params["Dense_0"]["bias"] ** 2)


CALLS = {
    "Gaussian.draw": lambda key: GAUSSIAN.draw(key),
    "Gaussian.sample": lambda key: GAUSSIAN.sample(key, 2),
    "Mixture.draw": lambda key: MIXTURE.draw(key),
    "Mixture.sample": lambda key: MIXTURE.sample(key, 2),
    "predict": lambda key: ob.predict(NET.apply, GAUSSIAN, X, key=key, num_samples=2),
    "predict with a mixture": lambda key: ob.predict(NET.apply, MIXTURE, X, key=key, num_samples=2),
    "barrier": lambda key: ob.barrier(loss, GAUSSIAN, GAUSSIAN, 2, key=key, num_samples=2),
    "bend": lambda key: ob.bend(loss, PARAMS, PARAMS, key, steps=1),
    "compact": lambda key: ob.compact(SYMMETRY, DRAWS, key=key),
    "compare": lambda key: ob.compare(SYMMETRY, GAUSSIAN, GAUSSIAN, key=key, num_samples=2),
    "Symmetry.random": lambda key: SYMMETRY.random(key),
    "random_permutation": lambda key: ob.random_permutation(key, 5, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_number_is_no_key(name):
    with pytest.raises(
        TypeError, match=r"key is an int.*one random key.*write jax.random.key\(3\)"
    ):
        CALLS[name](3)
    with pytest.raises(TypeError, match=r"array of shape \(2,\).*expected one random key"):
        CALLS[name](jax.random.split(jax.random.key(0)))


@pytest.mark.parametrize("name", CALLS)
def test_keys_of_both_kinds_are_taken(name):
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        CALLS[name](key)


def test_keys_may_be_traced():
    drawn = jax.jit(jax.vmap(GAUSSIAN.draw))(jax.random.split(jax.random.key(0), 3))
    assert drawn["Dense_0"]["kernel"].shape == (3, 3, 4)
    assert jax.vmap(SYMMETRY.random)(jax.random.split(jax.random.key(0), 3)).permutations
