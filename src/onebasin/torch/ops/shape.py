"""What moves, repeats, joins or cuts arrays without computing."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from onebasin.torch.ops.convolution import per_axis
from onebasin.torch.ops.layout import ChannelsLast, shortcut
from onebasin.torch.table import Family

shape = Family("shape")


def _sizes(*sizes: Any) -> tuple[int, ...]:
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], list | tuple) else sizes


shape.rows(
    {
        "atleast_1d": jnp.atleast_1d,
        "atleast_2d": jnp.atleast_2d,
        "broadcast_to": lambda x, size: jnp.broadcast_to(x, tuple(size)),
        "broadcast_tensors": lambda xs: jnp.broadcast_arrays(*xs),
        "expand_as": lambda x, other: jnp.broadcast_to(x, other.shape),
        "flip": lambda x, dims: jnp.flip(x, tuple(dims)),
        "hstack": jnp.hstack,
        "vstack": jnp.vstack,
        "dstack": jnp.dstack,
        "mT": lambda x: jnp.swapaxes(x, -1, -2),
        "adjoint": lambda x: jnp.swapaxes(x, -1, -2),
        "matrix_H": lambda x: jnp.swapaxes(x, -1, -2),
        "movedim": jnp.moveaxis,
        "moveaxis": jnp.moveaxis,
        "numpy_T": lambda x: x.T,
        "ravel": jnp.ravel,
        "reshape": lambda x, *size: x.reshape(_sizes(*size)),
        "reshape_as": lambda x, other: x.reshape(other.shape),
        "rot90": lambda x, k=1, dims=(0, 1): jnp.rot90(x, k, tuple(dims)),
        "split_with_sizes": lambda x, sizes, dim=0: _cut(x, sizes, dim),
        "unsafe_split_with_sizes": lambda x, sizes, dim=0: _cut(x, sizes, dim),
        "split.sizes": lambda x, sizes, dim=0: _cut(x, sizes, dim),
        "stack": lambda xs, dim=0: jnp.stack(xs, axis=dim),
        "swapaxes": jnp.swapaxes,
        "swapdims": jnp.swapaxes,
        "t": lambda x: x.T,
        "tile": lambda x, dims: jnp.tile(x, tuple(dims)),
        "transpose": jnp.swapaxes,
        "unsqueeze": jnp.expand_dims,
        "_unsafe_view": lambda x, size: x.reshape(tuple(size)),
        "view.default": lambda x, size: x.reshape(tuple(size)),
        "view_as": lambda x, other: x.reshape(other.shape),
    }
)


@shape("alias", "clone", "contiguous")
def same(x: Any, **_: Any) -> Any:
    return x


@shape("permute")
def permute(x: Any, dims: Any) -> Any:
    return jnp.transpose(x, tuple(dims))


@shape("cat", "concat", "concatenate")
def concatenate(xs: Any, dim: int = 0) -> Any:
    return jnp.concatenate(_nonempty(xs), axis=dim)


def _nonempty(xs: Any) -> list[Any]:
    """PyTorch lets an empty vector be joined with anything."""
    return [x for x in xs if x.shape != (0,)] or list(xs)[:1]


def _cut(x: Any, sizes: Any, dim: int) -> list[Any]:
    edges = np.cumsum(list(sizes))[:-1].tolist()
    return jnp.split(x, edges, axis=dim)


@shape("split.Tensor", "unsafe_split")
def split(x: Any, size: int, dim: int = 0) -> list[Any]:
    return jnp.split(x, list(range(size, x.shape[dim], size)), axis=dim)


@shape("chunk", "unsafe_chunk")
def chunk(x: Any, chunks: int, dim: int = 0) -> list[Any]:
    return split(x, max(-(-x.shape[dim] // chunks), 1), dim)


@shape("tensor_split.indices")
def tensor_split(x: Any, indices: Any, dim: int = 0) -> list[Any]:
    return jnp.split(x, list(indices), axis=dim)


@shape("tensor_split.sections")
def tensor_split_sections(x: Any, sections: int, dim: int = 0) -> list[Any]:
    return jnp.array_split(x, sections, axis=dim)


@shape("unbind")
def unbind(x: Any, dim: int = 0) -> list[Any]:
    return [lax.index_in_dim(x, i, axis=dim, keepdims=False) for i in range(x.shape[dim])]


@shape("expand")
def expand(x: Any, size: Any, *, implicit: bool = False) -> Any:
    size = list(size)
    new = len(size) - x.ndim
    for axis, old in enumerate(x.shape, new):
        size[axis] = old if size[axis] == -1 else size[axis]
    return jnp.broadcast_to(x, tuple(size))


@shape("repeat")
def repeat(x: Any, repeats: Any) -> Any:
    return jnp.tile(x, tuple(repeats))


@shape("repeat_interleave.self_int")
def repeat_interleave(x: Any, repeats: int, dim: int | None = None, **_: Any) -> Any:
    return jnp.repeat(x, repeats, axis=dim)


@shape("flatten")
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    if x.ndim == 0:
        return x.reshape(1)
    start, end = start_dim % x.ndim, end_dim % x.ndim
    middle = math.prod(x.shape[start : end + 1])
    return x.reshape(*x.shape[:start], middle, *x.shape[end + 1 :])


@shape("unflatten")
def unflatten(x: Any, dim: int, sizes: Any) -> Any:
    dim %= x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


@shape("squeeze")
def squeeze(x: Any, dim: Any = None) -> Any:
    axes = range(x.ndim) if dim is None else dim if isinstance(dim, list | tuple) else [dim]
    if x.ndim == 0:
        return x
    return jnp.squeeze(x, tuple(a % x.ndim for a in axes if x.shape[a] == 1))


class Stacked:
    """Arrays that count as one, stacked along a first axis.

    Layers whose last states are stacked, and picked again one by one, are not alike for that:
    as long as nobody looks at the whole, it is not made.

    Args:
        parts: The arrays, all of one shape.
    """

    def __init__(self, parts: list[Any]):
        self.parts = parts

    def whole(self) -> Any:
        return jnp.stack(self.parts)


@shape("select")
def select(x: Any, dim: int, index: Any) -> Any:
    if isinstance(x, Stacked):
        if dim == 0 and isinstance(index, int):
            return x.parts[index]
        x = x.whole()
    if isinstance(index, int):
        return lax.index_in_dim(x, index, axis=dim, keepdims=False)
    return jnp.take(x, index, axis=dim)


def bounds(length: int, start: Any, end: Any, step: int) -> tuple[int, int, int]:
    """Where a slice begins and ends, with None, negative and very large numbers."""
    return slice(start, end, step).indices(length)


@shape("slice")
def slice_(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    first, last, step = bounds(x.shape[dim], start, end, step)
    return lax.slice_in_dim(x, first, max(first, last), step, axis=dim)


@shape("narrow")
def narrow(x: Any, dim: int, start: int, length: int) -> Any:
    start = start % x.shape[dim] if start < 0 else start
    return lax.slice_in_dim(x, start, start + length, axis=dim)


@shape("roll")
def roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    shifts, dims = (tuple(v) if isinstance(v, list | tuple) else (v,) for v in (shifts, dims))
    return jnp.roll(x, shifts, dims) if dims else jnp.roll(x, shifts[0])


@shape("diagonal")
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return jnp.diagonal(x, offset, dim1, dim2)


@shape("diag_embed")
def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    size = x.shape[-1] + abs(offset)
    at = jnp.arange(x.shape[-1])
    matrix = jnp.zeros((*x.shape[:-1], size, size), x.dtype)
    matrix = matrix.at[..., at + max(-offset, 0), at + max(offset, 0)].set(x)
    return jnp.moveaxis(matrix, (-2, -1), (dim1, dim2))


@shape("unfold")
def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    if x.ndim == 0:
        return x[None]
    starts = np.arange(0, x.shape[dimension] - size + 1, step)
    windows = jnp.take(x, starts[:, None] + np.arange(size), axis=dimension)
    return jnp.moveaxis(windows, dimension % x.ndim + 1, -1)


def _patches(sizes: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> np.ndarray:
    """For each place in a kernel and each window, the pixel of the padded image."""
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (
        per_axis(v, 2) for v in (kernel, dilation, padding, stride)
    )
    height, width = sizes[0] + 2 * ph, sizes[1] + 2 * pw
    rows = np.arange(kh)[:, None] * dh + np.arange((height - dh * (kh - 1) - 1) // sh + 1) * sh
    columns = np.arange(kw)[:, None] * dw + np.arange((width - dw * (kw - 1) - 1) // sw + 1) * sw
    places = rows[:, None, :, None] * width + columns[None, :, None, :]
    return places.reshape(kh * kw, -1)


@shape("im2col")
def im2col(x: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    ph, pw = per_axis(padding, 2)
    places = _patches(x.shape[-2:], kernel_size, dilation, padding, stride)
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(ph, ph), (pw, pw)])
    found = padded.reshape(*padded.shape[:-2], -1)[..., places]
    return found.reshape(*x.shape[:-3], -1, places.shape[1])


@shape("col2im")
def col2im(
    x: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    ph, pw = per_axis(padding, 2)
    height, width = output_size
    places = _patches(output_size, kernel_size, dilation, padding, stride)
    parts = x.reshape(*x.shape[:-2], -1, *places.shape)
    image = jnp.zeros((*parts.shape[:-2], (height + 2 * ph) * (width + 2 * pw)), x.dtype)
    image = image.at[..., places].add(parts)
    image = image.reshape(*image.shape[:-1], height + 2 * ph, width + 2 * pw)
    return image[..., ph : ph + height, pw : pw + width]


@shape("pixel_shuffle")
def pixel_shuffle(x: Any, factor: int) -> Any:
    *lead, channels, height, width = x.shape
    parts = x.reshape(*lead, channels // factor**2, factor, factor, height, width)
    n = len(lead)
    moved = jnp.transpose(parts, (*range(n + 1), n + 3, n + 1, n + 4, n + 2))
    return moved.reshape(*lead, channels // factor**2, height * factor, width * factor)


@shape("pixel_unshuffle")
def pixel_unshuffle(x: Any, factor: int) -> Any:
    *lead, channels, height, width = x.shape
    parts = x.reshape(*lead, channels, height // factor, factor, width // factor, factor)
    n = len(lead)
    moved = jnp.transpose(parts, (*range(n + 1), n + 2, n + 4, n + 1, n + 3))
    return moved.reshape(*lead, channels * factor**2, height // factor, width // factor)


@shape("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(x: Any, groups: int) -> Any:
    parts = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return jnp.swapaxes(parts, 1, 2).reshape(x.shape)


@shape("as_strided")
def as_strided(x: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    index = np.full((), storage_offset or 0)
    for n, step in zip(size, stride, strict=True):
        index = index[..., None] + np.arange(n) * step
    return x.reshape(-1)[index]


@shortcut(same)
def _same_short(x: Any, *_: Any, **__: Any) -> Any:
    return x


@shortcut(concatenate)
def _concatenate_short(xs: Any, dim: int = 0) -> Any:
    if not all(isinstance(x, ChannelsLast) for x in xs):
        return NotImplemented
    return ChannelsLast(jnp.concatenate([x.array for x in xs], axis=xs[0].axis(dim)))


@shortcut(flatten)
def _flatten_short(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    single = all(n == 1 for n in x.shape[2:]) and start_dim == 1 and end_dim % x.ndim == x.ndim - 1
    return x.array.reshape(x.shape[:2]) if single else NotImplemented


@shortcut(permute)
def _permute_short(x: Any, dims: Any) -> Any:
    return jnp.transpose(x.array, [x.axis(axis) for axis in dims])
