"""Predictions of every form of a posterior, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob

X = jax.random.normal(jax.random.key(0), (7, 3))


def nets(outputs: int = 2, count: int = 5) -> tuple[ob.Net, Any]:
    net = ob.nets.mlp(hidden=(4,), outputs=outputs)
    keys = jax.random.split(jax.random.key(1), count)
    return net, jax.vmap(lambda k: net.init(k, X))(keys)


def test_each_draw_predicts_as_its_network_does() -> None:
    net, stacked = nets()
    draws = ob.Draws(stacked)
    probs = ob.predict(net.apply, draws, X, batch_size=3)
    assert probs.shape == (5, 7, 2)
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-5)
    for network, expected in zip(draws, probs, strict=True):
        np.testing.assert_allclose(ob.predict(net.apply, network, X)[0], expected, rtol=1e-5)


def test_inputs_may_be_lists_of_numbers() -> None:
    net, stacked = nets()
    probs = ob.predict(net.apply, ob.Draws(stacked), X.tolist())
    np.testing.assert_allclose(probs, ob.predict(net.apply, ob.Draws(stacked), X), rtol=1e-5)
    for odd in (3.0, {"x": X, "flag": True}, {}):
        with pytest.raises(ValueError, match="expected arrays whose first axis is the example"):
            ob.predict(net.apply, ob.Draws(stacked), odd)


@pytest.mark.parametrize(("count", "batch_size"), [(5, 1000), (7, 1000), (3, 3)])
def test_stacked_parameters_are_to_be_wrapped(count: int, batch_size: int) -> None:
    net, stacked = nets(count=count)
    with pytest.raises(ValueError, match=r"several networks, stacked.*onebasin\.Draws\(params\)"):
        ob.predict(net.apply, stacked, X, batch_size=batch_size)


def test_other_errors_are_those_of_the_model() -> None:
    _, stacked = nets()
    with pytest.raises(KeyError, match="nothing"):
        ob.predict(lambda params, x: params["nothing"], ob.Draws(stacked)[0], X)


@pytest.mark.parametrize("form", ["network", "draws", "Gaussian", "Mixture"])
def test_one_output_has_no_softmax(form: str) -> None:
    net, stacked = nets(outputs=1)
    draws = ob.Draws(stacked)
    q = ob.fit_gaussian(draws)
    posterior = {
        "network": draws[0],
        "draws": draws,
        "Gaussian": q,
        "Mixture": ob.Mixture([q, q]),
    }[form]
    with pytest.raises(ValueError, match=r"one output for each example.*link='identity'"):
        ob.predict(net.apply, posterior, X)
    assert ob.predict(net.apply, posterior, X, link="identity").shape[1:] == (7, 1)


def test_outputs_without_an_axis_of_classes() -> None:
    """Their softmax would go over the examples."""
    net, stacked = nets(outputs=1)

    def flat(params: Any, x: Any) -> jax.Array:
        return jnp.squeeze(net.apply(params, x), -1)

    with pytest.raises(ValueError, match="one output for each example"):
        ob.predict(flat, ob.Draws(stacked), X)
    assert ob.predict(flat, ob.Draws(stacked), X, link="identity").shape == (5, 7)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_probabilities_of_half_precision_are_probabilities(dtype: Any) -> None:
    net, stacked = nets(outputs=5)
    draws = ob.Draws(jax.tree.map(lambda x: x.astype(dtype), stacked))
    probs = ob.predict(net.apply, draws, X.astype(dtype))
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-5)
    assert 0 <= float(ob.metrics.accuracy(jnp.zeros(7, int), probs)) <= 1


def test_outcomes_and_networks_are_to_be_unwrapped() -> None:
    net, stacked = nets()
    draws = ob.Draws(stacked)
    symmetry = ob.discover(net.apply, draws[0], X)
    for outcome, part in (
        (ob.compact(symmetry, draws), "posterior"),
        (ob.align(symmetry, draws[0], to=draws[1]), "params"),
        (ob.align_many(symmetry, draws), "draws"),
    ):
        with pytest.raises(TypeError, match=rf"pass its \.{part}"):
            ob.predict(net.apply, outcome, X)
        with pytest.raises(TypeError, match=rf"pass its \.{part}"):
            ob.canonicalize(symmetry, outcome)
        assert ob.predict(net.apply, getattr(outcome, part), X).shape[1:] == (7, 2)
    with pytest.raises(TypeError, match=r"pass its \.apply"):
        ob.predict(net, draws, X)
