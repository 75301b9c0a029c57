"""Normalisations of images, each by name."""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

Initializer = nn.initializers.Initializer


class FilterResponseNorm(nn.Module):
    """Filter response normalisation with a thresholded linear unit (singh2020filter).

    y = max(scale * x / sqrt(mean(x^2 over pixels) + epsilon) + bias, threshold)
    """

    epsilon: float = 1e-6
    scale_init: Initializer = nn.initializers.ones

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = x.shape[-1:]
        scale = self.param("scale", self.scale_init, shape)
        bias = self.param("bias", nn.initializers.zeros, shape)
        threshold = self.param("threshold", nn.initializers.zeros, shape)
        power = jnp.mean(jnp.square(x), axis=(1, 2), keepdims=True)
        y = scale * (x * jax.lax.rsqrt(power + self.epsilon)) + bias
        return jnp.maximum(y, threshold)


class GroupNorm(nn.Module):
    """Group normalisation over at most eight groups, fewer where the width has no factor eight."""

    scale_init: Initializer = nn.initializers.ones

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        groups = math.gcd(8, x.shape[-1])
        return nn.GroupNorm(num_groups=groups, scale_init=self.scale_init)(x)


class _Identity(nn.Module):
    def __call__(self, x: jax.Array) -> jax.Array:
        return x


# Statistics move a tenth of the way to those of each batch, as torch has it.
BATCH_NORM = functools.partial(nn.BatchNorm, momentum=0.9, epsilon=1e-5)

NORMS: dict[str | None, Callable[..., nn.Module]] = {
    "frn": FilterResponseNorm,
    "layer": nn.LayerNorm,
    "group": GroupNorm,
    "batch": BATCH_NORM,
    None: _Identity,
}


def norm_of(name: str | None, train: bool) -> Callable[..., nn.Module]:
    """A normalisation by name; whether it is being trained matters to "batch" alone."""
    if name == "batch":
        return functools.partial(BATCH_NORM, use_running_average=not train)
    return NORMS[name]
