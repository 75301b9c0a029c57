"""Activations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from onebasin.torch.ops.elementwise import scaled
from onebasin.torch.ops.layout import ChannelsLast, shortcut
from onebasin.torch.table import Family

activation = Family("activation")

activation.rows(
    {
        "log_sigmoid": jax.nn.log_sigmoid,
        "mish": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
        "relu": jax.nn.relu,
        "sigmoid": jax.nn.sigmoid,
        "silu": lambda x: x * jax.nn.sigmoid(x),
        "softsign": lambda x: x / (1 + jnp.abs(x)),
        "tanh": jnp.tanh,
    }
)


@activation("hardtanh")
def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    return lax.clamp(jnp.asarray(min_val, x.dtype), x, jnp.asarray(max_val, x.dtype))


@activation("relu6")
def relu6(x: Any) -> Any:
    return hardtanh(x, 0.0, 6.0)


@activation("hardsigmoid")
def hardsigmoid(x: Any) -> Any:
    return hardtanh(x + 3, 0.0, 6.0) / 6


@activation("hardswish")
def hardswish(x: Any) -> Any:
    return x * hardsigmoid(x)


@activation("gelu")
def gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return jax.nn.gelu(x, approximate=True)
    return 0.5 * x * (1 + special.erf(x * np.sqrt(0.5).astype(x.dtype)))


@activation("elu")
def elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    negative = alpha * jnp.expm1(scaled(jnp.where(x > 0, 0, x), input_scale))
    return scaled(jnp.where(x > 0, x, negative), scale)


@activation("selu")
def selu(x: Any) -> Any:
    return elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@activation("celu")
def celu(x: Any, alpha: float = 1.0) -> Any:
    return elu(x, alpha, 1.0, 1 / alpha)


@activation("leaky_relu")
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Any:
    return jnp.where(x > 0, x, x * negative_slope)


@activation("rrelu")
def rrelu(
    x: Any,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    return leaky_relu(x, (lower + upper) / 2)


@activation("prelu", "_prelu_kernel")
def prelu(x: Any, weight: Any) -> Any:
    if jnp.ndim(weight) == 1 and jnp.ndim(x) > 1:
        weight = weight.reshape(1, -1, *[1] * (x.ndim - 2))
    return jnp.where(x > 0, x, x * weight)


@activation("softplus")
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    scaled_x = scaled(x, beta)
    soft = jnp.log1p(jnp.exp(jnp.where(scaled_x > threshold, 0, scaled_x))) / beta
    return jnp.where(scaled_x > threshold, x, soft)


@activation("softshrink")
def softshrink(x: Any, lambd: float = 0.5) -> Any:
    return jnp.where(x > lambd, x - lambd, jnp.where(x < -lambd, x + lambd, 0 * x))


@activation("hardshrink")
def hardshrink(x: Any, lambd: float = 0.5) -> Any:
    return jnp.where((x > lambd) | (x < -lambd), x, 0)


@activation("threshold")
def threshold(x: Any, threshold: float, value: float) -> Any:
    return jnp.where(x > threshold, x, value)


@activation("glu")
def glu(x: Any, dim: int = -1) -> Any:
    first, gate = jnp.split(x, 2, axis=dim)
    return first * jax.nn.sigmoid(gate)


@shortcut(glu)
def _glu_short(x: Any, dim: int = -1) -> Any:
    return ChannelsLast(glu(x.array, x.axis(dim)))


@shortcut(prelu)
def _prelu_short(x: Any, weight: Any) -> Any:
    return ChannelsLast(jnp.where(x.array > 0, x.array, x.array * weight))
