"""Arrays from nothing, or like others."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from onebasin.torch.ops.held import Counting
from onebasin.torch.table import Family

creation = Family("creation")


def _filled(value: Any) -> Any:
    def rule(size: Any, *, dtype: Any = None, **_: Any) -> Any:
        return jnp.full(tuple(size), value, dtype)

    return rule


def _like(value: Any) -> Any:
    def rule(x: Any, *, dtype: Any = None, **_: Any) -> Any:
        return jnp.full(x.shape, value, dtype or x.dtype)

    return rule


def _new(value: Any) -> Any:
    def rule(x: Any, size: Any, *, dtype: Any = None, **_: Any) -> Any:
        return jnp.full(tuple(size), value, dtype or x.dtype)

    return rule


creation.rows(
    {
        # What `empty` holds is nobody's business until it is overwritten.
        "empty": _filled(0),
        "empty_like": _like(0),
        "new_empty": _new(0),
        "zeros": _filled(0),
        "zeros_like": _like(0),
        "new_zeros": _new(0),
        "ones": _filled(1),
        "ones_like": _like(1),
        "new_ones": _new(1),
    }
)


@creation("full")
def full(size: Any, value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.full(tuple(size), value, dtype)


@creation("full_like", "fill")
def full_like(x: Any, value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.full(x.shape, value, dtype or x.dtype)


@creation("new_full")
def new_full(x: Any, size: Any, value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.full(tuple(size), value, dtype or x.dtype)


@creation("zero")
def zero(x: Any) -> Any:
    return jnp.zeros_like(x)


@creation("arange")
def arange(*args: Any, dtype: Any = None, step: Any = 1, **_: Any) -> Any:
    start, end, step = (0, *args, step) if len(args) == 1 else (*args, step)[:3]
    array = jnp.asarray(np.arange(start, end, step), dtype)
    return Counting(array) if (start, step) == (0, 1) else array


@creation("linspace")
def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.asarray(np.linspace(start, end, steps), dtype)


@creation("eye")
def eye(n: int, m: int | None = None, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.eye(n, m, dtype=dtype)


@creation("scalar_tensor")
def scalar_tensor(value: Any, *, dtype: Any = None, **_: Any) -> Any:
    return jnp.asarray(value, dtype)


@creation("tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, **_: Any) -> Any:
    return jnp.asarray(np.stack(np.tril_indices(row, offset, col)))


@creation("triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, **_: Any) -> Any:
    return jnp.asarray(np.stack(np.triu_indices(row, offset, col)))


@creation("tril")
def tril(x: Any, diagonal: int = 0) -> Any:
    return jnp.tril(x, diagonal)


@creation("triu")
def triu(x: Any, diagonal: int = 0) -> Any:
    return jnp.triu(x, diagonal)


@creation("one_hot")
def one_hot(x: Any, num_classes: int = -1) -> Any:
    return (x[..., None] == jnp.arange(num_classes)).astype(int)


@creation("meshgrid")
def meshgrid(xs: Any, *, indexing: str = "ij") -> Any:
    return jnp.meshgrid(*xs, indexing=indexing)
