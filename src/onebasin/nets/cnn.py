"""A small convolutional network."""

from collections.abc import Sequence

import jax

from onebasin.nets import _linen
from onebasin.nets._flax import nn
from onebasin.nets.net import Net

POOLS = {"max": _linen.max_pool, "average": _linen.avg_pool}


class _CNN(nn.Module):
    channels: tuple[int, ...]
    dense: int
    outputs: int
    activation: str
    pool: str

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        activation = _linen.ACTIVATIONS[self.activation]
        x = _linen.as_images(inputs, "cnn")
        for features in self.channels:
            x = activation(nn.Conv(features, (3, 3))(x))
            x = POOLS[self.pool](x, (2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1)
        x = activation(nn.Dense(self.dense)(x))
        return nn.Dense(self.outputs)(x)


def cnn(
    channels: Sequence[int] = (32, 64),
    dense: int = 128,
    outputs: int = 10,
    activation: str = "relu",
    pool: str = "max",
) -> Net:
    """Build a small network: 3x3 convolutions, each pooled by 2, then two dense layers.

    Args:
        channels: the width of each convolution.
        dense: the width of the dense layer that reads the flattened images.
        outputs: the number of logits.
        activation: relu, leaky_relu, elu, gelu, silu, softplus, tanh or sigmoid.
        pool: "max" or "average".

    Returns:
        A `Net` from images (batch, height, width, channels) or (batch, height, width) to logits
        (batch, outputs); height and width are at least 2 to the number of convolutions.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.cnn(channels=(2, 3), dense=5, outputs=4)
        >>> params = net.init(jax.random.key(0), jnp.ones((1, 8, 8, 1)))
        >>> net.apply(params, jnp.ones((1, 8, 8, 1))).shape
        (1, 4)
    """
    _linen.lookup("activation", _linen.ACTIVATIONS, activation)
    _linen.lookup("pool", POOLS, pool)
    _linen.sequence(channels=channels)
    _linen.positive(channels=tuple(channels), dense=dense, outputs=outputs)
    return _linen.as_net(_CNN(tuple(channels), dense, outputs, activation, pool))
