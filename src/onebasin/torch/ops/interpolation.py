"""Interpolation: each axis by itself, with the weights of a matrix (out, in)."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from onebasin.torch.table import Family

interpolation = Family("interpolation")
CUBIC = -0.75


def _target(x: Any, output_size: Any, scales: Any) -> tuple[list[int], list[float | None]]:
    axes = x.ndim - 2
    if output_size is not None:
        return list(output_size), list(scales) if scales is not None else [None] * axes
    sizes = [math.floor(n * s) for n, s in zip(x.shape[2:], scales, strict=True)]
    return sizes, list(scales)


def _step(old: int, new: int, scale: float | None) -> float:
    return 1 / scale if scale else old / new


def nearest(x: Any, output_size: Any, scales: Any = None, *, exact: bool = False) -> Any:
    """PyTorch finds the source pixel in single precision, whatever the image has."""
    sizes, factors = _target(x, output_size, scales)
    for axis, (new, factor) in enumerate(zip(sizes, factors, strict=True), 2):
        old = x.shape[axis]
        step = np.float32(_step(old, new, factor))
        place = np.arange(new, dtype=np.float32) + np.float32(0.5 if exact else 0)
        index = np.minimum(np.floor(place * step).astype(int), old - 1)
        x = _repeated(x, index, axis)
    return x


def _repeated(x: Any, index: np.ndarray, axis: int) -> Any:
    times, rest = divmod(len(index), x.shape[axis])
    if not rest and np.array_equal(index, np.repeat(np.arange(x.shape[axis]), times)):
        return jnp.repeat(x, times, axis=axis) if times > 1 else x
    return jnp.take(x, index, axis=axis)


def separable(x: Any, output_size: Any, align_corners: bool, scales: Any, *, cubic: bool) -> Any:
    sizes, factors = _target(x, output_size, scales)
    for axis, (new, factor) in enumerate(zip(sizes, factors, strict=True), 2):
        old = x.shape[axis]
        if old == new and (align_corners or not factor):
            continue
        weights = _matrix(old, new, align_corners, factor, cubic)
        moved = jnp.tensordot(x, jnp.asarray(weights, x.dtype), ((axis,), (1,)))
        x = jnp.moveaxis(moved, -1, axis)
    return x


def _matrix(
    old: int, new: int, align_corners: bool, factor: float | None, cubic: bool
) -> np.ndarray:
    if align_corners:
        places = np.arange(new) * ((old - 1) / (new - 1) if new > 1 else 0.0)
    else:
        places = (np.arange(new) + 0.5) * _step(old, new, factor) - 0.5
        places = places if cubic else np.maximum(places, 0)
    low = np.floor(places).astype(int)
    t = places - low
    taps = _cubic_taps(t) if cubic else {0: 1 - t, 1: t}
    matrix = np.zeros((new, old))
    for offset, weight in taps.items():
        np.add.at(matrix, (np.arange(new), np.clip(low + offset, 0, old - 1)), weight)
    return matrix


def _cubic_taps(t: np.ndarray) -> dict[int, np.ndarray]:
    def near(s: np.ndarray) -> np.ndarray:
        return ((CUBIC + 2) * s - (CUBIC + 3)) * s * s + 1

    def far(s: np.ndarray) -> np.ndarray:
        return ((CUBIC * s - 5 * CUBIC) * s + 8 * CUBIC) * s - 4 * CUBIC

    return {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}


def _nearest_rules(axes: int, exact: bool) -> dict[str, Any]:
    name = f"_upsample_nearest_exact{axes}d" if exact else f"upsample_nearest{axes}d"

    def plain(x: Any, output_size: Any, *scales: Any) -> Any:
        return nearest(x, output_size, scales or None, exact=exact)

    def vec(x: Any, output_size: Any, scale_factors: Any = None) -> Any:
        return nearest(x, output_size, scale_factors, exact=exact)

    return {name: plain, f"{name}.vec": vec}


def _separable_rules(name: str, cubic: bool) -> dict[str, Any]:
    def plain(x: Any, output_size: Any, align_corners: bool, *scales: Any) -> Any:
        return separable(x, output_size, align_corners, scales or None, cubic=cubic)

    def vec(x: Any, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
        return separable(x, output_size, align_corners, scale_factors, cubic=cubic)

    return {name: plain, f"{name}.vec": vec}


for _axes in (1, 2, 3):
    for _exact in (False, True):
        interpolation.rows(_nearest_rules(_axes, _exact))
for _name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    interpolation.rows(_separable_rules(_name, cubic=False))
interpolation.rows(_separable_rules("upsample_bicubic2d", cubic=True))


@interpolation("grid_sampler", "grid_sampler_2d")
def grid_sampler(
    x: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """Images sampled at places in [-1, 1]: bilinear (0) or nearest (1), zeros (0) or border (1)."""
    if interpolation_mode > 1 or padding_mode > 1 or x.ndim != 4:
        raise NotImplementedError(
            "grid_sample has a rule for images, bilinear or nearest, with zeros or the border"
        )
    height, width = x.shape[2:]

    def places(values: Any, size: int) -> Any:
        found = (values + 1) / 2 * (size - 1) if align_corners else ((values + 1) * size - 1) / 2
        return jnp.clip(found, 0, size - 1) if padding_mode == 1 else found

    across, down = places(grid[..., 0], width), places(grid[..., 1], height)

    def pick(row: Any, column: Any, weight: Any) -> Any:
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        rows, columns = jnp.clip(row, 0, height - 1), jnp.clip(column, 0, width - 1)
        flat = (rows * width + columns).astype(int).reshape(len(x), 1, -1)
        found = jnp.take_along_axis(x.reshape(*x.shape[:2], -1), flat, axis=2)
        found = found.reshape(*x.shape[:2], *row.shape[1:])
        return found * jnp.where(inside, weight, 0)[:, None]

    if interpolation_mode == 1:
        return pick(jnp.round(down), jnp.round(across), jnp.ones_like(down))
    top, left = jnp.floor(down), jnp.floor(across)
    below, right = down - top, across - left
    return (
        pick(top, left, (1 - below) * (1 - right))
        + pick(top, left + 1, (1 - below) * right)
        + pick(top + 1, left, below * (1 - right))
        + pick(top + 1, left + 1, below * right)
    )
