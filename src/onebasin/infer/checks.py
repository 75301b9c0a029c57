"""What every method is given first: a random key and a problem."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from onebasin.infer.problem import Problem


def is_key(value: Any) -> bool:
    """Whether a value is one random key, typed or of the older kind."""
    if not isinstance(value, jax.Array):
        return False
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value.shape == ()
    return value.dtype == jnp.uint32 and value.ndim == 1


def check_key_and_problem(key: Any, problem: Any) -> None:
    """Raises unless a method's first two arguments are what they must be."""
    if not is_key(key):
        hint = f": write jax.random.key({key})" if type(key) is int else ""
        raise TypeError(
            f"the key is {_described(key)}, expected one random key, such as jax.random.key(0)"
            + hint
        )
    if not isinstance(problem, Problem):
        raise TypeError(
            f"the problem is {_described(problem)}, expected an onebasin.Problem: write "
            "onebasin.Problem(net, (inputs, targets)), which joins a network and its data"
        )


def _described(value: Any) -> str:
    if isinstance(value, jax.Array):
        return f"an array of shape {value.shape} and type {value.dtype}"
    name = type(value).__name__
    return f"an {name}" if name[:1].lower() in "aeiou" else f"a {name}"
