"""Four models, each in NNX, in Equinox and as plain functions: the same group each time.

Flax Linen has them too: `mlp-relu`, `cnn-max-pool-relu`, `gru-linen` and `encoder`.
"""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx

from .case import Case, Model, factor, generic, normal, plain
from .recurrent import GRU as GRU_SHAPES
from .recurrent import gru as plain_gru

Array = jax.Array
Params = dict[str, Array]


def from_nnx(module: nnx.Module, inputs: Array) -> Model:
    parts: Any = nnx.split(module, nnx.Param, ...)
    graph, params, rest = parts

    def apply(params: Any, inputs: Array) -> Array:
        return nnx.merge(graph, params, rest)(inputs)

    return apply, generic(params), inputs


def from_equinox(module: eqx.Module, inputs: Array) -> Model:
    params, static = eqx.partition(module, eqx.is_inexact_array)

    def apply(params: Any, inputs: Array) -> Array:
        return jax.vmap(eqx.combine(params, static))(inputs)

    return apply, generic(params), inputs


def nnx_mlp() -> Model:
    rngs = nnx.Rngs(0)
    sizes = (3, 5, 7, 2)
    linear = [nnx.Linear(a, b, rngs=rngs) for a, b in itertools.pairwise(sizes)]
    module = nnx.Sequential(linear[0], jax.nn.relu, linear[1], jax.nn.relu, linear[2])
    return from_nnx(module, normal(0, 11, 3))


def equinox_mlp() -> Model:
    keys = jax.random.split(jax.random.key(0), 3)
    module = eqx.nn.Sequential(
        [
            eqx.nn.Linear(3, 5, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Linear(5, 7, key=keys[1]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Linear(7, 2, key=keys[2]),
        ]
    )
    return from_equinox(module, normal(0, 11, 3))


def plain_mlp(params: list[tuple[Array, Array]], x: Array) -> Array:
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = params[-1]
    return x @ weights + bias


def plain_mlp_model() -> Model:
    sizes = (3, 5, 7, 2)
    params = [(normal(a, a, b), normal(b, b)) for a, b in itertools.pairwise(sizes)]
    return plain_mlp, params, normal(0, 11, 3)


class NNXCNN(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, 3, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(3, 5, (3, 3), rngs=rngs)
        self.dense = nnx.Linear(2 * 3 * 5, 7, rngs=rngs)
        self.head = nnx.Linear(7, 2, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        for conv in (self.conv1, self.conv2):
            x = nnx.max_pool(nnx.relu(conv(x)), (2, 2), strides=(2, 2))
        x = nnx.relu(self.dense(x.reshape(x.shape[0], -1)))
        return self.head(x)


def equinox_cnn() -> Model:
    keys = jax.random.split(jax.random.key(0), 4)
    module = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 3, 3, padding=1, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, stride=2),
            eqx.nn.Conv2d(3, 5, 3, padding=1, key=keys[1]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, stride=2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(5 * 2 * 3, 7, key=keys[2]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Linear(7, 2, key=keys[3]),
        ]
    )
    return from_equinox(module, normal(0, 2, 1, 8, 12))


def plain_cnn(params: Params, x: Array) -> Array:
    for name in ("1", "2"):
        x = jax.lax.conv_general_dilated(
            x, params["w" + name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + params["b" + name])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ params["w3"] + params["b3"])
    return x @ params["w4"] + params["b4"]


CNN_SHAPES = {
    "w1": (3, 3, 1, 3),
    "b1": (3,),
    "w2": (3, 3, 3, 5),
    "b2": (5,),
    "w3": (30, 7),
    "b3": (7,),
    "w4": (7, 2),
    "b4": (2,),
}


class NNXGRU(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.rnn = nnx.RNN(nnx.GRUCell(3, 5, rngs=rngs), rngs=rngs)
        self.head = nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, xs: Array) -> Array:
        start = jnp.zeros((xs.shape[0], 5), xs.dtype)
        return self.head(self.rnn(xs, initial_carry=start)[:, -1])


class EquinoxGRU(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __call__(self, xs: Array) -> Array:
        def step(hidden: Array, x: Array) -> tuple[Array, None]:
            return self.cell(x, hidden), None

        hidden, _ = jax.lax.scan(step, jnp.zeros(5, xs.dtype), xs)
        return self.head(hidden)


def equinox_gru() -> Model:
    cell_key, head_key = jax.random.split(jax.random.key(0))
    module = EquinoxGRU(eqx.nn.GRUCell(3, 5, key=cell_key), eqx.nn.Linear(5, 2, key=head_key))
    return from_equinox(module, normal(0, 2, 4, 3))


class NNXEncoder(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Linear(10, 7, rngs=rngs)
        self.positions = nnx.Param(jax.random.normal(rngs.params(), (4, 7)))
        self.norms = nnx.List([nnx.LayerNorm(7, rngs=rngs) for _ in range(3)])
        self.attention = nnx.MultiHeadAttention(3, 7, 15, 7, decode=False, rngs=rngs)
        self.up = nnx.Linear(7, 11, rngs=rngs)
        self.down = nnx.Linear(11, 7, rngs=rngs)
        self.head = nnx.Linear(7, 8, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        x = self.embed(x) + self.positions[...]
        x = x + self.attention(self.norms[0](x))
        x = x + self.down(nnx.gelu(self.up(self.norms[1](x))))
        return self.head(self.norms[2](x).mean(axis=1))


class EquinoxEncoder(eqx.Module):
    embed: eqx.nn.Linear
    positions: Array
    norms: list[eqx.nn.LayerNorm]
    attention: eqx.nn.MultiheadAttention
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key: Array) -> None:
        keys = jax.random.split(key, 6)
        self.embed = eqx.nn.Linear(10, 7, key=keys[0])
        self.positions = jax.random.normal(keys[1], (4, 7))
        self.norms = [eqx.nn.LayerNorm(7) for _ in range(3)]
        self.attention = eqx.nn.MultiheadAttention(
            3,
            7,
            qk_size=5,
            vo_size=5,
            use_query_bias=True,
            use_key_bias=True,
            use_value_bias=True,
            use_output_bias=True,
            key=keys[2],
        )
        self.up = eqx.nn.Linear(7, 11, key=keys[3])
        self.down = eqx.nn.Linear(11, 7, key=keys[4])
        self.head = eqx.nn.Linear(7, 8, key=keys[5])

    def __call__(self, x: Array) -> Array:
        def mlp(token: Array) -> Array:
            return self.down(jax.nn.gelu(self.up(token)))

        x = jax.vmap(self.embed)(x) + self.positions
        normed = jax.vmap(self.norms[0])(x)
        x = x + self.attention(normed, normed, normed)
        x = x + jax.vmap(mlp)(jax.vmap(self.norms[1])(x))
        return self.head(jax.vmap(self.norms[2])(x).mean(axis=0))


def layer_norm(params: Params, name: str, x: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    x = centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
    return x * params[name + "_gain"] + params[name + "_bias"]


def plain_encoder(params: Params, x: Array) -> Array:
    x = x @ params["embed"] + params["positions"]
    y = layer_norm(params, "norm1", x)
    query, key, value = (jnp.einsum("btm,mhd->bhtd", y, params[name]) for name in "qkv")
    scores = jax.nn.softmax(query @ key.swapaxes(-1, -2) / jnp.sqrt(5.0), axis=-1)
    x = x + jnp.einsum("bhtd,hdm->btm", scores @ value, params["out"])
    y = jax.nn.gelu(layer_norm(params, "norm2", x) @ params["up"] + params["up_bias"])
    x = x + y @ params["down"]
    return layer_norm(params, "norm3", x).mean(axis=1) @ params["head"]


ENCODER_SHAPES = {
    "embed": (10, 7),
    "positions": (4, 7),
    **{f"norm{i}_{part}": (7,) for i in (1, 2, 3) for part in ("gain", "bias")},
    **dict.fromkeys("qkv", (7, 3, 5)),
    "out": (3, 5, 7),
    "up": (7, 11),
    "up_bias": (11,),
    "down": (11, 7),
    "head": (7, 8),
}

MLP = (factor(5, "ps"), factor(7, "ps")), 12
CNN = (factor(3, "ps"), factor(5, "ps"), factor(7, "ps")), 15
GRU = (factor(5, "pf"),), 0
ENCODER = (
    (
        factor(7, "psf"),
        factor(3, "p"),
        factor(5, "psf", copies=3),
        factor(5, "psf", copies=3),
        factor(11, "p"),
        factor(1, "f"),
    ),
    3 * 7 + 2 * 15,
)
XS = (6, 4, 10)
BUILDS: tuple[tuple[str, Callable[[], Model], Any], ...] = (
    ("mlp-nnx", nnx_mlp, MLP),
    ("mlp-equinox", equinox_mlp, MLP),
    ("mlp-plain", plain_mlp_model, MLP),
    ("cnn-nnx", lambda: from_nnx(NNXCNN(nnx.Rngs(0)), normal(0, 2, 8, 12, 1)), CNN),
    ("cnn-equinox", equinox_cnn, CNN),
    ("cnn-plain", lambda: plain(plain_cnn, CNN_SHAPES, normal(0, 2, 8, 12, 1)), CNN),
    ("gru-nnx", lambda: from_nnx(NNXGRU(nnx.Rngs(0)), normal(0, 2, 4, 3)), GRU),
    ("gru-equinox", equinox_gru, GRU),
    ("gru-plain", lambda: plain(plain_gru, GRU_SHAPES, normal(0, 2, 4, 3)), GRU),
    ("encoder-nnx", lambda: from_nnx(NNXEncoder(nnx.Rngs(0)), normal(0, *XS)), ENCODER),
    (
        "encoder-equinox",
        lambda: from_equinox(EquinoxEncoder(jax.random.key(0)), normal(0, *XS)),
        ENCODER,
    ),
    ("encoder-plain", lambda: plain(plain_encoder, ENCODER_SHAPES, normal(0, *XS)), ENCODER),
)

CASES = tuple(Case(name, build, *expected) for name, build, expected in BUILDS)
