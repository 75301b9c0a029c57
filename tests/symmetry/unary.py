"""Functions of one value, as random programs draw them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array

UNARY: tuple[Callable[[Array], Array], ...] = (
    *(jax.nn.relu, jax.nn.relu, jax.nn.leaky_relu, jnp.tanh, jnp.tanh, jnp.abs, jax.nn.gelu),
    *(jax.nn.silu, jax.nn.softplus, jax.nn.elu, jax.nn.relu6, jax.nn.hard_tanh, jnp.square),
    *(jnp.sin, jnp.cos, jnp.sign, jnp.negative, jnp.cbrt, jnp.floor, jnp.round, lax.erf),
    *(jax.nn.sigmoid, lax.stop_gradient, jnp.nan_to_num, jax.jit(jax.nn.relu)),
    *(jnp.trunc, jnp.sinc, jax.scipy.special.i1, jax.scipy.special.i0e),
    lambda v: jnp.signbit(v).astype(v.dtype),
    lambda v: jnp.heaviside(v, 0.5),
    lambda v: jnp.modf(v)[0],
    lambda v: jnp.hypot(v, 2 * v),
    lambda v: jnp.logaddexp(v, -v),
    lambda v: jnp.maximum(v, -v),
    lambda v: jnp.maximum(v, -2 * v),
    lambda v: jnp.copysign(v, -v),
    lambda v: jnp.copysign(1.0, v) * v,
    lambda v: jax.nn.softplus(v) - jax.nn.softplus(-v),
    lambda v: jnp.where(v > 0, jnp.exp(v), -jnp.exp(-v)),
    lambda v: jnp.where(v >= 0, jnp.exp(v), jnp.exp(-v)),
    lambda v: jnp.where(v > 0, jnp.floor(v), jnp.ceil(v) + 1),
    lambda v: jnp.where(v == 0, 1.0, jnp.sin(v) / jnp.where(v == 0, 1.0, v)),
    lambda v: jnp.where(v > 0, v / jnp.where(v > 0, v, 1.0), 0.3),
    lambda v: jnp.where(jnp.isnan(v), v, 0.5 * v),
    lambda v: jnp.where(jnp.trunc(v) < 0, -v, 0.5 + v),
    lambda v: jnp.interp(v, jnp.array([-1.0, 0.0, 0.5]), jnp.array([0.5, 0.0, 2.0])),
    lambda v: v**3,
    lambda v: v**3 + v,
    lambda v: jnp.abs(v) ** 2.0,
    lambda v: v**0,
    lambda v: jnp.abs(v) ** 0.0,
    lambda v: jnp.sqrt(jnp.abs(v)),
    lambda v: jnp.exp(v / 2),
    lambda v: jnp.log1p(jnp.abs(v)),
    lambda v: lax.rsqrt(jnp.abs(v) + 1e-3),
    lambda v: 1 / (jnp.abs(v) + 0.1),
    lambda v: jnp.where(v > 0, v, 0.1 * v),
    lambda v: jnp.where(v > 0.3, v, 0.0),
    lambda v: jnp.where(jnp.abs(v) > jnp.abs(v).mean(), v, 0.0),
    lambda v: (v > 0).astype(v.dtype),
    lambda v: (v > 0.25).astype(v.dtype),
    lambda v: v.astype(jnp.int32).astype(v.dtype),
    lambda v: jnp.clip(v, 0, jnp.inf),
    lambda v: jnp.clip(v, -1, 1),
    lambda v: jnp.clip(v, 0, 1),
    lambda v: jnp.arctan2(v, jnp.abs(v)),
    lambda v: jax.checkpoint(jnp.tanh)(v),
    lambda v: jax.jvp(jnp.tanh, (v,), (v,))[1],
    lambda v: (2 + jnp.sin(v)) * (v - 2) * (jnp.sin(v) - 2),
    lambda v: jnp.fft.fft(v, axis=0).real if v.ndim else v,
    lambda v: jnp.real(v.astype(jnp.complex64 if v.dtype == jnp.float32 else jnp.complex128)),
)
