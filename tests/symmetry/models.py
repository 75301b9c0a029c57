"""Small plain models whose groups have every shape that elements can take."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from zoo.case import Model, normal, plain
from zoo.recurrent import residual_scan

import onebasin as ob

Array = jax.Array
Params = dict[str, Array]

UNITS = {"w": (3, 4), "b": (4,), "v": (4, 2)}


def units(between: Callable[[Array], Array], shapes: dict[str, Any] = UNITS) -> Model:
    """x -> x @ w + b -> `between` -> @ v."""

    def apply(params: Params, x: Array) -> Array:
        return between(x @ params["w"] + params["b"]) @ params["v"]

    return plain(apply, shapes, normal(0, 5, 3))


def heads(params: Params, x: Array) -> Array:
    """Each head permutes, scales and flips dimensions of its own."""
    query, key, value = (jnp.einsum("btm,mhd->bthd", x, params[name]) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", query, key))
    return jnp.einsum("bhts,bshd,hdm->btm", weights, value, params["out"])


def packed(params: Params, x: Array) -> Array:
    """Queries, keys and values from one matrix: blocks of a leaf that move apart."""
    qkv = (x @ params["qkv"]).reshape(*x.shape[:2], 3, 2, 3)
    query, key, value = (qkv[:, :, i] for i in range(3))
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", query, key))
    mixed = jnp.einsum("bhts,bshd->bthd", weights, value)
    return mixed.reshape(*x.shape[:2], 6) @ params["out"]


def grouped(params: Params, x: Array) -> Array:
    """Channels in three groups; each group permutes its own."""

    def conv(x: Array, kernel: Array, groups: int) -> Array:
        return lax.conv_general_dilated(
            x,
            kernel,
            (1,),
            "SAME",
            dimension_numbers=("NHC", "HIO", "NHC"),
            feature_group_count=groups,
        )

    x = jax.nn.relu(conv(x, params["first"], 1))
    x = jax.nn.relu(conv(x, params["second"], 3))
    return x.mean(axis=1) @ params["out"]


def batch_norm(params: Params, x: Array) -> Array:
    """Running statistics as parameters: two scalings and a flip of each unit."""
    x = (x @ params["w"] - params["mean"]) * lax.rsqrt(params["var"] ** 2 + 1e-3)
    return jax.nn.relu(x * params["gain"] + params["bias"]) @ params["v"]


def dense_net(params: Params, x: Array) -> Array:
    """A leaf that reads two index sets laid end to end."""
    first = jax.nn.relu(x @ params["first"])
    second = jnp.tanh(jnp.concatenate([first, x], axis=-1) @ params["second"])
    return jnp.concatenate([first, second], axis=-1) @ params["out"]


def interleaved(params: Params, x: Array) -> Array:
    """Even entries gate odd ones: the blocks of a leaf are not contiguous."""
    h = (x @ params["w"]).reshape(x.shape[0], 4, 2)
    return (jax.nn.relu(h[..., 0]) * h[..., 1]) @ params["v"]


def nested(params: Params, x: Array) -> Array:
    """Ensembles of experts of units: a wreath product three deep."""
    h = jax.nn.relu(jnp.einsum("bi,meiu->bmeu", x, params["w"]))
    h = jnp.tanh(jnp.einsum("bmeu,meu->bme", h, params["v"]))
    return jax.nn.gelu(jnp.einsum("bme,me->bm", h, params["mix"])).sum(-1, keepdims=True)


def linear_recurrence(params: Params, xs: Array) -> Array:
    """As in LRU: a complex diagonal state, its size and its turn with parameters of their own."""
    turn = jnp.exp(-jnp.exp(params["nu"]) + 1j * jnp.exp(params["theta"]))
    driven = (xs @ (params["re"] + 1j * params["im"])) * jnp.exp(params["gamma"])

    def step(state: Array, u: Array) -> tuple[Array, Array]:
        state = turn * state + u
        return state, state

    _, states = lax.scan(step, jnp.zeros(turn.shape, turn.dtype), driven)
    return (states @ (params["out_re"] + 1j * params["out_im"])).real


RECURRENCE = {
    **dict.fromkeys(("nu", "theta", "gamma"), (4,)),
    **dict.fromkeys(("re", "im"), (3, 4)),
    **dict.fromkeys(("out_re", "out_im"), (4, 2)),
}
ATTENTION = {**dict.fromkeys("qkv", (5, 2, 3)), "out": (2, 3, 4)}
BATCH_NORM = {"w": (3, 4), **dict.fromkeys(("mean", "var", "gain", "bias"), (4,)), "v": (4, 2)}
SCAN = {"in": (3, 4), "w1": (2, 4, 3), "b1": (2, 3), "w2": (2, 3, 4), "out": (4, 2)}

MODELS: dict[str, Callable[[], Model]] = {
    "relu": lambda: units(jax.nn.relu),
    "tanh": lambda: units(jnp.tanh),
    "heads": lambda: plain(heads, ATTENTION, normal(0, 2, 3, 5)),
    "packed": lambda: plain(packed, {"qkv": (5, 18), "out": (6, 4)}, normal(0, 2, 3, 5)),
    "grouped": lambda: plain(
        grouped, {"first": (3, 2, 6), "second": (3, 2, 9), "out": (9, 2)}, normal(0, 2, 5, 2)
    ),
    "scan": lambda: plain(residual_scan, SCAN, normal(0, 5, 3)),
    "batch norm": lambda: plain(batch_norm, BATCH_NORM, normal(0, 5, 3)),
    "dense net": lambda: plain(
        dense_net, {"first": (3, 4), "second": (7, 5), "out": (9, 2)}, normal(0, 5, 3)
    ),
    "interleaved": lambda: plain(interleaved, {"w": (3, 8), "v": (4, 2)}, normal(0, 5, 3)),
    "linear recurrence": lambda: plain(linear_recurrence, RECURRENCE, normal(0, 5, 3)),
    "nested": lambda: plain(
        nested, {"w": (2, 3, 3, 4), "v": (2, 3, 4), "mix": (2, 3)}, normal(0, 5, 3)
    ),
}


def still(sym: ob.Symmetry, path: str) -> ob.Symmetry:
    """The group that does not move a leaf, which it ought to."""
    leaves = tuple(
        dataclasses.replace(leaf, blocks=()) if leaf.path == path else leaf for leaf in sym.leaves
    )
    return dataclasses.replace(sym, leaves=leaves)
