"""OptuNet: a convolutional network for MNIST with 392 parameters."""

import jax
import jax.numpy as jnp

from onebasin.nets import _linen
from onebasin.nets._flax import nn
from onebasin.nets.net import Net

POOL, FIRST, SECOND = 3, 4, 5
CELLS = 8  # of the pooled image, along each side


class _Kernel(nn.Module):
    """The weights of a convolution, as Flax initialises them."""

    shape: tuple[int, ...]

    @nn.compact
    def __call__(self) -> jax.Array:
        init = nn.initializers.lecun_normal()
        return self.param("kernel", init, self.shape)


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
        x = _pooled(x[..., 0], _Kernel((FIRST, FIRST, 1, 2), name="Conv_0")()[:, :, 0])
        x = _grouped(nn.relu(x), _Kernel((SECOND, SECOND, 1, 10), name="Conv_1")())
        return nn.Dense(self.outputs)(nn.relu(x).mean(axis=(1, 2)))


def _pooled(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolution and max-pooling in one product.

    What one cell of the pooled image sees is a patch of 6 x 6 pixels; the kernel lies on it in nine
    places, and the largest of the nine results counts. With two channels this is far faster than a
    convolution, most of all for many kernels at once.
    """
    size = FIRST + POOL - 1
    end = POOL * (CELLS - 1) + 1
    pixels = [images[:, a : a + end : POOL, b : b + end : POOL] for a, b in _places(size)]
    last = POOL - 1
    laid = [jnp.pad(kernel, ((a, last - a), (b, last - b), (0, 0))) for a, b in _places(POOL)]
    kernels = jnp.stack(laid, axis=2).reshape(size**2, POOL**2, kernel.shape[-1])
    return jnp.einsum("nijp,pkc->nijkc", jnp.stack(pixels, axis=-1), kernels).max(axis=-2)


def _grouped(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolution of every channel with kernels of its own, as products of patches."""
    end = CELLS - SECOND + 1
    patches = [images[:, a : a + end, b : b + end] for a, b in _places(SECOND)]
    groups = images.shape[-1]
    kernels = kernel.reshape(SECOND**2, groups, kernel.shape[-1] // groups)
    found = jnp.einsum("nijgp,pgc->nijgc", jnp.stack(patches, axis=-1), kernels)
    return found.reshape(*found.shape[:3], kernel.shape[-1])


def _places(size: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(size) for b in range(size)]


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
