"""Residual networks for images, of basic or of bottleneck blocks."""

from collections.abc import Sequence
from typing import Any

import jax

from onebasin.nets import _linen
from onebasin.nets._flax import nn
from onebasin.nets.net import Net
from onebasin.nets.norms import NORMS, norm_of

# How many times as many channels a block ends with as its 3x3 convolutions have.
EXPANSIONS = {"basic": 1, "bottleneck": 4}
STEMS = ("3x3", "7x7")


class _Block(nn.Module):
    features: int
    stride: int
    norm: str | None
    activation: str
    conv_bias: bool
    padding: str | int
    identity_start: bool
    kind: str
    train: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        activation = _linen.ACTIVATIONS[self.activation]
        norm = norm_of(self.norm, self.train)
        last = {"scale_init": nn.initializers.zeros} if self.identity_start else {}
        out = EXPANSIONS[self.kind] * self.features
        y = x
        layers = self._layers(out)
        for number, (features, size, stride) in enumerate(layers, 1):
            y = self._conv(features, size, stride, f"conv{number}")(y)
            y = norm(name=f"norm{number}", **(last if number == len(layers) else {}))(y)
            y = activation(y) if number < len(layers) else y
        if x.shape != y.shape:
            x = norm(name="norm_skip")(self._conv(out, 1, self.stride, "conv_skip")(x))
        return activation(x + y)

    def _layers(self, out: int) -> tuple[tuple[int, int, int], ...]:
        """Channels, size and stride of each convolution beside the skip."""
        if self.kind == "basic":
            return ((out, 3, self.stride), (out, 3, 1))
        return ((self.features, 1, 1), (self.features, 3, self.stride), (out, 1, 1))

    def _conv(self, features: int, size: int, stride: int, name: str) -> nn.Conv:
        return nn.Conv(
            features,
            (size, size),
            (stride, stride),
            padding=self.padding if size > 1 else "SAME",
            use_bias=self.conv_bias,
            kernel_init=_linen.he_normal,
            name=name,
        )


class _ResNet(nn.Module):
    blocks: tuple[int, ...]
    outputs: int
    norm: str | None
    width: int
    activation: str
    conv_bias: bool
    padding: str | int
    identity_start: bool
    kind: str
    stem: str
    train: bool

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        x = self._stem(_linen.as_images(inputs, "resnet"))
        for stage, count in enumerate(self.blocks):
            for block in range(count):
                x = _Block(
                    self.width * 2**stage,
                    2 if stage > 0 and block == 0 else 1,
                    self.norm,
                    self.activation,
                    self.conv_bias,
                    self.padding,
                    self.identity_start,
                    self.kind,
                    self.train,
                    name=f"stage{stage + 1}_block{block + 1}",
                )(x)
        return nn.Dense(self.outputs, name="head")(x.mean(axis=(1, 2)))

    def _stem(self, x: jax.Array) -> jax.Array:
        large = self.stem == "7x7"
        x = nn.Conv(
            self.width,
            (7, 7) if large else (3, 3),
            2 if large else 1,
            padding=3 if large else "SAME",
            use_bias=self.conv_bias,
            kernel_init=_linen.he_normal,
            name="conv",
        )(x)
        x = norm_of(self.norm, self.train)(name="norm")(x)
        x = _linen.ACTIVATIONS[self.activation](x)
        if large:
            x = nn.max_pool(x, (3, 3), (2, 2), padding=((1, 1), (1, 1)))
        return x


def resnet(
    blocks: Sequence[int],
    outputs: int = 10,
    norm: str | None = "batch",
    width: int = 16,
    activation: str = "relu",
    conv_bias: bool = True,
    padding: str | int = "SAME",
    identity_start: bool = False,
    block: str = "basic",
    stem: str = "3x3",
) -> Net:
    """Build a residual network.

    A stage doubles the width of the one before and halves its images; where it does, a normalised
    1x1 convolution takes the place of the identity beside the block.

    Args:
        blocks: the number of blocks in each stage.
        outputs: the number of logits.
        norm: "frn" (with its threshold), "layer" (over channels), "group" (eight groups, fewer
            where eight does not divide the width), "batch" (`params` is
            {"params": weights, "batch_stats": running statistics}, and with `train=True` the
            network returns its outputs and the statistics after them) or None.
        width: the number of channels of the first stage.
        activation: relu, leaky_relu, elu, gelu, silu, softplus, tanh or sigmoid.
        conv_bias: whether the convolutions have biases.
        padding: of the 3x3 convolutions: "SAME", as TensorFlow and Flax have it, or 1 on every
            side, as torch has it. They differ where images are halved.
        identity_start: whether the scale that ends each block is 0 at first, so that all blocks
            start by adding nothing (goyal2017accurate).
        block: "basic", of two 3x3 convolutions, or "bottleneck", of a 3x3 one between two of 1x1,
            the last of which has four times as many channels.
        stem: "3x3" for small images, or "7x7", which halves images twice, for large ones.

    Returns:
        A `Net` from images (batch, height, width, channels) or (batch, height, width) to logits
        (batch, outputs).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.resnet((1, 1), outputs=3, width=2)
        >>> params = net.init(jax.random.key(0), jnp.ones((1, 8, 8, 3)))
        >>> sorted(params)
        ['batch_stats', 'params']
    """
    _linen.lookup("norm", NORMS, norm)
    _linen.lookup("activation", _linen.ACTIVATIONS, activation)
    _linen.lookup("block", EXPANSIONS, block)
    _linen.lookup("stem", dict.fromkeys(STEMS), stem)
    _linen.sequence(blocks=blocks)
    _linen.positive(blocks=tuple(blocks), outputs=outputs, width=width)
    if identity_start and norm is None:
        raise ValueError(
            "got identity_start=True and norm=None, expected a normalisation, whose scale is 0 at "
            "first: choose one."
        )
    fields: dict[str, Any] = {
        "blocks": tuple(blocks),
        "outputs": outputs,
        "norm": norm,
        "width": width,
        "activation": activation,
        "conv_bias": conv_bias,
        "padding": padding,
        "identity_start": identity_start,
        "kind": block,
        "stem": stem,
    }
    if norm == "batch":
        return _linen.as_trained_net(lambda train: _ResNet(**fields, train=train))
    return _linen.as_net(_ResNet(**fields, train=False))
