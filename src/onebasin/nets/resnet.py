"""Residual networks with basic blocks, for small images."""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from onebasin.nets import _linen
from onebasin.nets._flax import nn
from onebasin.nets.net import Net

Initializer = nn.initializers.Initializer


class _FilterResponseNorm(nn.Module):
    """Filter response normalisation with a thresholded linear unit (singh2020filter).

    y = max(scale * x / sqrt(mean(x^2 over pixels) + epsilon) + bias, threshold)
    """

    epsilon: float = 1e-6
    scale_init: Initializer = nn.initializers.ones

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = x.shape[-1:]
        scale = self.param("scale", self.scale_init, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        threshold = self.param("threshold", nn.initializers.zeros, shape)
        power = jnp.mean(jnp.square(x), axis=(1, 2), keepdims=True)
        y = scale * (x * jax.lax.rsqrt(power + self.epsilon)) + bias
        return jnp.maximum(y, threshold)


class _GroupNorm(nn.Module):
    """Group normalisation over at most eight groups, fewer where the width has no factor eight."""

    scale_init: Initializer = nn.initializers.ones

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        groups = math.gcd(8, x.shape[-1])
        return nn.GroupNorm(num_groups=groups, scale_init=self.scale_init)(x)


class _Identity(nn.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return x


NORMS: dict[str | None, Callable[..., nn.Module]] = {
    "frn": _FilterResponseNorm,
    "layer": nn.LayerNorm,
    "group": _GroupNorm,
    "batch": functools.partial(nn.BatchNorm, use_running_average=True),
    None: _Identity,
}


class _Block(nn.Module):
    features: int
    stride: int
    norm: str | None
    activation: str
    conv_bias: bool
    padding: str | int
    identity_start: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        activation = _linen.ACTIVATIONS[self.activation]
        norm = NORMS[self.norm]
        conv = functools.partial(
            nn.Conv, self.features, use_bias=self.conv_bias, kernel_init=_linen.he_normal
        )
        strides = (self.stride, self.stride)
        conv3x3 = functools.partial(conv, (3, 3), padding=self.padding)
        y = norm(name="norm1")(conv3x3(strides, name="conv1")(x))
        last = {"scale_init": nn.initializers.zeros} if self.identity_start else {}
        y = norm(name="norm2", **last)(conv3x3(name="conv2")(activation(y)))
        if x.shape != y.shape:
            x = norm(name="norm_skip")(conv((1, 1), strides, name="conv_skip")(x))
        return activation(x + y)


class _ResNet(nn.Module):
    blocks: tuple[int, ...]
    outputs: int
    norm: str | None
    width: int
    activation: str
    conv_bias: bool
    padding: str | int
    identity_start: bool

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        x = _linen.as_images(inputs, "resnet")
        x = nn.Conv(
            self.width,
            (3, 3),
            use_bias=self.conv_bias,
            kernel_init=_linen.he_normal,
            name="conv",
        )(x)
        x = _linen.ACTIVATIONS[self.activation](NORMS[self.norm](name="norm")(x))
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
                    name=f"stage{stage + 1}_block{block + 1}",
                )(x)
        return nn.Dense(self.outputs, name="head")(x.mean(axis=(1, 2)))


def resnet(
    blocks: Sequence[int],
    outputs: int = 10,
    norm: str | None = "batch",
    width: int = 16,
    activation: str = "relu",
    conv_bias: bool = True,
    padding: str | int = "SAME",
    identity_start: bool = False,
) -> Net:
    """Build a residual network of basic blocks with a 3x3 stem.

    A stage doubles the width of the one before and halves its images; where it does, a normalised
    1x1 convolution takes the place of the identity beside the block.

    Args:
        blocks: the number of blocks in each stage.
        outputs: the number of logits.
        norm: "frn" (with its threshold), "layer" (over channels), "group" (eight groups, fewer
            where eight does not divide the width), "batch" (in inference mode: the running
            statistics are parameters, and `params` is {"params": ..., "batch_stats": ...}) or None.
        width: the number of channels of the first stage.
        activation: relu, leaky_relu, elu, gelu, silu, softplus, tanh or sigmoid.
        conv_bias: whether the convolutions have biases.
        padding: of the 3x3 convolutions: "SAME", as TensorFlow and Flax have it, or 1 on every
            side, as torch has it. They differ where images are halved.
        identity_start: whether the scale that ends each block is 0 at first, so that all blocks
            start by adding nothing (goyal2017accurate).

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
    _linen.sequence(blocks=blocks)
    _linen.positive(blocks=tuple(blocks), outputs=outputs, width=width)
    if identity_start and norm is None:
        raise ValueError(
            "got identity_start=True and norm=None, expected a normalisation, whose scale is 0 at "
            "first: choose one."
        )
    module = _ResNet(
        tuple(blocks), outputs, norm, width, activation, conv_bias, padding, identity_start
    )
    return _linen.as_net(module)
