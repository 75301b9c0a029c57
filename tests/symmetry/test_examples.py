"""The proof of a discovered group does not grow with the batch, and sees examples that mix."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo.case import normal, plain

import onebasin as ob
from onebasin.symmetry.discover import read
from onebasin.symmetry.verify import check_discovered

Array = jax.Array
Params = dict[str, Array]
SHAPES = {"w": (3, 4), "v": (4, 2)}
BATCH = 40


def watched(apply: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """A model that writes down how many examples it was traced with."""
    seen: list[int] = []

    def model(params: Params, inputs: Any) -> Any:
        seen.append(jax.tree.leaves(inputs)[0].shape[0])
        return apply(params, inputs)

    return model, seen


def relu(params: Params, x: Array) -> Array:
    return jax.nn.relu(x @ params["w"]) @ params["v"]


def tree(params: Params, inputs: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    """Keys and integers beside numbers, and an output that examples do not go into."""
    noise = jax.vmap(lambda k: jax.random.normal(k, (3,)))(inputs["key"])
    h = (inputs["x"] + inputs["token"][:, None] + noise) @ params["w"]
    return jax.nn.relu(h) @ params["v"], {"kept": params["state"]}


TREE = {
    "x": normal(0, BATCH, 3),
    "token": jnp.arange(BATCH) % 3,
    "key": jax.random.split(jax.random.key(0), BATCH),
}


@pytest.mark.parametrize(
    ("apply", "shapes", "inputs"),
    [
        (relu, SHAPES, normal(0, BATCH, 3)),
        (relu, SHAPES, np.zeros((BATCH, 3), np.float32)),
        (relu, SHAPES, jax.ShapeDtypeStruct((BATCH, 3), jnp.float32)),
        (tree, {**SHAPES, "state": (5,)}, TREE),
    ],
)
def test_two_examples_are_enough(
    apply: Callable[..., Any], shapes: dict[str, tuple[int, ...]], inputs: Any
) -> None:
    model, seen = watched(apply)
    sym = ob.discover(model, plain(apply, shapes, inputs)[1], inputs)
    assert sym.scaling_dimension() == 4
    assert seen[0] == BATCH
    assert set(seen[1:]) == {2}


def batch_norm(params: Params, x: Array) -> Array:
    h = x @ params["w"]
    return jax.nn.relu((h - h.mean(0)) / h.std(0)) @ params["v"]


def attention(params: Params, x: Array) -> Array:
    h = jax.nn.relu(x @ params["w"])
    return jax.nn.softmax(x @ x.T) @ h @ params["v"]


def recurrent(params: Params, x: Array) -> Array:
    def step(h: Array, row: Array) -> tuple[Array, Array]:
        h = jax.nn.relu(row @ params["w"] + 0.5 * h)
        return h, h @ params["v"]

    return jax.lax.scan(step, jnp.zeros(4, x.dtype), x)[1]


def averaged(params: Params, x: Array) -> Array:
    return relu(params, x).mean(0)


def baked_in(params: Params, x: Array) -> Array:
    return relu(params, x.reshape(BATCH, 3))


def by_size(params: Params, x: Array) -> Array:
    return relu(params, x) if len(x) > 5 else jnp.tanh(x @ params["w"]) @ params["v"]


@pytest.mark.parametrize("apply", [batch_norm, attention, recurrent, averaged, baked_in, by_size])
def test_models_that_need_all_examples_are_proved_on_all(apply: Callable[..., Any]) -> None:
    inputs = normal(0, BATCH, 3)
    model, seen = watched(apply)
    sym = ob.discover(model, plain(apply, SHAPES, inputs)[1], inputs)
    assert seen[-1] == BATCH
    assert sym.factors[0].size == 4
    assert "permutation" in sym.factors[0].kinds


def normalised_tanh(params: Params, x: Array) -> Array:
    """With two examples each unit is 1 on the one and -1 on the other, whatever its scale."""
    h = jnp.tanh(x @ params["w"])
    return ((h - h.mean(0)) / h.std(0)) @ params["v"]


def normalised(params: Params, x: Array) -> Array:
    h = x @ params["w"]
    return ((h - h.mean(0)) / h.std(0)) @ params["v"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [(relu, lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"]), (normalised, normalised_tanh)],
)
def test_a_false_group_is_caught(right: Callable[..., Any], wrong: Callable[..., Any]) -> None:
    _, params, inputs = plain(right, SHAPES, normal(0, BATCH, 3))
    sym = ob.discover(right, params, inputs)
    with pytest.raises(ob.SymmetryError, match="factor 'w' breaks it"):
        check_discovered(sym, read(wrong, params, inputs), wrong, params, inputs)


def test_check_symmetry_sees_every_example() -> None:
    def odd(params: Params, x: Array) -> Array:
        h = x @ params["w"]
        return jnp.where(x[:, :1] > 50, jnp.tanh(h), jax.nn.relu(h)) @ params["v"]

    inputs = normal(0, BATCH, 3).at[7].set(100.0)
    _, params, _ = plain(relu, SHAPES, inputs)
    sym = ob.discover(relu, params, inputs)
    with pytest.raises(ob.SymmetryError, match="does not hold"):
        ob.check_symmetry(sym, odd, params, inputs)
