"""Wide residual networks (zagoruyko2016wide): few layers, many channels, norms before products."""

from typing import Any

import flax.linen as nn
import jax

from onebasin.nets import _linen
from onebasin.nets.net import Net
from onebasin.nets.norms import NORMS, norm_of

STAGES = 3


class _WideBlock(nn.Module):
    features: int
    stride: int
    norm: str | None
    activation: str
    train: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        activation = _linen.ACTIVATIONS[self.activation]
        norm = norm_of(self.norm, self.train)
        first = activation(norm(name="norm1")(x))
        y = self._conv(3, self.stride, "conv1")(first)
        y = self._conv(3, 1, "conv2")(activation(norm(name="norm2")(y)))
        skip = x if x.shape == y.shape else self._conv(1, self.stride, "conv_skip")(first)
        return skip + y

    def _conv(self, size: int, stride: int, name: str) -> nn.Conv:
        return nn.Conv(
            self.features,
            (size, size),
            (stride, stride),
            padding=size // 2,
            use_bias=self.norm is None,
            kernel_init=_linen.he_normal,
            name=name,
        )


class _WideResNet(nn.Module):
    blocks: int
    widen: int
    outputs: int
    norm: str | None
    width: int
    activation: str
    train: bool

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        x = _linen.as_images(inputs, "wide_resnet")
        x = nn.Conv(
            self.width,
            (3, 3),
            padding=1,
            use_bias=self.norm is None,
            kernel_init=_linen.he_normal,
            name="conv",
        )(x)
        for stage in range(STAGES):
            for block in range(self.blocks):
                x = _WideBlock(
                    self.width * self.widen * 2**stage,
                    2 if stage > 0 and block == 0 else 1,
                    self.norm,
                    self.activation,
                    self.train,
                    name=f"stage{stage + 1}_block{block + 1}",
                )(x)
        x = norm_of(self.norm, self.train)(name="norm")(x)
        x = _linen.ACTIVATIONS[self.activation](x)
        return nn.Dense(self.outputs, name="head")(x.mean(axis=(1, 2)))


def wide_resnet(
    depth: int = 28,
    widen: int = 10,
    outputs: int = 100,
    norm: str | None = "batch",
    width: int = 16,
    activation: str = "relu",
) -> Net:
    """Build a wide residual network (zagoruyko2016wide): three stages, norms before products.

    Args:
        depth: the number of layers, six times the blocks of a stage and four more: 10, 16, 28.
        widen: how many times as many channels as `width` the first stage has.
        outputs: the number of logits.
        norm: "frn", "layer", "group", "batch" or None; see `resnet`.
        width: the number of channels of the stem.
        activation: relu, leaky_relu, elu, gelu, silu, softplus, tanh or sigmoid.

    Returns:
        A `Net` from images (batch, height, width, channels) to logits (batch, outputs).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.wide_resnet(depth=10, widen=1, outputs=7, width=2)
        >>> params = net.init(jax.random.key(0), jnp.ones((1, 8, 8, 3)))
        >>> net.apply(params, jnp.ones((1, 8, 8, 3))).shape
        (1, 7)
    """
    _linen.lookup("norm", NORMS, norm)
    _linen.lookup("activation", _linen.ACTIVATIONS, activation)
    _linen.positive(depth=depth, widen=widen, outputs=outputs, width=width)
    blocks, rest = divmod(depth - 4, 2 * STAGES)
    if rest or blocks < 1:
        raise ValueError(
            f"got depth={depth}, expected six times the blocks of a stage and four more: 10, 16, "
            "22, 28, ..."
        )
    fields: dict[str, Any] = {
        "blocks": blocks,
        "widen": widen,
        "outputs": outputs,
        "norm": norm,
        "width": width,
        "activation": activation,
    }
    if norm == "batch":
        return _linen.as_trained_net(lambda train: _WideResNet(**fields, train=train))
    return _linen.as_net(_WideResNet(**fields, train=False))
