"""Normalisations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from onebasin.torch.ops.convolution import by_channel
from onebasin.torch.ops.layout import ChannelsLast, shortcut
from onebasin.torch.table import Family

norms = Family("normalisation")


@norms("batch_norm")
def batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Any:
    if training:
        axes = (0, *range(2, x.ndim))
        running_mean = jnp.mean(x, axis=axes)
        running_var = jnp.mean(jnp.square(x - by_channel(running_mean, x.ndim)), axis=axes)
    factor = lax.rsqrt(running_var + eps)
    if weight is not None:
        factor = factor * weight
    y = (x - by_channel(running_mean, x.ndim)) * by_channel(factor, x.ndim)
    return y if bias is None else y + by_channel(bias, x.ndim)


@shortcut(batch_norm)
def _batch_norm_short(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    _: float,
    eps: float,
    *__: Any,
) -> Any:
    if training:
        return NotImplemented
    factor = lax.rsqrt(var + eps)
    y = (x.array - mean) * (factor if weight is None else factor * weight)
    return ChannelsLast(y if bias is None else y + bias)


@norms("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def native_batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    normed = _batch_norm_short if isinstance(x, ChannelsLast) else batch_norm
    none = jnp.zeros(0, mean.dtype)
    return normed(x, weight, bias, mean, var, False, momentum, eps), none, none, none


shortcut(native_batch_norm)(native_batch_norm)


@norms("layer_norm")
def layer_norm(
    x: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = False,
) -> Any:
    y = _standardised(x, range(x.ndim - len(normalized_shape), x.ndim), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@norms("native_layer_norm")
def native_layer_norm(
    x: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float
) -> tuple[Any, Any, Any]:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    mean = jnp.mean(x, axis=axes, keepdims=True)
    spread = jnp.mean(jnp.square(x - mean), axis=axes, keepdims=True)
    return layer_norm(x, normalized_shape, weight, bias, eps), mean, lax.rsqrt(spread + eps)


@norms("rms_norm")
def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    eps = float(jnp.finfo(x.dtype).eps) if eps is None else eps
    y = x * lax.rsqrt(jnp.mean(jnp.square(x), axis=axes, keepdims=True) + eps)
    return y if weight is None else y * weight


@norms("group_norm")
def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Any:
    grouped = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    y = _standardised(grouped, range(2, grouped.ndim), eps).reshape(x.shape)
    return _scaled_by_channel(y, weight, bias)


@norms("native_group_norm")
def native_group_norm(
    x: Any, weight: Any, bias: Any, n: int, c: int, hxw: int, group: int, eps: float
) -> tuple[Any, Any, Any]:
    none = jnp.zeros((n, group), x.dtype)
    return group_norm(x, group, weight, bias, eps), none, none


@norms("instance_norm")
def instance_norm(
    x: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Any:
    if not use_input_stats:
        return batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps)
    return _scaled_by_channel(_standardised(x, range(2, x.ndim), eps), weight, bias)


def _standardised(x: Any, axes: Any, eps: float) -> Any:
    centred = x - jnp.mean(x, axis=tuple(axes), keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=tuple(axes), keepdims=True)
    return centred * lax.rsqrt(variance + eps)


def _scaled_by_channel(y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else y * by_channel(weight, y.ndim)
    return y if bias is None else y + by_channel(bias, y.ndim)
