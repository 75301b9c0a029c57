"""Functions and classes of users by what their code does: their bytecode, and all that it reaches.

Names are looked up where a function would find them when it is called. Of a module that is reached
by name, as in `helpers.scale(x)`, those of its names count that the function says.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

# Their code is told by their versions, wherever they are installed.
LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy", "blackjax", "equinox", "onebasin")
INSTALLED = ("site-packages", "dist-packages")
WRAPPERS = (staticmethod, classmethod, property, functools.cached_property)
# What counts under a private name too; what can be changed there may be a cache.
PLAIN = (bool, int, float, complex, str, bytes, tuple, np.ndarray)
TellType = Callable[[Any], Any]


@functools.lru_cache(maxsize=4096)
def is_library(module: str | None) -> bool:
    """Whether a module, by its name, is installed, or a part of Python."""
    top = (module or "").partition(".")[0]
    if top in LIBRARIES:
        return True
    found = sys.modules.get(module or "") or sys.modules.get(top)
    file = getattr(found, "__file__", None)
    if file is None:
        return top in sys.builtin_module_names or top in sys.stdlib_module_names
    return is_installed(Path(file))


def is_installed(file: Path) -> bool:
    """Whether a file of Python is a library's, and not a user's."""
    if any(part in INSTALLED for part in file.parts):
        return True
    return any(file.is_relative_to(place) for place in _standard_places())


@functools.lru_cache(maxsize=1)
def _standard_places() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


def release_of(module: str | None) -> str:
    """The version of a library, as it says itself."""
    found = sys.modules.get((module or "").partition(".")[0])
    return str(getattr(found, "__version__", ""))


def name_of(value: Any) -> list[str]:
    """Where a class, a function or a module is found."""
    name = getattr(value, "__qualname__", None) or value.__name__
    return [getattr(value, "__module__", None) or "", name]


def function_told(value: types.FunctionType, tell: TellType, *, code: bool = True) -> Any:
    """A function by its code and all that it reaches, or by its name and what it was made with."""
    inside = [
        tell([_content(cell) for cell in value.__closure__ or ()]),
        tell(value.__defaults__),
        tell(value.__kwdefaults__),
    ]
    if not code:
        return ["library", *name_of(value), release_of(value.__module__), inside]
    own = {k: v for k, v in vars(value).items() if k != "__wrapped__"}
    return [
        "function",
        _code_told(value.__code__, tell),
        inside,
        tell(own),
        [[name, tell(found)] for name, found in reached(value)],
    ]


def class_told(value: type, tell: TellType) -> Any:
    """A class by its bases, its methods and its other members."""
    members = {
        name: member
        for name, member in vars(value).items()
        if callable(member)
        or isinstance(member, WRAPPERS)
        or not name.startswith("_")
        or (isinstance(member, PLAIN) and not name.startswith("__"))
    }
    members.pop("__class__", None)
    return ["class", value.__qualname__, [tell(base) for base in value.__bases__], tell(members)]


def reached(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function's code says by name, other than what is built in, in the names' order."""
    names = _names(function.__code__)
    package = function.__globals__.get("__package__") or ""
    for name in names:
        if name in function.__globals__:
            found = function.__globals__[name]
        else:
            # Perhaps a module that is imported when the function is called.
            found = sys.modules.get(name) or sys.modules.get(f"{package}.{name}")
        if isinstance(found, types.ModuleType):
            yield from _of_module(name, found, names, set())
        elif found is not None:
            yield name, found


def _of_module(
    name: str, module: types.ModuleType, names: list[str], met: set[str]
) -> Iterator[tuple[str, Any]]:
    """A library's name, or what is said of the names in a user's module, and in those in it."""
    if is_library(module.__name__):
        yield name, module
        return
    met.add(module.__name__)
    for inner in names:
        found = vars(module).get(inner)
        if not isinstance(found, types.ModuleType):
            if found is not None:
                yield f"{name}.{inner}", found
        elif found.__name__ not in met:
            yield from _of_module(f"{name}.{inner}", found, names, met)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _code_told(code: types.CodeType, tell: TellType) -> Any:
    constants = [
        _code_told(x, tell) if isinstance(x, types.CodeType) else tell(x) for x in code.co_consts
    ]
    return [hashlib.sha256(code.co_code).hexdigest(), constants, list(code.co_names)]


def _names(code: types.CodeType) -> list[str]:
    """The global names in a function's code, and in that of the functions inside it."""
    inner = [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return sorted({*code.co_names, *(name for part in inner for name in _names(part))})
