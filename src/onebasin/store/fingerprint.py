"""What a result depends on, as a hash that is the same in every process."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import types
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from onebasin.store.leaves import is_key

# Their code is told by their versions; what their functions were made with is looked at.
LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy", "blackjax", "equinox", "onebasin")
DEEPEST = 30


def fingerprint(*values: Any) -> str:
    """A hash of arrays, numbers, containers, functions with what they close over, and objects.

    Functions count by their code, their defaults, the variables that they close over and the
    global names that they use, one module deep; those of libraries without their code.

    Example:
        >>> from onebasin.store.fingerprint import fingerprint
        >>> def scaled(factor):
        ...     return lambda x: factor * x
        >>> fingerprint(scaled(2.0)) == fingerprint(scaled(2.0))
        True
        >>> fingerprint(scaled(2.0)) == fingerprint(scaled(3.0))
        False
    """
    return hashlib.sha256(json.dumps(_told(values, {}, 0)).encode()).hexdigest()


def _told(value: Any, seen: dict[int, tuple[int, Any]], depth: int) -> Any:
    """A value as JSON can hold it, by content."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, bytes):
        return ["bytes", hashlib.sha256(value).hexdigest()]
    if is_key(value):
        value = jax.random.key_data(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        if array.dtype.hasobject:
            return ["array", [_told(x, seen, depth + 1) for x in array.reshape(-1)]]
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return ["array", array.dtype.name, list(array.shape), digest]
    # The same thing again, or a circle: where it was first met.
    if id(value) in seen:
        return ["again", seen[id(value)][0]]
    if depth > DEEPEST:
        return ["deep", type(value).__qualname__]
    # With the value itself, lest another take its place in memory.
    seen[id(value)] = len(seen), value
    told = functools.partial(_told, seen=seen, depth=depth + 1)
    if isinstance(value, Mapping):
        return [[told(key), told(item)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [type(value).__qualname__, [told(item) for item in value]]
    if isinstance(value, set | frozenset):
        return ["set", sorted(json.dumps(told(item)) for item in value)]
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType | np.ufunc):
        return [getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__)]
    if isinstance(value, functools.partial):
        return ["partial", told(value.func), told(value.args), told(value.keywords)]
    if isinstance(value, types.MethodType):
        return ["method", told(value.__self__), value.__name__]
    if isinstance(value, types.FunctionType):
        return _function(value, told)
    if hasattr(value, "__wrapped__"):
        return ["wrapped", told(value.__wrapped__)]
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        inside = {name: getattr(value, name, None) for name in fields if name != "parent"}
        return [type(value).__module__, type(value).__qualname__, told(inside)]
    if getattr(value, "__dict__", None):
        return [type(value).__module__, type(value).__qualname__, told(vars(value))]
    return [type(value).__qualname__, re.sub(r" at 0x[0-9a-f]+", "", repr(value))]


def _function(value: types.FunctionType, told: Any) -> Any:
    cells = []
    for cell in value.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:
            cells.append(None)
    inside = [told(cells), told(value.__defaults__), told(value.__kwdefaults__)]
    module = value.__module__ or ""
    if module.partition(".")[0] in LIBRARIES:
        return [module, value.__qualname__, inside]
    used = {}
    for name in _names(value.__code__):
        found = value.__globals__.get(name)
        plain = isinstance(found, bool | int | float | str | tuple)
        if plain or getattr(found, "__module__", None) == module:
            used[name] = found
    return ["function", _code(value.__code__), inside, told(used)]


def _code(code: types.CodeType) -> Any:
    constants = [
        _code(x) if isinstance(x, types.CodeType) else repr(x)
        for x in code.co_consts
        if not isinstance(x, frozenset)
    ]
    return [hashlib.sha256(code.co_code).hexdigest(), constants, list(code.co_names)]


def _names(code: types.CodeType) -> list[str]:
    """The global names in a function's code, and in that of the functions inside it."""
    inner = [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return sorted({*code.co_names, *(name for part in inner for name in _names(part))})
