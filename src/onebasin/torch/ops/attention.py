"""Attention."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.torch.table import Family

attention = Family("attention")


@attention("scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(Q K' / sqrt(d) + mask) V; a query that may look at nothing gets 0."""
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (jnp.repeat(x, repeats, axis=-3) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = jnp.matmul(query, jnp.swapaxes(key, -1, -2)) * scale
    if is_causal:
        length, width = scores.shape[-2:]
        attn_mask = jnp.tril(jnp.ones((length, width), bool))
    if attn_mask is None:
        return jnp.matmul(jax.nn.softmax(scores, axis=-1), value)
    if attn_mask.dtype == bool:
        scores = jnp.where(attn_mask, scores, -jnp.inf)
    else:
        scores = scores + attn_mask
    blind = jnp.max(scores, axis=-1, keepdims=True) == -jnp.inf
    weights = jax.nn.softmax(jnp.where(blind, 0, scores), axis=-1)
    return jnp.matmul(jnp.where(blind, 0, weights), value)
