"""Small language models: GPT-2 and Llama are two settings of one network."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from onebasin.nets import _linen
from onebasin.nets._transformer import MLPS, NORMS, POSITIONS, Layer, check_heads
from onebasin.nets.net import Net

SMALL = nn.initializers.normal(0.02)


class _GPT(nn.Module):
    vocabulary: int
    context: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    mlp_width: int
    norm: str
    mlp: str
    positions: str
    tied: bool
    bias: bool

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        if inputs.ndim != 2 or not jnp.issubdtype(inputs.dtype, jnp.integer):
            raise ValueError(
                f"gpt got inputs of shape {inputs.shape} and type {inputs.dtype}, expected tokens "
                "(batch, position) of whole numbers."
            )
        if inputs.shape[1] > self.context:
            raise ValueError(
                f"gpt got {inputs.shape[1]} positions, expected at most context={self.context}."
            )
        embed = nn.Embed(self.vocabulary, self.width, embedding_init=SMALL, name="embed")
        x = embed(inputs)
        if self.positions == "learned":
            table = self.param("positions", SMALL, (self.context, self.width))
            x = x + table[: inputs.shape[1]]
        for number in range(self.layers):
            x = Layer(
                self.heads,
                self.kv_heads,
                self.mlp_width,
                self.norm,
                self.mlp,
                causal=True,
                rotary=self.positions == "rotary",
                bias=self.bias,
                name=f"layer{number + 1}",
            )(x)
        x = NORMS[self.norm](name="norm")(x)
        if self.tied:
            return embed.attend(x)
        return nn.Dense(self.vocabulary, use_bias=False, name="head")(x)


def gpt(
    vocabulary: int,
    context: int = 256,
    layers: int = 4,
    heads: int = 4,
    width: int = 128,
    mlp_width: int | None = None,
    norm: str = "layer",
    mlp: str = "gelu",
    positions: str = "learned",
    kv_heads: int | None = None,
    tied: bool = True,
    bias: bool = True,
) -> Net:
    """Build a language model: each position sees those before it and predicts the next token.

    As it is, it is a small GPT-2 (radford2019language); with `norm="rms"`, `mlp="swiglu"`,
    `positions="rotary"`, fewer `kv_heads`, `tied=False` and `bias=False` a small Llama
    (touvron2023llama).

    Args:
        vocabulary: the number of tokens.
        context: the largest number of positions.
        layers: the number of layers.
        heads: the number of heads of each attention.
        width: of the stream; a multiple of `heads`.
        mlp_width: of the layers between attentions; four times `width` by default.
        norm: "layer", "rms", or "rms-plain", which has no gain.
        mlp: "gelu", "relu", or "swiglu".
        positions: "learned", or "rotary", by which queries and keys are turned.
        kv_heads: heads for keys and values, each for as many of `heads`; all of them by default.
        tied: whether the table of tokens is read at the end, too.
        bias: whether the projections have biases.

    Returns:
        A `Net` from tokens (batch, position) to logits (batch, position, vocabulary).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.gpt(vocabulary=11, context=8, layers=1, heads=2, width=8)
        >>> tokens = jnp.zeros((2, 5), int)
        >>> net.apply(net.init(jax.random.key(0), tokens), tokens).shape
        (2, 5, 11)
    """
    _linen.lookup("norm", NORMS, norm)
    _linen.lookup("mlp", dict.fromkeys(MLPS), mlp)
    _linen.lookup("positions", dict.fromkeys(POSITIONS), positions)
    counts: dict[str, Any] = {
        "vocabulary": vocabulary,
        "context": context,
        "layers": layers,
        "heads": heads,
        "kv_heads": heads if kv_heads is None else kv_heads,
        "width": width,
        "mlp_width": 4 * width if mlp_width is None else mlp_width,
    }
    _linen.positive(**counts)
    check_heads(width, heads, kv_heads)
    if positions == "rotary" and width // heads % 2:
        raise ValueError(
            f"got heads of {width // heads} dimensions and positions='rotary', expected an even "
            "number, as each turn is in a plane."
        )
    return _linen.as_net(
        _GPT(**counts, norm=norm, mlp=mlp, positions=positions, tied=tied, bias=bias)
    )
