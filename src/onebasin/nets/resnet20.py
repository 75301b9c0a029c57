"""ResNet20, the residual network for CIFAR of Bayesian deep learning."""

from onebasin.nets.net import Net
from onebasin.nets.resnet import resnet


def resnet20(
    outputs: int = 10,
    norm: str | None = "frn",
    width: int = 16,
    activation: str = "silu",
    identity_start: bool = False,
) -> Net:
    """Build ResNet20: three stages of three basic blocks, as in izmailov2021what.

    Args:
        outputs: the number of logits.
        norm: "frn", "layer", "group", "batch" (in inference mode) or None; see `resnet`.
        width: the number of channels of the first stage; the others have two and four times that.
        activation: relu, leaky_relu, elu, gelu, silu, softplus, tanh or sigmoid.
        identity_start: whether each block starts by adding nothing; see `resnet`.

    Returns:
        A `Net` from images (batch, height, width, channels) to logits (batch, outputs).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.resnet20(width=2)
        >>> params = net.init(jax.random.key(0), jnp.ones((1, 8, 8, 3)))
        >>> net.apply(params, jnp.ones((1, 8, 8, 3))).shape
        (1, 10)
    """
    return resnet((3, 3, 3), outputs, norm, width, activation, identity_start=identity_start)
