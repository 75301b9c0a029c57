"""ResNet-50, with a 3x3 stem by default."""

from onebasin.nets.net import Net
from onebasin.nets.resnet18 import torch_resnet


def resnet50(
    outputs: int = 100,
    norm: str | None = "batch",
    width: int = 64,
    activation: str = "relu",
    identity_start: bool = False,
    stem: str = "3x3",
) -> Net:
    """Build ResNet-50: four stages of 3, 4, 6 and 3 bottleneck blocks (he2016deep).

    Args:
        outputs: the number of logits.
        norm: "frn", "layer", "group", "batch" or None; see `resnet`.
        width: the number of channels of the first stage; each later one has twice as many.
        activation: relu, leaky_relu, elu, gelu, silu, softplus, tanh or sigmoid.
        identity_start: whether each block starts by adding nothing; see `resnet`.
        stem: "3x3", or "7x7" for large images; see `resnet`.

    Returns:
        A `Net` from images (batch, height, width, channels) to logits (batch, outputs).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.resnet50(outputs=7, width=2)
        >>> shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.ones((1, 8, 8, 3)))
        >>> jax.eval_shape(net.apply, shapes, jnp.ones((1, 8, 8, 3))).shape
        (1, 7)
    """
    return torch_resnet(
        (3, 4, 6, 3), outputs, norm, width, activation, identity_start, stem, "bottleneck"
    )
