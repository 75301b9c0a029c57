"""Your own Flax model, made known to onebasin by one function.

Run `onebasin symmetries examples/own_model.py:factory`.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


class Classifier(nn.Module):
    """A small convolutional network with a gated hidden layer."""

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Map images (batch, height, width, 1) to logits (batch, 10)."""
        x = nn.relu(nn.Conv(8, (3, 3))(images))
        x = nn.relu(nn.Conv(16, (3, 3), strides=2)(x))
        x = x.mean(axis=(1, 2))
        gate = nn.sigmoid(nn.Dense(32)(x))
        x = gate * nn.Dense(32)(x)
        return nn.Dense(10)(x)


def factory() -> tuple[Any, Any, jax.Array]:
    """Return what `onebasin.discover` takes: the function, its parameters, and an input."""
    model = Classifier()
    images = jnp.zeros((2, 8, 8, 1))
    params = model.init(jax.random.key(0), images)
    return model.apply, params, images
