"""Any method from several independent starts: one posterior of many modes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax

from onebasin.infer.chunks import COUNTS, each_on_engine
from onebasin.posterior import Draws, Gaussian, Mixture


def multi_mode(method: Callable[..., Any], modes: int) -> Callable[..., Any]:
    """A method that runs another from several independent starts.

    Methods that take num_chains or num_networks run all modes as one program; others, a user's own
    among them, run once for each. With `engine=` chunks of modes, or single ones, are its tasks.

    Args:
        method: A method of this room, or any function (key, problem, ...) that returns a posterior.
        modes: How many starts.

    Returns:
        A function (key, problem, ...) to `Draws`, with the start of each as its mode, or to a
        `Mixture`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> x = jnp.linspace(-1, 1, 16)[:, None]
        >>> problem = ob.Problem(
        ...     ob.nets.mlp(hidden=(4,), outputs=1), (x, x), likelihood="gaussian", noise=0.1
        ... )
        >>> many_swags = ob.infer.multi_mode(ob.infer.swag, 3)
        >>> many_swags(jax.random.key(0), problem, epochs=2, num_samples=2)
        Mixture(3 components of 13 weights)
    """
    if modes < 1:
        raise ValueError(f"got modes={modes}, expected at least one")
    if not callable(method):
        raise TypeError(f"the method is a {type(method).__name__}, expected a function")
    counts = [name for name in COUNTS if name in inspect.signature(method).parameters]
    if counts:
        return functools.partial(method, **{counts[0]: modes})

    @functools.wraps(method)
    def several(key: jax.Array, problem: Any, **arguments: Any) -> Any:
        keys = jax.random.split(key, modes)
        engine = arguments.pop("engine", None)
        if engine is not None:
            return each_on_engine(engine, method, problem, keys, arguments)
        return _joined([method(keys[i], problem, **arguments) for i in range(modes)])

    return several


def _joined(parts: list[Any]) -> Draws | Mixture:
    if all(isinstance(part, Gaussian) for part in parts):
        return Mixture(parts)
    if all(isinstance(part, Draws) for part in parts):
        return Draws.concatenate(parts, renumber=True)
    kinds = sorted({type(part).__name__ for part in parts})
    raise TypeError(f"the method returned {', '.join(kinds)}, expected Draws or Gaussians")
