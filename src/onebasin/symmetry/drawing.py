"""The numbers that a trial is made on."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

ALIGNMENT = 64


class Drawing:
    """Random parameters and inputs, after those that were given.

    Args:
        rng: Where all random numbers come from.
        double: Whether they are wanted in double precision.
    """

    def __init__(self, rng: np.random.Generator, double: bool):
        self.rng, self.double = rng, double
        self.pool = rng.standard_normal(1_000_003)

    def _precision(self, dtype: Any) -> Any:
        return widest(dtype) if self.double else dtype

    def example(self, x: Any) -> Any:
        """An input as it was given, or a random one of its shape."""
        dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
        if not isinstance(x, jax.ShapeDtypeStruct):
            if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
                return plain(x)
            return np.asarray(x, self._precision(dtype))
        if jax.dtypes.issubdtype(dtype, np.floating):
            return self.rng.standard_normal(x.shape).astype(self._precision(dtype))
        return self.rng.integers(0, 2, x.shape).astype(dtype)

    def filled(self, x: Any) -> Any:
        """Random numbers where an input is zero everywhere."""
        array = np.asarray(x)
        float_type = jax.dtypes.issubdtype(array.dtype, np.floating)
        if not float_type or array.ndim < 2 or not array.size or array.any():
            return x
        return self.rng.standard_normal(array.shape).astype(array.dtype)

    def parameter(self, leaf: Any, noise: float, fresh: bool) -> Any:
        """Keeps the scale and the sign of leaves that are positive (variances), moves all else.

        Args:
            leaf: The parameter, or its shape.
            noise: How far it is moved.
            fresh: Whether nothing is kept of values of both signs but their size.
        """
        if not jax.dtypes.issubdtype(leaf.dtype, np.inexact):
            return np.zeros(leaf.shape, leaf.dtype) if is_shape(leaf) else plain(leaf)
        normal = self._normal(leaf.shape)
        dtype = self._precision(leaf.dtype)
        if is_shape(leaf):
            return _of_shape(leaf.shape, normal).astype(dtype, copy=False)
        value = np.asarray(leaf)
        if not value.size:
            return value.astype(dtype)
        low, high = value.min(), value.max()
        if low == high == 0:
            value = noise * normal
        elif low >= 0 or high <= 0:
            value = value * np.exp(noise * normal)
        else:
            scale = float(np.abs(value.ravel()[:: value.size // 1000 + 1]).mean())
            value = scale * normal if fresh and noise else value + (0.3 * noise * scale) * normal
        return value.astype(dtype, copy=False)

    def _normal(self, shape: tuple[int, ...]) -> np.ndarray:
        start = int(self.rng.integers(len(self.pool) // 2))
        return _repeated(self.pool[start:], int(np.prod(shape))).reshape(shape)


def _of_shape(shape: tuple[int, ...], normal: np.ndarray) -> np.ndarray:
    if len(shape) < 2:
        return np.exp(0.3 * normal)
    return normal / np.sqrt(max(int(np.prod(shape[:-1])), 1))


def _repeated(values: np.ndarray, size: int) -> np.ndarray:
    """The values over and over, each written once: these arrays are as large as the model."""
    whole = np.empty(size, values.dtype)
    for start in range(0, size, len(values)):
        part = whole[start : start + len(values)]
        part[:] = values[: len(part)]
    return whole


def settled(value: Any) -> Any:
    """The values at an address that the compiled model reads where they are, instead of copying."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    value = np.asarray(value)
    room = np.empty(value.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    moved = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    moved[...] = value
    return moved


def is_shape(leaf: Any) -> bool:
    """Whether a leaf has no values."""
    return isinstance(leaf, jax.ShapeDtypeStruct)


def plain(leaf: Any) -> Any:
    """Random keys as their bits: the same key may then be used again."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return leaf


def generator_of(leaf: Any) -> Any:
    """Which generator a random key belongs to; None for all other leaves."""
    dtype = getattr(leaf, "dtype", None)
    is_key = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    return jax.random.key_impl(leaf) if is_key and not is_shape(leaf) else None


def widest(dtype: Any) -> Any:
    """The most precise type of a kind."""
    if jax.dtypes.issubdtype(dtype, np.complexfloating):
        return np.complex128
    return np.float64 if jax.dtypes.issubdtype(dtype, np.floating) else dtype
