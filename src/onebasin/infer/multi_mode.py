"""Any method from several independent starts: one posterior of many modes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, overload

import jax
import numpy as np

from onebasin.infer.checks import check_key_and_problem
from onebasin.infer.chunks import COUNTS, each_on_engine
from onebasin.infer.problem import Problem
from onebasin.infer.swag import swag
from onebasin.posterior import Draws, Gaussian, Mixture

MODES = 5


@overload
def multi_mode(method: Callable[..., Any], modes: int = ...) -> Callable[..., Any]: ...


@overload
def multi_mode(
    key: jax.Array,
    problem: Problem,
    *,
    method: Callable[..., Any] = ...,
    modes: int = ...,
    **options: Any,
) -> Draws | Mixture: ...


def multi_mode(*arguments: Any, **options: Any) -> Any:
    """Runs a method from several independent starts.

    It is called like any other method, `multi_mode(key, problem)`, or with the method first,
    `multi_mode(method, modes)`, for a function that is called so. Methods that take num_chains or
    num_networks run all modes as one program; others, a user's own among them, run once for each.
    With `engine=` chunks of modes, or single ones, are its tasks.

    Args:
        *arguments: A random key and the problem; or a method, and how many starts.
        **options: `method`, a method of this room or any function (key, problem, ...) that returns
            a posterior, by default `swag`; `modes`, how many starts, by default 5; and, next to a
            key and a problem, whatever else the method takes.

    Returns:
        `Draws`, with the start of each as its mode, or a `Mixture` of one Gaussian for each start
        (that Gaussian, where there is one start); without a key and a problem, a function
        (key, problem, ...) to them.

    Raises:
        TypeError: If the arguments are of neither form.
        ValueError: If there is not at least one start, or if they are counted twice.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> x = jnp.linspace(-1, 1, 16)[:, None]
        >>> problem = ob.Problem(
        ...     ob.nets.mlp(hidden=(4,), outputs=1), (x, x), likelihood="gaussian", noise=0.1
        ... )
        >>> ob.infer.multi_mode(jax.random.key(0), problem, modes=2, epochs=2, num_samples=2)
        Mixture(2 components of 13 weights)
        >>> many_chains = ob.infer.multi_mode(ob.infer.sgld, 3)
        >>> many_chains(jax.random.key(0), problem, num_samples=2, num_warmup=2, init="prior")
        Draws(6 draws of 13 weights, 3 modes)
    """
    if not arguments and not {"key", "problem"} & options.keys():
        arguments = tuple(options.pop(name) for name in ("method",) if name in options)
    if len(arguments) in (1, 2) and callable(arguments[0]):
        return _from_method(arguments, options)
    names = ("key", "problem")[len(arguments) :]
    given = (*arguments, *(options.pop(name) for name in names if name in options))
    if len(given) != 2:
        raise TypeError(
            f"got {len(given)} arguments, expected multi_mode(key, problem, method=..., modes=...) "
            "or multi_mode(method, modes)"
        )
    check_key_and_problem(*given)
    method, modes = options.pop("method", swag), options.pop("modes", MODES)
    _check(method, modes)
    counted = sorted(set(COUNTS) & options.keys())
    if counted:
        raise ValueError(
            f"got {counted[0]}={options[counted[0]]}, expected `modes` in its place: it says how "
            "many starts there are"
        )
    return _several(method, modes)(*given, **options)


def _from_method(arguments: tuple[Any, ...], options: dict[str, Any]) -> Callable[..., Any]:
    """The form that is given a method first."""
    twice = "method" in options or ("modes" in options and len(arguments) == 2)
    others = sorted(options.keys() - {"modes"})
    if twice or others:
        raise TypeError(
            f"got {', '.join(sorted(options))} next to a method, expected multi_mode(method, "
            "modes): the rest goes to the function that it returns, next to key and problem"
        )
    method, modes = (*arguments, options.get("modes", MODES))[:2]
    _check(method, modes)
    return _several(method, modes)


def _check(method: Any, modes: Any) -> None:
    if not callable(method):
        raise TypeError(f"the method is a {type(method).__name__}, expected a function")
    if isinstance(modes, bool) or not isinstance(modes, int | np.integer):
        raise TypeError(f"modes is a {type(modes).__name__}, expected a whole number")
    if modes < 1:
        raise ValueError(f"got modes={modes}, expected at least one")


def _several(method: Callable[..., Any], modes: int) -> Callable[..., Any]:
    """The method as a function (key, problem, ...) that has all modes."""
    counts = [name for name in COUNTS if name in inspect.signature(method).parameters]
    if counts:
        return functools.partial(method, **{counts[0]: modes})

    @functools.wraps(method)
    def one_by_one(key: jax.Array, problem: Any, **arguments: Any) -> Any:
        keys = jax.random.split(key, modes)
        engine = arguments.pop("engine", None)
        if engine is not None:
            return each_on_engine(engine, method, problem, keys, arguments)
        return _joined([method(keys[i], problem, **arguments) for i in range(modes)])

    return one_by_one


def _joined(parts: list[Any]) -> Draws | Mixture:
    if all(isinstance(part, Gaussian) for part in parts):
        return Mixture(parts)
    if all(isinstance(part, Draws) for part in parts):
        return Draws.concatenate(parts, renumber=True)
    kinds = sorted({type(part).__name__ for part in parts})
    raise TypeError(f"the method returned {', '.join(kinds)}, expected Draws or Gaussians")
