"""Loops over layers, written out: the same numbers, and the units of every layer."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.symmetry.program import evaluate, trace
from onebasin.symmetry.unroll import unrolled


def drawn(**shapes):
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {n: jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items(), strict=True)}


def layers(params, inputs, reverse=False):
    """A layer per step; what every step gives is read as well."""

    def layer(hidden, own):
        weights, bias = own
        hidden = jax.nn.relu(hidden @ weights + bias + params["shift"])
        return hidden, hidden.sum(axis=-1)

    start = jax.nn.relu(inputs @ params["in"])
    last, sums = jax.lax.scan(layer, start, (params["w"], params["b"]), reverse=reverse)
    return last @ params["out"], sums


PARAMS = drawn(**{"in": (2, 4), "w": (3, 4, 4), "b": (3, 4), "out": (4, 3), "shift": (1,)})
INPUTS = jax.random.normal(jax.random.key(1), (5, 2))


@pytest.mark.parametrize("reverse", [False, True])
def test_the_same_numbers(reverse):
    program = trace(lambda p, x: layers(p, x, reverse), PARAMS, INPUTS)
    leaves = jax.tree.leaves(PARAMS)
    longer = unrolled(program, program.inputs[: len(leaves)])
    assert longer is not None
    assert not any(equation.name == "scan" for equation in longer.equations)
    for own, other in zip(
        *(evaluate(p, [*leaves, INPUTS], p.outputs) for p in (program, longer)), strict=True
    ):
        np.testing.assert_allclose(own, other, rtol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_each_layer_has_units_of_its_own(reverse):
    symmetry = ob.discover(lambda p, x: layers(p, x, reverse)[0], PARAMS, INPUTS)
    assert symmetry.log_copies() == pytest.approx(4 * math.lgamma(5))
    moved = symmetry.act(symmetry.random(jax.random.key(2)), PARAMS)
    assert ob.align(symmetry, moved, to=PARAMS).cost < 1e-6


def test_units_inside_are_seen_at_work():
    def model(params, inputs):
        return layers(params, inputs)[0]

    symmetry = ob.discover(model, PARAMS, INPUTS)
    moved = symmetry.act(symmetry.random(jax.random.key(3)), PARAMS)
    inputs = jax.random.normal(jax.random.key(4), (64, 2))
    at_work = {"apply_fn": model, "inputs": inputs}
    assert ob.align(symmetry, moved, to=PARAMS, cost="contributions", **at_work).cost < 1e-3


def test_a_matrix_that_all_steps_share_ties_them():
    def shared(params, inputs):
        def step(hidden, bias):
            return jax.nn.relu(hidden @ params["w"] + bias), None

        return jax.lax.scan(step, inputs @ params["in"], params["b"])[0] @ params["out"]

    params = drawn(**{"in": (2, 4), "w": (4, 4), "b": (3, 4), "out": (4, 3)})
    symmetry = ob.discover(shared, params, INPUTS)
    assert symmetry.log_copies() == pytest.approx(math.lgamma(5))


def test_loops_that_stay():
    """Those over data, and long ones."""

    def recurrent(params, inputs):
        def step(hidden, x):
            return jnp.tanh(x[None] @ params["in"] + hidden @ params["w"][0]), None

        return jax.lax.scan(step, jnp.zeros((1, 4)), inputs)[0] @ params["out"]

    program = trace(recurrent, PARAMS, INPUTS)
    assert unrolled(program, program.inputs[: len(PARAMS)]) is None
    long = drawn(**{"in": (2, 4), "w": (40, 4, 4), "b": (40, 4), "out": (4, 3), "shift": (1,)})
    program = trace(layers, long, INPUTS)
    assert unrolled(program, program.inputs[: len(long)]) is None
