"""Convolutional networks."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from onebasin import nets

from .case import Case, Factor, Model, drawn, factor, linen, normal

Array = jax.Array


def net(built: nets.Net, *shape: int) -> Model:
    inputs = normal(0, *shape)
    return built.apply, drawn(built.init, inputs), inputs


def pixels(x: Array) -> Array:
    return x.mean(axis=(1, 2))


def conv(features: int, **kwargs: Any) -> nn.Conv:
    return nn.Conv(features, (3, 3), **kwargs)


class Grouped(nn.Module):
    """A convolution in groups between two others."""

    channels: int
    groups: int
    features: int
    last: int | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.relu(conv(self.channels)(x))
        x = nn.relu(conv(self.features, feature_group_count=self.groups)(x))
        if self.last:
            x = nn.relu(nn.Conv(self.last, (1, 1))(x))
        return nn.Dense(2)(pixels(x))


class DenseNet(nn.Module):
    """Each layer reads the concatenation of all before it."""

    batch_norm: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        def activate(features: list[Array]) -> Array:
            x = jnp.concatenate(features, axis=-1)
            return nn.relu(nn.BatchNorm(use_running_average=True)(x) if self.batch_norm else x)

        features = [conv(3)(x)]
        for growth in (5, 7):
            features.append(conv(growth)(activate(features)))
        return nn.Dense(2)(pixels(activate(features)))


class UNet(nn.Module):
    transposed: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        skip = nn.relu(conv(3)(x))
        x = nn.relu(conv(5)(nn.max_pool(skip, (2, 2), strides=(2, 2))))
        if self.transposed:
            x = nn.ConvTranspose(7, (2, 2), strides=(2, 2))(x)
        else:
            x = jax.image.resize(x, (*skip.shape[:3], x.shape[-1]), "bilinear")
        x = jnp.concatenate([skip, x], axis=-1)
        return nn.Conv(2, (1, 1))(nn.relu(conv(11)(x)))


class SqueezeExcite(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.relu(conv(5)(x))
        gate = nn.sigmoid(nn.Dense(5)(nn.relu(nn.Dense(3)(pixels(x)))))
        x = nn.relu(conv(7)(x * gate[:, None, None, :]))
        return nn.Dense(2)(pixels(x))


class FRN(nn.Module):
    """Filter response normalisation whose epsilon is |learned| + constant."""

    constant: float

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = conv(5)(x)
        scale, bias, threshold, epsilon = (
            self.param(name, nn.initializers.normal(0.5), (5,))
            for name in ("scale", "bias", "threshold", "epsilon")
        )
        power = jnp.mean(x**2, axis=(1, 2), keepdims=True)
        x = x * jax.lax.rsqrt(power + (jnp.abs(epsilon) + self.constant))
        return nn.Dense(2)(pixels(jnp.maximum(scale * x + bias, threshold)))


class PaddedShortcuts(nn.Module):
    """Option A of he2016deep: a shortcut drops pixels and pads channels with zeros."""

    both_sides: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.relu(conv(3)(x))
        for inner, padding in ((11, (0, 5)), (13, (4, 4) if self.both_sides else (0, 7))):
            shortcut = x[:, ::2, ::2, :]
            shortcut = jnp.pad(shortcut, ((0, 0), (0, 0), (0, 0), padding))
            y = conv(shortcut.shape[-1])(nn.relu(conv(inner, strides=(2, 2))(x)))
            x = nn.relu(shortcut + y)
        return nn.Dense(2)(pixels(x))


def residual(
    blocks: tuple[int, ...], width: int, norm: str | None, activation: str
) -> tuple[tuple[Factor, ...], int]:
    """The group of `nets.resnet`, and the dimension of its scalings.

    A stage has one stream and, per block, the channels inside it; each is an index set. ReLU lets
    each be scaled. Each norm stands right behind a convolution, and adds what it lets through:
    FRN one flip per channel (weights and gain), LayerNorm one flip of all channels, GroupNorm one
    per group, BatchNorm a flip and a scaling per channel (weights and running mean against gain).
    """
    scale = "s" if activation == "relu" else ""
    factors: list[Factor] = []
    dimension = 0
    for stage, count in enumerate(blocks):
        channels = width * 2**stage
        index_sets = 1 + count
        # Two per block, and one of the stem or of the projection beside the first block.
        norms = 2 * count + 1
        dimension += index_sets * channels if scale else 0
        if norm == "layer":
            factors += index_sets * [factor(channels, "p" + scale)] + norms * [factor(1, "f")]
        elif norm == "group":
            groups = math.gcd(8, channels)
            inside = factor(channels // groups, "p" + scale, copies=groups)
            factors += index_sets * [factor(groups, "pf"), inside]
        elif norm == "batch":
            factors += index_sets * [factor(channels, "psf")]
            dimension += norms * channels
        else:
            factors += index_sets * [factor(channels, "p" + scale + ("f" if norm else ""))]
    return tuple(factors), dimension


def resnet_case(
    blocks: tuple[int, ...], norm: str | None, activation: str, width: int, name: str = ""
) -> Case:
    return Case(
        name or f"resnet-{norm}-{activation}",
        lambda: net(nets.resnet(blocks, 2, norm, width, activation), 2, 8, 12, 1),
        *residual(blocks, width, norm, activation),
    )


CASES = (
    *(
        Case(
            f"cnn-{pool}-pool-{activation}",
            lambda pool=pool, activation=activation: net(  # type: ignore[misc]
                nets.cnn((3, 5), 7, 2, activation, pool), 2, 8, 12, 1
            ),
            tuple(factor(size, kinds) for size in (3, 5, 7)),
            15 if "s" in kinds else 0,
        )
        for pool, activation, kinds in (
            ("max", "relu", "ps"),
            ("average", "relu", "ps"),
            ("max", "silu", "p"),
            ("average", "tanh", "pf"),
        )
    ),
    Case(
        "grouped-conv",
        lambda: linen(Grouped(6, 3, 15), normal(0, 2, 5, 7, 1)),
        (factor(3, "p"), factor(2, "ps", copies=3), factor(5, "ps", copies=3)),
        6 + 15,
    ),
    # Two scalings per channel: before and after its own filter.
    Case(
        "depthwise-conv",
        lambda: linen(Grouped(5, 5, 5, last=7), normal(0, 2, 5, 7, 1)),
        (factor(5, "ps"), factor(7, "ps")),
        2 * 5 + 7,
    ),
    Case(
        "depthwise-conv-multiplier",
        lambda: linen(Grouped(5, 5, 15), normal(0, 2, 5, 7, 1)),
        (factor(5, "ps"), factor(3, "ps", copies=5)),
        5 + 15,
    ),
    # A group reads a single channel: the index set of the groups is that of the channels.
    Case(
        "optunet",
        lambda: net(nets.optunet(), 2, 28, 28, 1),
        (factor(2, "ps"), factor(5, "ps", copies=2)),
        2 + 10,
    ),
    resnet_case((1, 1, 1), "frn", "silu", 3),
    resnet_case((1, 1, 1), "frn", "relu", 3),
    resnet_case((1, 1, 1), "layer", "relu", 3),
    resnet_case((1, 1, 1), "layer", "silu", 3),
    resnet_case((1, 1, 1), "group", "relu", 6),
    resnet_case((1, 1, 1), "batch", "relu", 3),
    resnet_case((1, 1, 1), "batch", "silu", 3),
    resnet_case((2, 1), None, "relu", 3),
    *(
        Case(
            f"resnet20-{norm}",
            lambda norm=norm: net(nets.resnet20(2, norm, 6, "relu"), 1, 8, 8, 3),  # type: ignore[misc]
            *residual((3, 3, 3), 6, norm, "relu"),
        )
        for norm in ("frn", "layer", "group", "batch")
    ),
    Case(
        "resnet20",
        lambda: net(nets.resnet20(), 1, 32, 32, 3),
        *residual((3, 3, 3), 16, "frn", "silu"),
        slow=True,
    ),
    Case(
        "resnet18",
        lambda: net(nets.resnet18(5, width=3), 1, 16, 16, 3),
        *residual((2, 2, 2, 2), 3, "batch", "relu"),
    ),
    Case(
        "densenet",
        lambda: linen(DenseNet(batch_norm=False), normal(0, 2, 5, 7, 1)),
        (factor(3, "ps"), factor(5, "ps"), factor(7, "ps")),
        15,
    ),
    # Per channel: one scaling in front of all its norms, and one behind each (3, 2 and 1 of them).
    Case(
        "densenet-batchnorm",
        lambda: linen(DenseNet(batch_norm=True), normal(0, 2, 5, 7, 1)),
        (factor(3, "psf"), factor(5, "psf"), factor(7, "psf")),
        3 * 4 + 5 * 3 + 7 * 2,
    ),
    # No activation follows the transposed convolution: its channels flip.
    Case(
        "unet-transposed",
        lambda: linen(UNet(transposed=True), normal(0, 2, 4, 6, 1)),
        (factor(3, "ps"), factor(5, "ps"), factor(7, "psf"), factor(11, "ps")),
        26,
    ),
    Case(
        "unet-resize",
        lambda: linen(UNet(transposed=False), normal(0, 2, 4, 6, 1)),
        (factor(3, "ps"), factor(5, "ps"), factor(11, "ps")),
        19,
    ),
    Case(
        "squeeze-excite",
        lambda: linen(SqueezeExcite(), normal(0, 2, 5, 7, 1)),
        (factor(5, "ps"), factor(3, "ps"), factor(7, "ps")),
        15,
    ),
    # weights * c with epsilon * c^2, beside (gain, bias, threshold) against the next layer.
    Case(
        "frn-learned-epsilon",
        lambda: linen(FRN(0.0), normal(0, 2, 5, 7, 1)),
        (factor(5, "psf"),),
        10,
    ),
    Case(
        "frn-learned-epsilon-plus-constant",
        lambda: linen(FRN(1e-6), normal(0, 2, 5, 7, 1)),
        (factor(5, "psf"),),
        5,
    ),
    # The last stage is (first stream, first padding, second padding).
    Case(
        "zero-padded-shortcuts",
        lambda: linen(PaddedShortcuts(), normal(0, 2, 8, 12, 1)),
        tuple(factor(size, "ps") for size in (3, 5, 7, 11, 13)),
        39,
    ),
    Case(
        "zero-padded-shortcuts-both-sides",
        lambda: linen(PaddedShortcuts(both_sides=True), normal(0, 2, 8, 12, 1)),
        None,
        3 + 5 + 8 + 11 + 13,
        note="Padding 4 + 4 around 8 channels. The 8 padding channels are one index set in truth "
        "(3, 5, 8, 11, 13, all 'ps'), but they are no contiguous segment: cuts see two sets of 4 "
        "(3, 5, 4, 4, 11, 13, all 'ps'). Either is sound.",
    ),
)
