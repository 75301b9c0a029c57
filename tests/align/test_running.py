"""Running statistics of models that keep them under names of their own, and how they are reset."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from onebasin.align import reset_batch_norm

INPUTS = 2 + jax.random.normal(jax.random.key(0), (40, 3))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(3, 5, rngs=rngs)
        self.first = nnx.BatchNorm(5, rngs=rngs)
        self.middle = nnx.Linear(5, 4, rngs=rngs)
        self.second = nnx.BatchNorm(4, use_scale=False, use_bias=False, rngs=rngs)
        self.outer = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.first(self.inner(x)))
        return self.outer(nnx.relu(self.second(self.middle(x))))


class Equinox(eqx.Module):
    inner: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    outer: eqx.nn.Linear

    def __init__(self, key, mode):
        keys = jax.random.split(key)
        self.inner = eqx.nn.Linear(3, 5, key=keys[0])
        self.norm = eqx.nn.BatchNorm(5, axis_name="batch", mode=mode)
        self.outer = eqx.nn.Linear(5, 2, key=keys[1])

    def __call__(self, x, state):
        x, state = self.norm(self.inner(x), state)
        return self.outer(jax.nn.relu(x)), state


def nnx_model(train=False):
    """The graph, the state of a network that has not run yet, and both as a function."""
    model = Nnx(nnx.Rngs(0))
    model.train() if train else model.eval()
    graph, state = nnx.split(model)
    return graph, state, lambda p, x: nnx.merge(graph, p)(x)


def equinox_model(mode):
    model, state = eqx.nn.make_with_state(Equinox)(jax.random.key(0), mode)
    params, static = eqx.partition((eqx.nn.inference_mode(model), state), eqx.is_array)

    def apply(params, x):
        model, state = eqx.combine(params, static)
        return jax.vmap(lambda one: model(one, state)[0], axis_name="batch")(x)

    return params, apply


def test_an_nnx_state_is_reset():
    graph, state, apply = nnx_model()
    found = reset_batch_norm(apply, state, INPUTS, batch_size=7).repaired
    assert jax.tree.structure(found) == jax.tree.structure(state)
    trained = nnx.merge(graph, found)
    trained.train()
    np.testing.assert_allclose(apply(found, INPUTS), trained(INPUTS), atol=1e-4)
    assert np.max(np.abs(apply(state, INPUTS) - apply(found, INPUTS))) > 0.1


def test_so_is_one_without_the_types_of_its_variables():
    _, state, apply = nnx_model()

    def plain(params, x):
        typed = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(params))
        return apply(typed, x)

    found = reset_batch_norm(plain, nnx.to_pure_dict(state), INPUTS).repaired
    whole = reset_batch_norm(apply, state, INPUTS).repaired
    for a, b in zip(*map(jax.tree.leaves, (found, whole)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_an_equinox_model_is_reset():
    params, apply = equinox_model("ema")
    found = reset_batch_norm(apply, params, INPUTS)
    inner = params[0].inner
    values = INPUTS @ inner.weight.T + inner.bias
    mean, variance = (leaf for leaf in jax.tree.leaves(found.repaired[1]) if leaf.shape == (5,))
    np.testing.assert_allclose(mean, values.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(variance, values.var(axis=0), rtol=1e-4)
    for a, b in zip(*map(jax.tree.leaves, (found.repaired[0], params[0])), strict=True):
        np.testing.assert_array_equal(a, b)


def test_statistics_that_are_not_subtracted_as_they_are_are_not_guessed_at():
    """Equinox divides them by a number that counts batches."""
    params, apply = equinox_model("batch")
    with pytest.raises(ValueError, match=r"root of '1/1/1' that no single leaf .* statistics_fn"):
        reset_batch_norm(apply, params, INPUTS)


@pytest.mark.parametrize("model", ["nnx", "equinox"])
def test_a_function_of_the_users_own_is_the_way_out(model):
    if model == "nnx":
        _, params, apply = nnx_model(train=True)
        with pytest.raises(ValueError, match="training mode"):
            reset_batch_norm(apply, params, INPUTS)
    else:
        params, apply = equinox_model("batch")
    doubled = jax.tree.map(lambda x: 2 * x, params)
    found = reset_batch_norm(apply, params, INPUTS, statistics_fn=lambda p, x: doubled)
    assert found.repaired is doubled
    assert found.raw is params
    with pytest.raises(ValueError, match="what statistics_fn gives"):
        reset_batch_norm(apply, params, INPUTS, statistics_fn=lambda p, x: {"mean": jnp.ones(5)})


def test_one_mean_under_two_layers_is_refused():
    def apply(params, x):
        for _ in range(2):
            x = (x - params["m"]) / jnp.sqrt(params["v"] + 1e-5)
        return x

    params = {"m": jnp.zeros(3), "v": jnp.ones(3)}
    with pytest.raises(ValueError, match="'m' is subtracted in two places"):
        reset_batch_norm(apply, params, INPUTS)


def test_layer_norm_has_no_running_statistics():
    def apply(params, x):
        x = x @ params["w"]
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * params["scale"] - params["shift"]

    params = {"w": jnp.ones((3, 4)), "scale": jnp.ones(4), "shift": jnp.zeros(4)}
    with pytest.raises(ValueError, match="networks without BatchNorm take repair"):
        reset_batch_norm(apply, params, INPUTS)
