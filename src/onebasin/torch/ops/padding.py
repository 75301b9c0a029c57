"""Padding: with a constant, by reflection, replication or around."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from onebasin.torch.table import Family

padding_family = Family("padding")
MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pairs(x: Any, pad: Any) -> list[tuple[int, int]]:
    """PyTorch counts from the last axis; this is from the first."""
    given = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    return [(0, 0)] * (x.ndim - len(given)) + given


@padding_family("pad")
def pad(x: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    pairs = _pairs(x, pad)
    if mode == "constant":
        filler = jnp.asarray(value or 0, x.dtype)
        return lax.pad(x, filler, [(low, high, 0) for low, high in pairs])
    for axis, (low, high) in enumerate(pairs):
        if low < 0 or high < 0:
            x = lax.slice_in_dim(x, max(-low, 0), x.shape[axis] - max(-high, 0), axis=axis)
    return jnp.pad(x, [(max(low, 0), max(high, 0)) for low, high in pairs], MODES[mode])


@padding_family("constant_pad_nd")
def constant_pad(x: Any, padding: Any, value: float = 0) -> Any:
    return pad(x, padding, "constant", value)


for _axes in (1, 2, 3):
    padding_family.rows(
        {
            f"reflection_pad{_axes}d": lambda x, padding: pad(x, padding, "reflect"),
            f"replication_pad{_axes}d": lambda x, padding: pad(x, padding, "replicate"),
        }
    )
