"""Random keys, as people hand them over."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_key(value: Any) -> bool:
    """Whether a value is one random key, typed or of the older kind."""
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value.shape == ()
    return value.dtype == jnp.uint32 and value.ndim == 1


def check_key(key: Any) -> None:
    """Raises unless this is one random key."""
    if not is_key(key):
        hint = f": write jax.random.key({key})" if type(key) is int else ""
        raise TypeError(
            f"the key is {described(key)}, expected one random key, such as jax.random.key(0){hint}"
        )


def key_or_first(key: Any) -> jax.Array:
    """The key that was given, to be used once more, or `jax.random.key(0)` for None."""
    if key is None:
        return jax.random.key(0)
    check_key(key)
    return jax.random.clone(key)


def described(value: Any) -> str:
    """A value in a few words, for a message."""
    if isinstance(value, jax.Array):
        return f"an array of shape {value.shape} and type {value.dtype}"
    name = type(value).__name__
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"
