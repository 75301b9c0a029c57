"""Perceptrons: activations, norms, gates, shared pieces, stacked parameters."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from onebasin import nets

from .case import Case, Model, drawn, factor, generic, linen, normal, plain

Array = jax.Array
Activation = Callable[[Array], Array]


class Layers(nn.Module):
    """Dense layers with anything between them."""

    layers: tuple[Any, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = nn.Dense(layer)(x) if isinstance(layer, int) else layer(x)
        return x


def on_rows(module: nn.Module) -> Model:
    return linen(module, normal(0, 11, 3))


def layers(*steps: Any) -> Model:
    return on_rows(Layers(steps))


def net(activation: str, bias: bool) -> Model:
    built = nets.mlp((5, 7), 2, activation, bias)
    inputs = normal(0, 11, 3)
    return built.apply, drawn(built.init, inputs), inputs


class TwoHeads(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        trunk = nn.relu(nn.Dense(5)(x))
        return nn.Dense(2)(trunk), nn.Dense(3)(nn.tanh(nn.Dense(7)(trunk)))


class Gated(nn.Module):
    """One matmul, split in halves, one of which gates the other."""

    gate: Activation
    bias: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        value, gate = jnp.split(nn.Dense(14, use_bias=self.bias)(x), 2, axis=-1)
        return nn.Dense(2)(value * self.gate(gate))


def identity(x: Array) -> Array:
    return x


class MixerBlock(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        y = nn.LayerNorm()(x).swapaxes(1, 2)
        y = nn.Dense(x.shape[1])(nn.gelu(nn.Dense(11)(y)))
        x = x + y.swapaxes(1, 2)
        y = nn.Dense(13)(nn.LayerNorm()(x))
        return x + nn.Dense(x.shape[2])(nn.gelu(y))


class Mixer(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = MixerBlock()(nn.Dense(7)(x))
        return nn.Dense(2)(nn.LayerNorm()(x).mean(axis=1))


def ensemble(mean: bool) -> Model:
    member = nets.mlp((5,), 2)
    inputs = normal(0, 11, 7)
    keys = jax.random.split(jax.random.key(0), 3)
    params = generic(jax.vmap(member.init, in_axes=(0, None))(keys, inputs))

    def apply(params: Any, inputs: Array) -> Array:
        outputs = jax.vmap(member.apply, in_axes=(0, None))(params, inputs)
        return outputs.mean(axis=0) if mean else outputs

    return apply, params, inputs


def dropout(params: Any, x: Array) -> Array:
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    keep = jax.random.bernoulli(jax.random.key(7), jnp.float32(0.6), hidden.shape)
    return jnp.where(keep, hidden / 0.6, 0.0) @ params["w2"]


TWO_LAYERS = {"w1": (3, 5), "b1": (5,), "w2": (5, 5), "b2": (5,), "w3": (5, 2)}


def one_mask(params: Any, inputs: tuple[Array, Array]) -> Array:
    x, flags = inputs
    mask = jnp.broadcast_to(flags[:, None], (x.shape[0], 5))
    x = jnp.where(mask, jax.nn.relu(x @ params["w1"] + params["b1"]), 0.0)
    x = jnp.where(mask, jax.nn.relu(x @ params["w2"] + params["b2"]), 0.0)
    return x @ params["w3"]


def one_gain(params: Any, x: Array) -> Array:
    x = params["gain"] * jax.nn.relu(x @ params["w1"] + params["b1"])
    x = params["gain"] * jax.nn.relu(x @ params["w2"] + params["b2"])
    return x @ params["w3"]


def per_activation() -> list[Case]:
    kinds = {"relu": "ps", "leaky_relu": "ps", "tanh": "pf", "gelu": "p", "silu": "p"}
    return [
        Case(
            f"mlp-{activation}{'' if bias else '-nobias'}",
            lambda activation=activation, bias=bias: net(activation, bias),  # type: ignore[misc]
            (factor(5, kind), factor(7, kind)),
            12 if "s" in kind else 0,
        )
        for activation, kind in kinds.items()
        for bias in (True, False)
    ]


batch_norm = nn.BatchNorm(use_running_average=True)

CASES = (
    *per_activation(),
    Case("mlp-linear", lambda: layers(5, 2), (factor(5, "psf"),), 5),
    Case(
        "two-heads",
        lambda: linen(TwoHeads(), normal(0, 11, 3)),
        (factor(5, "ps"), factor(7, "pf")),
        5,
    ),
    # LayerNorm mixes the units and is odd: it keeps one flip of all of them (weights and gain).
    Case(
        "mlp-layernorm-relu",
        lambda: layers(7, nn.LayerNorm(), nn.relu, 2),
        (factor(7, "ps"), factor(1, "f")),
        7,
    ),
    Case(
        "mlp-layernorm-gelu",
        lambda: layers(7, nn.LayerNorm(), nn.gelu, 2),
        (factor(7, "p"), factor(1, "f")),
        0,
    ),
    # Gain and bias against the next layer: scaling and flips per unit, beside the flip of all.
    Case(
        "mlp-layernorm-linear",
        lambda: layers(7, nn.LayerNorm(), 2),
        (factor(7, "psf"), factor(1, "f")),
        7,
    ),
    # Without a mean to subtract each unit flips alone: incoming weights and gain.
    Case("mlp-rmsnorm-relu", lambda: layers(7, nn.RMSNorm(), nn.relu, 2), (factor(7, "psf"),), 7),
    # (weights, running mean) against the gain is exact, since the variance is a parameter.
    Case("mlp-batchnorm-relu", lambda: layers(7, batch_norm, nn.relu, 2), (factor(7, "psf"),), 14),
    Case("mlp-batchnorm-gelu", lambda: layers(7, batch_norm, nn.gelu, 2), (factor(7, "psf"),), 7),
    Case("glu", lambda: on_rows(Gated(nn.sigmoid)), (factor(7, "psf"),), 7),
    Case(
        "swiglu",
        lambda: on_rows(Gated(nn.silu, bias=False)),
        (factor(7, "psf"),),
        7,
    ),
    Case("reglu", lambda: on_rows(Gated(nn.relu)), (factor(7, "psf"),), 14),
    Case(
        "bilinear-glu",
        lambda: on_rows(Gated(identity)),
        (factor(7, "psf"),),
        14,
        note="A unit may also swap its two halves: true, and no permutation of one index set.",
    ),
    # Tokens are inputs. The last two LayerNorms have a map over channels behind them: scaling and
    # flips per channel. The first has a map over tokens: there only all channels move together.
    # The stream flips as a whole.
    Case(
        "mlp-mixer",
        lambda: linen(Mixer(), normal(0, 2, 5, 3)),
        (factor(7, "psf"), factor(11, "p"), factor(13, "p"), factor(1, "sf"), factor(1, "f")),
        15,
        note="LayerNorm cannot see the bias that token mixing adds to all channels alike.",
    ),
    Case("ensemble", lambda: ensemble(mean=False), (factor(5, "ps", copies=3),), 15),
    Case(
        "ensemble-mean",
        lambda: ensemble(mean=True),
        (factor(3, "p"), factor(5, "ps", copies=3)),
        15,
    ),
    Case(
        "dropout-fixed-key",
        lambda: plain(dropout, {"w1": (3, 7), "b1": (7,), "w2": (7, 2)}, normal(0, 11, 3)),
        (factor(7, "s"),),
        7,
    ),
    Case(
        "one-mask-two-layers",
        lambda: plain(one_mask, TWO_LAYERS, (normal(0, 11, 3), normal(1, 11) > -0.5)),
        (factor(5, "ps"), factor(5, "ps")),
        10,
    ),
    # Per unit: layer 1, layer 2 and the gain scale freely, the next layers undo it; the gain flips.
    Case(
        "one-gain-two-layers",
        lambda: plain(one_gain, {**TWO_LAYERS, "gain": (5,)}, normal(0, 11, 3)),
        (factor(5, "psf"),),
        15,
    ),
)
