"""ResNet-18, with a 3x3 stem for images of CIFAR's size by default."""

from onebasin.nets.net import Net
from onebasin.nets.resnet import resnet


def resnet18(
    outputs: int = 100,
    norm: str | None = "batch",
    width: int = 64,
    activation: str = "relu",
    identity_start: bool = False,
    stem: str = "3x3",
) -> Net:
    """Build ResNet-18: four stages of two basic blocks (he2016deep).

    Its convolutions have a bias only where there is no normalisation after them, and are padded as
    those of torch: checkpoints from there compute the same function (see `store.open_torch`).

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
        >>> net = nets.resnet18(outputs=7, width=2)
        >>> params = net.init(jax.random.key(0), jnp.ones((1, 8, 8, 3)))
        >>> net.apply(params, jnp.ones((1, 8, 8, 3))).shape
        (1, 7)
    """
    return torch_resnet((2, 2, 2, 2), outputs, norm, width, activation, identity_start, stem)


def torch_resnet(
    blocks: tuple[int, ...],
    outputs: int,
    norm: str | None,
    width: int,
    activation: str,
    identity_start: bool,
    stem: str,
    block: str = "basic",
) -> Net:
    """A residual network that computes what one of torch with the same weights does."""
    return resnet(
        blocks,
        outputs,
        norm,
        width,
        activation,
        conv_bias=norm is None,
        padding=1,
        identity_start=identity_start,
        block=block,
        stem=stem,
    )
