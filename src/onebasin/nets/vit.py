"""Vision transformers (dosovitskiy2021image), small enough for small images."""

from typing import Any

import flax.linen as nn
import jax

from onebasin.nets import _linen
from onebasin.nets._transformer import MLPS, NORMS, Layer, check_heads
from onebasin.nets.net import Net


class _ViT(nn.Module):
    patch: int
    layers: int
    heads: int
    width: int
    mlp_width: int
    outputs: int
    norm: str
    mlp: str
    bias: bool

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        images = _linen.as_images(inputs, "vit")
        height, width = images.shape[1:3]
        if height % self.patch or width % self.patch:
            raise ValueError(
                f"vit got images of {height} x {width} pixels, expected sides that patches of "
                f"{self.patch} divide: choose another patch."
            )
        size = (self.patch, self.patch)
        x = nn.Conv(self.width, size, size, padding="VALID", name="embed")(images)
        x = x.reshape(x.shape[0], -1, self.width)
        x = x + self.param("positions", nn.initializers.normal(0.02), x.shape[1:])
        for number in range(self.layers):
            x = Layer(
                self.heads,
                self.heads,
                self.mlp_width,
                self.norm,
                self.mlp,
                causal=False,
                rotary=False,
                bias=self.bias,
                name=f"layer{number + 1}",
            )(x)
        x = NORMS[self.norm](name="norm")(x)
        return nn.Dense(self.outputs, name="head")(x.mean(axis=1))


def vit(
    outputs: int = 10,
    patch: int = 4,
    layers: int = 6,
    heads: int = 8,
    width: int = 256,
    mlp_width: int = 512,
    norm: str = "layer",
    mlp: str = "gelu",
    bias: bool = True,
) -> Net:
    """Build a vision transformer with norms before each part and the mean over patches at its end.

    Args:
        outputs: the number of logits.
        patch: pixels on a side of a patch.
        layers: the number of layers.
        heads: the number of heads of each attention.
        width: of the stream; a multiple of `heads`.
        mlp_width: of the layers between attentions.
        norm: "layer", "rms", or "rms-plain", which has no gain.
        mlp: "gelu", "relu", or "swiglu".
        bias: whether the projections have biases.

    Returns:
        A `Net` from images (batch, height, width, channels) or (batch, height, width) to logits
        (batch, outputs).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.vit(outputs=3, layers=1, heads=2, width=8, mlp_width=8)
        >>> params = net.init(jax.random.key(0), jnp.ones((1, 8, 8, 3)))
        >>> net.apply(params, jnp.ones((2, 8, 8, 3))).shape
        (2, 3)
    """
    _linen.lookup("norm", NORMS, norm)
    _linen.lookup("mlp", dict.fromkeys(MLPS), mlp)
    counts: dict[str, Any] = {
        "patch": patch,
        "layers": layers,
        "heads": heads,
        "width": width,
        "mlp_width": mlp_width,
        "outputs": outputs,
    }
    _linen.positive(**counts)
    check_heads(width, heads)
    return _linen.as_net(_ViT(**counts, norm=norm, mlp=mlp, bias=bias))
