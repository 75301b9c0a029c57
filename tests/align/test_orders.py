"""Units in another order, in rows of groups and across layers: planted elements are found again."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from zoo.case import Model, normal, plain

import onebasin as ob

Array = jax.Array
Params = dict[str, Array]


def in_another_order(x: Array, groups: int) -> Array:
    return x.reshape(len(x), groups, -1).swapaxes(1, 2).reshape(x.shape)


def shuffled(params: Params, x: Array) -> Array:
    """Two layers with channels shuffled behind each."""
    x = in_another_order(jax.nn.relu(x @ params["a"]) + params["b"], 2)
    return in_another_order(jnp.tanh(x @ params["c"]), 3) @ params["d"]


def shuffled_in_groups(params: Params, x: Array) -> Array:
    """Groups of a shuffled axis, each with units of its own."""
    x = in_another_order(jax.nn.relu(x @ params["a"]), 3)
    return jnp.einsum("bgi,gio->bo", jnp.tanh(x.reshape(-1, 2, 6)), params["v"])


def grouped_rows(params: Params, x: Array) -> Array:
    """Two experts for the first rows and for the next ones."""
    sizes = jnp.array([len(x) // 2, len(x) - len(x) // 2])
    hidden = jnp.tanh(lax.ragged_dot(x, params["w"], sizes))
    return lax.ragged_dot(hidden, params["v"], sizes)


def normalised_together(params: Params, x: Array) -> Array:
    """Two layers laid end to end and normalised in groups that do not end where they do."""
    both = jnp.concatenate([jax.nn.relu(x @ params["a"]), jnp.tanh(x @ params["c"])], axis=-1)
    parts = both.reshape(len(x), 2, -1)
    parts = parts / jnp.sqrt(jnp.mean(parts**2, axis=-1, keepdims=True) + 1e-3)
    return jax.nn.gelu(parts.reshape(both.shape) * params["g"]) @ params["v"]


X = normal(0, 48, 3)
MODELS: dict[str, Callable[[], Model]] = {
    "shuffled": lambda: plain(shuffled, {"a": (3, 6), "b": (6,), "c": (6, 6), "d": (6, 4)}, X),
    "shuffled in groups": lambda: plain(shuffled_in_groups, {"a": (3, 12), "v": (2, 6, 4)}, X),
    "rows in groups": lambda: plain(grouped_rows, {"w": (2, 3, 5), "v": (2, 5, 4)}, X),
    "normalised together": lambda: plain(
        normalised_together, {"a": (3, 8), "c": (3, 4), "g": (12,), "v": (12, 4)}, X
    ),
}


@pytest.mark.parametrize("cost", ["weights", "activations", "contributions"])
@pytest.mark.parametrize("name", MODELS)
def test_planted_elements_are_found(name: str, cost: str) -> None:
    apply_fn, params, inputs = MODELS[name]()
    sym = ob.discover(apply_fn, params, inputs)
    moved = sym.act(sym.random(jax.random.key(3)), params)
    data: dict[str, Any] = {} if cost == "weights" else {"apply_fn": apply_fn, "inputs": inputs}
    found = ob.align(sym, moved, params, cost=cost, **data).params
    for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def recurrence(params: Params, x: Array) -> Array:
    turn, weights = (params[n] + 1j * params[f"{n} turned"] for n in ("turn", "weights"))
    start = jnp.zeros(turn.shape, weights.dtype)
    states = lax.scan(lambda h, u: (turn * h + u, turn * h), start, x @ weights)[1]
    return (states @ (params["out"] + 0j)).real


def test_complex_values_are_not_compared_by_half() -> None:
    shapes = {**dict.fromkeys(("turn", "turn turned"), (4,)), "out": (4, 2)}
    shapes |= dict.fromkeys(("weights", "weights turned"), (3, 4))
    apply_fn, params, inputs = plain(recurrence, shapes, normal(0, 5, 3))
    sym = ob.discover(apply_fn, params, inputs)
    assert ob.align(sym, params, params, cost="weights").params is not None
    with pytest.raises(ValueError, match="cannot see factor"):
        ob.align(sym, params, params, cost="correlation", apply_fn=apply_fn, inputs=inputs)
