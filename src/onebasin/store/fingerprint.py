"""What a result depends on, as a hash that is the same in every process.

This is the one notion of "the same question": runs, tasks on engines and pieces of studies are
told apart by it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import types
from collections import deque
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from onebasin.store.functions import (
    WRAPPERS,
    TellType,
    class_told,
    function_told,
    is_library,
    name_of,
    release_of,
)
from onebasin.store.leaves import is_key

# What holds an object says by a method of this name what it is told apart by.
HOOK = "__fingerprint__"
DEEPEST = 60
DEEPEST_SETS = 4
_SHOWN = (types.SimpleNamespace,)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fingerprint(*values: Any) -> str:
    """A hash of arrays, numbers, containers, functions with what they close over, and objects.

    Functions count by their code, their defaults, the variables that they close over, and the
    functions, classes and values that they reach by name, in other modules too; those of libraries
    by their name and the library's version. An object that has a method `__fingerprint__` counts by
    what that returns.

    Example:
        >>> from onebasin.store.fingerprint import fingerprint
        >>> def scaled(factor):
        ...     return lambda x: factor * x
        >>> fingerprint(scaled(2.0)) == fingerprint(scaled(2.0))
        True
        >>> fingerprint(scaled(2.0)) == fingerprint(scaled(3.0))
        False
    """
    return _digest(_Teller().all(values))


class _Teller:
    """Tells values as JSON can hold them, by content.

    What was met before, be it in a circle, is told by its number. Functions and classes of users
    are told one after the other and not one inside the other, as what they reach may be deep.
    """

    def __init__(self, sets: int = 0):
        self.sets = sets
        # With the value itself, lest another take its place in memory.
        self.met: dict[int, tuple[int, Any]] = {}
        self.later: list[Any] = []

    def all(self, values: Any) -> Any:
        """The values, then all functions and classes that they reach, which may reach more."""
        found = [self.told(values, 0)]
        for thing in self.later:
            tell = self._deeper(0)
            found.append(
                class_told(thing, tell) if isinstance(thing, type) else function_told(thing, tell)
            )
        return found

    def told(self, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        if isinstance(value, bytes):
            return ["bytes", hashlib.sha256(value).hexdigest()]
        if isinstance(value, jax.Array) and is_key(value):
            data = np.asarray(jax.random.key_data(value))
            return ["key", str(jax.random.key_impl(value)), self._array(data, depth)]
        if isinstance(value, np.ndarray | np.generic | jax.Array):
            return self._array(np.asarray(value), depth)
        if id(value) in self.met:
            return ["again", self.met[id(value)][0]]
        if depth > DEEPEST or self.sets > DEEPEST_SETS:
            return ["deep", type(value).__qualname__]
        if type(value) is tuple:
            # Whether equal constants are one object is up to Python.
            return ["tuple", [self.told(item, depth + 1) for item in value]]
        if isinstance(value, set | frozenset):
            # Each by itself: a number of what is met would depend on the order of the set.
            return ["set", sorted(_digest(_Teller(self.sets + 1).all(item)) for item in value)]
        self.met[id(value)] = len(self.met), value
        return self._container(value, self._deeper(depth))

    def _deeper(self, depth: int) -> TellType:
        return lambda value: self.told(value, depth + 1)

    def _array(self, array: np.ndarray, depth: int) -> Any:
        if array.dtype.hasobject:
            return ["array", [self.told(x, depth + 1) for x in array.reshape(-1)]]
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return ["array", array.dtype.name, list(array.shape), digest]

    def _container(self, value: Any, tell: TellType) -> Any:
        if isinstance(value, Mapping):
            return [[tell(key), tell(item)] for key, item in value.items()]
        if isinstance(value, tuple | list | deque):
            return [type(value).__qualname__, [tell(item) for item in value]]
        if isinstance(value, types.FunctionType | type):
            return self._code(value, tell)
        if isinstance(value, types.ModuleType | types.BuiltinFunctionType | np.ufunc):
            return name_of(value)
        if isinstance(value, functools.partial):
            return ["partial", tell(value.func), tell(value.args), tell(value.keywords)]
        if isinstance(value, types.MethodType):
            return ["method", tell(value.__self__), value.__name__]
        if isinstance(value, types.CodeType):
            return ["code", value.co_code.hex()]
        if isinstance(value, WRAPPERS):
            parts = ("__func__", "func", "fget", "fset")
            return ["wrapped", [tell(getattr(value, part, None)) for part in parts]]
        if hasattr(value, "__wrapped__") and is_library(type(value).__module__):
            return ["wrapped", tell(value.__wrapped__)]
        return _object(value, tell)

    def _code(self, value: Any, tell: TellType) -> Any:
        if not is_library(value.__module__):
            self.later.append(value)
            return ["code", self.met[id(value)][0]]
        if isinstance(value, type):
            return [*name_of(value), release_of(value.__module__)]
        # What a library's function was made with is looked at; its code is told by the version.
        return function_told(value, tell, code=False)


def _object(value: Any, tell: TellType) -> Any:
    kind = type(value)
    if hasattr(kind, HOOK):
        return [*name_of(kind), tell(getattr(value, HOOK)())]
    if isinstance(value, np.random.Generator):
        return [tell(kind), tell(value.bit_generator.state)]
    if dataclasses.is_dataclass(value):
        fields = [f for f in dataclasses.fields(value) if f.init and not f.metadata.get("record")]
        # A Flax module's parent is what it is bound to, and none of its own.
        inside = {f.name: getattr(value, f.name, None) for f in fields if f.name != "parent"}
        return [tell(kind), tell(inside)]
    standard = (kind.__module__ or "").partition(".")[0] in _standard() and kind not in _SHOWN
    inside = {} if standard else _attributes(value)
    if inside:
        return [tell(kind), tell(inside)]
    return [tell(kind), _ADDRESS.sub("", repr(value))]


def _attributes(value: Any) -> dict[str, Any]:
    """What an object holds, in its dictionary or in slots."""
    slots = [
        name
        for kind in type(value).__mro__
        for name in _as_tuple(vars(kind).get("__slots__", ()))
        if not name.startswith("__")
    ]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _as_tuple(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


@functools.lru_cache(maxsize=1)
def _standard() -> frozenset[str]:
    """Modules of Python itself; what their objects hold (locks, loggers) changes as they work."""
    import sys

    return sys.stdlib_module_names


def _digest(told: Any) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
