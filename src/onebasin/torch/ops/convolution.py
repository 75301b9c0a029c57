"""Convolutions, plain and transposed, with groups and dilation, in any number of dimensions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from onebasin.torch.ops.layout import ChannelsLast, channels_last, shortcut
from onebasin.torch.table import Family

convolution_family = Family("convolution")
_ORDERS = {
    1: ("NWC", "OIW", "NWC"),
    2: ("NHWC", "OIHW", "NHWC"),
    3: ("NDHWC", "OIDHW", "NDHWC"),
}


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """One number for each axis, from one for all or from a list."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * axes if len(values) == 1 else values


@convolution_family("conv1d", "conv2d", "conv3d")
def conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    axes = weight.ndim - 2
    single = x.ndim == axes + 1
    stride, dilation = per_axis(stride, axes), per_axis(dilation, axes)
    pads: Any
    if isinstance(padding, str):
        spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        pads = [(s // 2, s - s // 2) if padding == "same" else (0, 0) for s in spans]
    else:
        pads = [(p, p) for p in per_axis(padding, axes)]
    y = lax.conv_general_dilated(
        channels_last(x[None] if single else x),
        weight,
        stride,
        pads,
        rhs_dilation=dilation,
        feature_group_count=groups,
        dimension_numbers=_ORDERS[axes],
    )
    return _result(y, bias, single)


def conv_transpose(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """The convolution whose gradient is a plain one: holes between inputs, a mirrored kernel."""
    axes = weight.ndim - 2
    single = x.ndim == axes + 1
    stride, dilation = per_axis(stride, axes), per_axis(dilation, axes)
    spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    pads = [
        (span - p, span - p + extra)
        for span, p, extra in zip(
            spans, per_axis(padding, axes), per_axis(output_padding, axes), strict=True
        )
    ]
    ins, outs, *size = weight.shape
    if groups == 1:
        kernel = jnp.swapaxes(weight, 0, 1)
    else:
        kernel = weight.reshape(groups, ins // groups, outs, *size)
        kernel = jnp.swapaxes(kernel, 1, 2).reshape(groups * outs, ins // groups, *size)
    y = lax.conv_general_dilated(
        channels_last(x[None] if single else x),
        jnp.flip(kernel, range(2, weight.ndim)),
        (1,) * axes,
        pads,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        feature_group_count=groups,
        dimension_numbers=_ORDERS[axes],
    )
    return _result(y, bias, single)


convolution_family.rows(
    {
        "conv_transpose1d": conv_transpose,
        "conv_transpose2d.input": conv_transpose,
        "conv_transpose3d.input": conv_transpose,
    }
)


@convolution_family("convolution")
def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    if transposed:
        return conv_transpose(x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(x, weight, bias, stride, padding, dilation, groups)


def _result(y: Any, bias: Any, single: bool) -> Any:
    image = ChannelsLast(y if bias is None else y + bias)
    return image.whole()[0] if single else image


shortcut(conv)(conv)
shortcut(conv_transpose)(conv_transpose)
shortcut(convolution)(convolution)


def by_channel(vector: Any, ndim: int) -> Any:
    """A vector along the second axis of arrays of some rank."""
    return lax.expand_dims(vector, (0, *range(2, ndim)))
