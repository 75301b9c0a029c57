"""The multi-layer perceptron."""

from collections.abc import Sequence

import jax

from onebasin.nets import _linen
from onebasin.nets._flax import nn
from onebasin.nets.net import Net


class _MLP(nn.Module):
    hidden: tuple[int, ...]
    outputs: int
    activation: str
    bias: bool

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        activation = _linen.ACTIVATIONS[self.activation]
        x = inputs.reshape(inputs.shape[0], -1)
        for features in self.hidden:
            x = activation(nn.Dense(features, use_bias=self.bias)(x))
        return nn.Dense(self.outputs, use_bias=self.bias)(x)


def mlp(
    hidden: Sequence[int] = (512,),
    outputs: int = 10,
    activation: str = "relu",
    bias: bool = True,
) -> Net:
    """Build a multi-layer perceptron; inputs are flattened beyond their batch axis.

    Args:
        hidden: the width of each hidden layer; none gives a linear model.
        outputs: the number of logits or means.
        activation: relu, leaky_relu, elu, gelu, silu, softplus, tanh or sigmoid.
        bias: whether the layers have biases.

    Returns:
        A `Net` from inputs (batch, ...) to outputs (batch, outputs).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.mlp(hidden=(5,), outputs=2, activation="tanh")
        >>> params = net.init(jax.random.key(0), jnp.ones((4, 3)))
        >>> net.apply(params, jnp.ones((4, 3))).shape
        (4, 2)
    """
    _linen.lookup("activation", _linen.ACTIVATIONS, activation)
    _linen.sequence(hidden=hidden)
    _linen.positive(hidden=tuple(hidden), outputs=outputs)
    return _linen.as_net(_MLP(tuple(hidden), outputs, activation, bias))
