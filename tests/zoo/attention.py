"""Transformers.

What they have in common: heads permute; each head has query-key dimensions and value dimensions of
its own, which permute, scale and flip (queries against keys, values against the output map). The
stream permutes. With a LayerNorm in front of each linear map (pre-LN), gain and bias against that
map scale and flip per stream unit, one set of scalings for each LayerNorm; and the whole stream
flips together: all that writes to it, and the gain of each LayerNorm.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from .case import Case, Factor, factor, linen, normal

Array = jax.Array
STREAM, HEADS, DIM, HIDDEN = 7, 3, 5, 11
init = nn.initializers.lecun_normal()


def attend(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
    """(batch, time, head, dim) each; keys may have fewer heads than queries, as (group, head)."""
    scores = jnp.einsum("btg...d,bsgd->bg...ts", query, key) / np.sqrt(query.shape[-1])
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    return jnp.einsum("bg...ts,bsgd->btg...d", jax.nn.softmax(scores), value)


class Flax(nn.Module):
    causal: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        mask = nn.make_causal_mask(x[..., 0]) if self.causal else None
        attention = nn.MultiHeadDotProductAttention(
            HEADS, qkv_features=HEADS * DIM, out_features=x.shape[-1]
        )
        return attention(x, mask=mask)


class Packed(nn.Module):
    """One matmul for queries, keys and values, outermost or inside each head."""

    inside: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        shape = (HEADS, 3, DIM) if self.inside else (3, HEADS, DIM)
        qkv = nn.Dense(3 * HEADS * DIM)(x).reshape(*x.shape[:2], *shape)
        parts = jnp.moveaxis(qkv, 3 if self.inside else 2, 0)
        y = attend(parts[0], parts[1], parts[2])
        return nn.Dense(x.shape[-1])(y.reshape(*x.shape[:2], -1))


class GroupedQuery(nn.Module):
    """Two groups of three query heads; a group shares its keys and its values."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        size = x.shape[-1]
        query = jnp.einsum("btm,mghd->btghd", x, self.param("query", init, (size, 2, 3, 5)))
        key = jnp.einsum("btm,mgd->btgd", x, self.param("key", init, (size, 2, 5)))
        value = jnp.einsum("btm,mgd->btgd", x, self.param("value", init, (size, 2, 9)))
        y = attend(query, key, value)
        return jnp.einsum("btghd,ghdm->btm", y, self.param("out", init, (2, 3, 9, size)))


def rotate(x: Array) -> Array:
    """Rotary positions, rotate-half: (x_j, x_{j + d/2}) turn together by position / 10^j."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None] * 10.0 ** -np.arange(half)
    cosine, sine = (
        jnp.concatenate([part, part], axis=-1)[:, None, :].astype(x.dtype)
        for part in (jnp.cos(angle), jnp.sin(angle))
    )
    return x * cosine + jnp.concatenate([-x[..., half:], x[..., :half]], axis=-1) * sine


class Rotary(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        query, key = (nn.DenseGeneral((HEADS, 4), name=name)(x) for name in ("query", "key"))
        value = nn.DenseGeneral((HEADS, DIM), name="value")(x)
        y = attend(rotate(query), rotate(key), value)
        return nn.DenseGeneral(x.shape[-1], axis=(-2, -1), name="out")(y)


class Block(nn.Module):
    attention: Callable[[], nn.Module]
    post_norm: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        mlp = nn.Sequential([nn.Dense(HIDDEN), nn.gelu, nn.Dense(x.shape[-1])])
        if self.post_norm:
            x = nn.LayerNorm()(x + self.attention()(x))
            return nn.LayerNorm()(x + mlp(x))
        x = x + self.attention()(nn.LayerNorm()(x))
        return x + mlp(nn.LayerNorm()(x))


def sinusoid(length: int, size: int) -> np.ndarray:
    column = np.arange(size)
    angle = np.arange(length)[:, None] / 100.0 ** (column // 2 * 2 / size)
    return np.where(column % 2, np.cos(angle), np.sin(angle)).astype(np.float32)


class Encoder(nn.Module):
    attention: Callable[[], nn.Module] = Flax
    positions: str | None = "learned"
    post_norm: bool = False
    scanned: int | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Dense(STREAM)(x)
        if self.positions == "learned":
            x = x + self.param("positions", nn.initializers.normal(1.0), x.shape[1:])
        elif self.positions == "sinusoid":
            x = x + sinusoid(*x.shape[1:])
        if self.scanned:
            body = nn.scan(
                lambda block, x, _: (block(x), None),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.scanned,
            )
            x, _ = body(Block(self.attention), x, None)
        else:
            x = Block(self.attention, self.post_norm)(x)
        if not self.post_norm:
            x = nn.LayerNorm()(x)
        return nn.Dense(8)(x.mean(axis=1))


class GPT(nn.Module):
    """Token embeddings that are the output map too, and a causal mask."""

    tied: bool = True

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        embedding = nn.Embed(13, STREAM)
        x = embedding(tokens)
        x = x + self.param("positions", nn.initializers.normal(1.0), x.shape[1:])
        x = nn.LayerNorm()(Block(lambda: Flax(causal=True))(x))
        return embedding.attend(x) if self.tied else nn.Dense(13)(x)


class Pooling(nn.Module):
    """Softmax over time, of scores that a tanh layer gives, as weights of a mean."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.relu(nn.Dense(5)(x))
        scores = nn.Dense(1)(nn.tanh(nn.Dense(7)(x)))
        return nn.Dense(2)(jnp.sum(nn.softmax(scores, axis=1) * x, axis=1))


def heads(copies: int = 1) -> tuple[Factor, ...]:
    dims = factor(DIM, "psf", copies=copies * HEADS)
    return factor(HEADS, "p", copies=copies), dims, dims, factor(HIDDEN, "p", copies=copies)


FLIP = factor(1, "f")
HEAD_SCALINGS = 2 * HEADS * DIM
TOKENS = np.random.default_rng(0).integers(13, size=(2, 6)).astype(np.int32)


def encoder(module: nn.Module) -> Any:
    return linen(module, normal(0, 6, 4, 10))


CASES = (
    Case(
        "encoder",
        lambda: encoder(Encoder()),
        (factor(STREAM, "psf"), *heads(), FLIP),
        3 * STREAM + HEAD_SCALINGS,
        note="Softmax cannot see the bias of the keys; its free scaling is not claimed.",
    ),
    *(
        Case(
            f"encoder-packed{suffix}",
            lambda inside=inside: encoder(Encoder(lambda: Packed(inside))),  # type: ignore[misc]
            (factor(STREAM, "psf"), *heads(), FLIP),
            3 * STREAM + HEAD_SCALINGS,
        )
        for suffix, inside in (("", False), ("-in-heads", True))
    ),
    Case(
        "encoder-grouped-query",
        lambda: encoder(Encoder(GroupedQuery)),
        (
            factor(STREAM, "psf"),
            factor(2, "p"),
            factor(3, "p", copies=2),
            factor(5, "psf", copies=2),
            factor(9, "psf", copies=2),
            factor(HIDDEN, "p"),
            FLIP,
        ),
        3 * STREAM + 2 * 5 + 2 * 9,
    ),
    # Frequencies are pinned. A frequency's two dimensions turn together: one scaling, one flip.
    Case(
        "encoder-rotary",
        lambda: encoder(Encoder(Rotary, positions=None)),
        (
            factor(STREAM, "psf"),
            factor(HEADS, "p"),
            factor(2, "sf", copies=HEADS),
            factor(DIM, "psf", copies=HEADS),
            factor(HIDDEN, "p"),
            FLIP,
        ),
        3 * STREAM + HEADS * 2 + HEADS * DIM,
        note="A quarter turn of a frequency's plane, in queries and keys alike, is a signed "
        "permutation too, but not one of units and signs along one index set.",
    ),
    # The constant pins the stream and cannot flip with it; gains against maps are left.
    Case(
        "encoder-sinusoid",
        lambda: encoder(Encoder(positions="sinusoid")),
        (factor(STREAM, "sf"), *heads()),
        3 * STREAM + HEAD_SCALINGS,
    ),
    # The stream in front of each LayerNorm flips as a whole; only the last LayerNorm has nothing
    # but a linear map behind it.
    Case(
        "encoder-post-norm",
        lambda: encoder(Encoder(post_norm=True)),
        (factor(STREAM, "psf"), *heads(), FLIP, FLIP),
        STREAM + HEAD_SCALINGS,
    ),
    # The stream permutes once for all layers. The LayerNorms inside scale and flip per layer and
    # unit, the last one per unit.
    Case(
        "encoder-scanned",
        lambda: encoder(Encoder(scanned=2)),
        (factor(STREAM, "psf"), factor(STREAM, "sf", copies=2), *heads(copies=2), FLIP),
        (2 * 2 + 1) * STREAM + 2 * HEAD_SCALINGS,
    ),
    # The last LayerNorm's gain has the embedding behind it, which writes to the stream: no scaling
    # and no flip per unit. When all flips, that LayerNorm flips its bias, not its gain.
    Case(
        "gpt-tied",
        lambda: linen(GPT(), TOKENS),
        (factor(STREAM, "psf"), *heads(), FLIP),
        2 * STREAM + HEAD_SCALINGS,
    ),
    Case(
        "gpt-untied",
        lambda: linen(GPT(tied=False), TOKENS),
        (factor(STREAM, "psf"), *heads(), FLIP),
        3 * STREAM + HEAD_SCALINGS,
    ),
    Case(
        "attention-pooling",
        lambda: linen(Pooling(), normal(0, 2, 4, 3)),
        (factor(5, "ps"), factor(7, "pf")),
        5,
        note="Softmax cannot see the bias of the scores; its free scaling is not claimed.",
    ),
)
