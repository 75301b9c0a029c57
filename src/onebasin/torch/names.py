"""What the targets of a graph's nodes are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SYMBOLIC: dict[str, Callable[..., Any]] = {
    "sym_float": float,
    "sym_int": int,
    "sym_max": max,
    "sym_min": min,
    "sym_not": lambda x: not x,
    "sym_sqrt": lambda x: x**0.5,
    "_sym_sqrt": lambda x: x**0.5,
    "sym_ite": lambda condition, yes, no: yes if condition else no,
}


def operator_name(target: Any) -> str:
    """The name of an operator as "namespace.name.overload"."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return str(target)
    namespace = getattr(target, "namespace", None) or getattr(target, "__module__", "")
    return f"{namespace}.{getattr(target, '__name__', str(target))}"


def symbolic(target: Any) -> Callable[..., Any] | None:
    """What computes with sizes and picks from tuples, which Python does by itself."""
    if getattr(target, "_schema", None) is not None:
        return None
    name, room = getattr(target, "__name__", ""), getattr(target, "__module__", "")
    if room in ("_operator", "operator", "math", "builtins"):
        return target
    return _SYMBOLIC.get(name)
