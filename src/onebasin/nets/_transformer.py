"""What the transformers of this room share: attention, layers, norms."""

from __future__ import annotations

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

# Without a gain, an "rms" stream may be turned by any rotation.
NORMS: dict[str, Callable[..., nn.Module]] = {
    "layer": functools.partial(nn.LayerNorm, epsilon=1e-5),
    "rms": functools.partial(nn.RMSNorm, epsilon=1e-5),
    "rms-plain": functools.partial(nn.RMSNorm, epsilon=1e-5, use_scale=False),
}
MLPS = ("gelu", "relu", "swiglu")
POSITIONS = ("learned", "rotary")
BASE = 10_000.0


class Attention(nn.Module):
    """Attention of several heads, where groups of them may share keys and values."""

    heads: int
    kv_heads: int
    causal: bool
    rotary: bool
    bias: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        size = x.shape[-1] // self.heads
        project = functools.partial(nn.DenseGeneral, use_bias=self.bias)
        queries = project((self.heads, size), name="query")(x)
        keys = project((self.kv_heads, size), name="key")(x)
        values = project((self.kv_heads, size), name="value")(x)
        if self.rotary:
            queries, keys = turned(queries), turned(keys)
        groups = self.heads // self.kv_heads
        queries = queries.reshape(*queries.shape[:-2], self.kv_heads, groups, size)
        scores = jnp.einsum("...qhgd,...khd->...hgqk", queries, keys) / size**0.5
        if self.causal:
            length = x.shape[-2]
            seen = jnp.tril(jnp.ones((length, length), bool))
            scores = jnp.where(seen, scores, jnp.finfo(scores.dtype).min)
        weights = nn.softmax(scores.astype(jnp.float32)).astype(x.dtype)
        found = jnp.einsum("...hgqk,...khd->...qhgd", weights, values)
        found = found.reshape(*found.shape[:-3], self.heads, size)
        return nn.DenseGeneral(x.shape[-1], axis=(-2, -1), use_bias=self.bias, name="out")(found)


class Mlp(nn.Module):
    """The layers between two attentions, each position by itself."""

    hidden: int
    kind: str
    bias: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        dense = functools.partial(nn.Dense, use_bias=self.bias)
        y = dense(self.hidden, name="up")(x)
        if self.kind == "swiglu":
            y = nn.silu(dense(self.hidden, name="gate")(x)) * y
        else:
            y = nn.relu(y) if self.kind == "relu" else nn.gelu(y)
        return dense(x.shape[-1], name="down")(y)


class Layer(nn.Module):
    """Attention and an MLP, each added to a stream that is normalised before it."""

    heads: int
    kv_heads: int
    hidden: int
    norm: str
    mlp: str
    causal: bool
    rotary: bool
    bias: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        norm = NORMS[self.norm]
        attention = Attention(
            self.heads, self.kv_heads, self.causal, self.rotary, self.bias, name="attention"
        )
        x = x + attention(norm(name="norm1")(x))
        return x + Mlp(self.hidden, self.mlp, self.bias, name="mlp")(norm(name="norm2")(x))


def turned(x: jax.Array) -> jax.Array:
    """Queries or keys (..., position, head, dimension) turned by their positions (su2021roformer).

    Dimension j and that half the head further on are a plane, which position t turns by the angle
    t / 10,000^(2 j / size).
    """
    half = x.shape[-1] // 2
    rate = BASE ** (-jnp.arange(half) / half)
    angle = jnp.arange(x.shape[-3])[:, None, None] * rate
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def check_heads(width: int, heads: int, kv_heads: int | None = None) -> int:
    """The number of heads for keys and values, or which numbers do not go into which."""
    shared = heads if kv_heads is None else kv_heads
    if width % heads:
        raise ValueError(f"got width={width} and heads={heads}, expected a multiple of the heads.")
    if heads % shared:
        raise ValueError(
            f"got heads={heads} and kv_heads={shared}, expected as many heads for each of these."
        )
    return shared
