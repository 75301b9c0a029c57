"""OptuNet: a convolutional network for MNIST with 392 parameters."""

import flax.linen as nn
import jax

from onebasin.nets import _linen
from onebasin.nets.net import Net


class _OptuNet(nn.Module):
    outputs: int

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        x = _linen.as_images(inputs, "optunet")
        if x.shape[1:] != (28, 28, 1):
            raise ValueError(
                f"optunet got inputs of shape {inputs.shape}, expected (batch, 28, 28, 1) "
                "or (batch, 28, 28)."
            )
        x = nn.relu(nn.Conv(2, (4, 4), padding="VALID", use_bias=False)(x))
        x = _linen.max_pool(x, (3, 3), strides=(3, 3))
        x = nn.Conv(10, (5, 5), padding="VALID", feature_group_count=2, use_bias=False)(x)
        x = nn.relu(x).mean(axis=(1, 2))
        return nn.Dense(self.outputs)(x)


def optunet(outputs: int = 10) -> Net:
    """Build OptuNet, the smallest network that does MNIST well (392 parameters).

    Convolution 1 to 2 (4x4), ReLU, max-pooling by 3, convolution 2 to 10 in two groups (5x5),
    ReLU, global average pooling, linear; the convolutions have no bias.

    Args:
        outputs: the number of logits.

    Returns:
        A `Net` from images (batch, 28, 28, 1) or (batch, 28, 28) to logits (batch, outputs).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> params = nets.optunet().init(jax.random.key(0), jnp.ones((1, 28, 28, 1)))
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        392
    """
    _linen.positive(outputs=outputs)
    return _linen.as_net(_OptuNet(outputs))
