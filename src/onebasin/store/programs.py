"""Functions by the program that JAX traces of them: its operations in order, with all constants.

Two functions that are written differently and do the same operations are the same program; one that
reads a number from another module, from a file or from a closure has it among its constants. Names
of functions and variables, places in the source and addresses do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.core import AbstractValue
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from onebasin.store.fingerprint import fingerprint

# What a program is called, and rules of derivatives: these are operations of the derivative's
# program.
UNTOLD = (
    "name",
    "debug_info",
    "ctx_mesh",
    "jvp_jaxpr_fun",
    "jvp_jaxpr_thunk",
    "fwd_jaxpr_thunk",
    "bwd",
    "out_trees",
)


def program(function: Callable[..., Any], *arguments: Any) -> str:
    """A hash of what a function computes.

    Args:
        function: What JAX can trace.
        *arguments: What it is traced with, arrays or shapes; their values do not count.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.store.programs import program
        >>> x = jnp.zeros(3)
        >>> program(lambda x: 2 * x, x) == program(lambda y: y * 2, x)
        False
        >>> program(lambda x: 2 * x, x) == program(lambda y: 2 * y, x)
        True
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return fingerprint(_closed(closed), str(jax.tree.structure(shape)))


def _closed(closed: ClosedJaxpr) -> str:
    return fingerprint(_jaxpr(closed.jaxpr), list(closed.consts))


def _jaxpr(jaxpr: Jaxpr) -> str:
    """Inputs by type, then each operation with what it reads and makes, variables by number."""
    numbers: dict[Any, int] = {}

    def made(variables: Any) -> list[str]:
        for variable in variables:
            numbers[variable] = len(numbers)
        return [str(variable.aval) for variable in variables]

    def read(atoms: Any) -> list[Any]:
        return [
            [str(x.aval), _value(x.val)] if isinstance(x, Literal) else numbers[x] for x in atoms
        ]

    inputs = made((*jaxpr.constvars, *jaxpr.invars))
    steps = [
        [e.primitive.name, _params(e.params), read(e.invars), made(e.outvars)] for e in jaxpr.eqns
    ]
    # As a hash, since programs may be deep inside each other.
    return fingerprint(inputs, steps, read(jaxpr.outvars))


def _params(params: dict[str, Any]) -> list[Any]:
    return [[name, _value(params[name])] for name in sorted(params) if name not in UNTOLD]


def _value(value: Any) -> Any:
    """A parameter of an operation; programs may be inside."""
    if isinstance(value, ClosedJaxpr):
        return _closed(value)
    if isinstance(value, Jaxpr):
        return _jaxpr(value)
    if isinstance(value, tuple | list):
        return [_value(item) for item in value]
    return str(value) if isinstance(value, AbstractValue) else value
