"""The files that a user's MODULE:FUNCTION is made of, so that a change in any of them is noticed.

Imports are read from the source and followed from file to file, nothing is run; libraries count by
what they are installed as, and not here.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from onebasin._core.files import sha256_of
from onebasin.store.fingerprint import fingerprint
from onebasin.store.functions import LIBRARIES, is_installed
from onebasin.studies.config import StudyConfig

P = ParamSpec("P")
R = TypeVar("R")


def source_hash(name: str) -> str:
    """A hash of the file that a MODULE:FUNCTION is in, and of all files of users that it imports.

    Args:
        name: As the command line has it; "" stands for what cannot be found.
    """
    first = _file_of(name.rpartition(":")[0])
    if first is None:
        return ""
    files = source_files(first)
    if len(files) == 1:
        return sha256_of(first, follow=True)
    return fingerprint([(key, sha256_of(path, follow=True)) for key, path in sorted(files.items())])


def sources(config: Any) -> dict[str, str]:
    """The hash of each file of a user's that a configuration names."""
    return {name: source_hash(name) for name in (config.model, config.data) if name}


def kept(maxsize: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keeps what a function of configurations returned, as long as users' files stay the same."""

    def keep(function: Callable[P, R]) -> Callable[P, R]:
        @functools.lru_cache(maxsize)
        def known(files: Any, *args: Any, **kwargs: Any) -> R:
            return function(*args, **kwargs)

        @functools.wraps(function)
        def found(*args: P.args, **kwargs: P.kwargs) -> R:
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, StudyConfig)]
            files = tuple(item for config in given for item in sources(config).items())
            return known(files, *args, **kwargs)  # type: ignore[arg-type]

        return found

    return keep


def source_files(first: Path) -> dict[str, Path]:
    """A file and all files of users that it imports, one through the other, by module."""
    first = first.resolve()
    found = {"": first}
    waiting = [first]
    while waiting:
        file = waiting.pop()
        for module, path in _imported(file, _places(first)):
            if path not in found.values():
                # Two packages may each have a module that they call by the same relative name.
                name = module if module not in found else os.path.relpath(path, first.parent)
                found[name] = path
                waiting.append(path)
    return found


def _file_of(module: str) -> Path | None:
    path = Path(module).expanduser()
    if path.suffix != ".py":
        path = Path(*module.split(".")).with_suffix(".py")
    if path.is_file():
        return path
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    origin = None if found is None else found.origin
    return Path(origin) if origin is not None and Path(origin).is_file() else None


def _places(first: Path) -> list[str]:
    """Where modules are looked for while a user's function is called."""
    return [str(Path.cwd()), str(first.parent), *sys.path]


def _imported(file: Path, places: list[str]) -> Iterator[tuple[str, Path]]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        for name, inside in _names(node, file):
            yield from _modules(name, [inside] if inside else places)


def _names(node: ast.AST, file: Path) -> Iterator[tuple[str, str | None]]:
    """Names of modules that a statement may import, and the folder they are in, if it says one.

    What comes after `import` in `from a import b` may be a module as well.
    """
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        folder = str(file.parents[node.level - 1]) if 0 < node.level <= len(file.parents) else None
        own = node.module or ""
        names = [own] if own else []
        names += [f"{own}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*"]
        if folder and not own:
            names.append("__init__")
        yield from ((name, folder) for name in names)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
            yield node.args[0].value.lstrip("."), None


def _modules(name: str, places: list[str]) -> Iterator[tuple[str, Path]]:
    """The file of a module and those of the packages that it is in, if they are a user's."""
    if name.partition(".")[0] in LIBRARIES:
        return
    path = places
    whole = ""
    for part in name.split("."):
        whole = f"{whole}.{part}".lstrip(".")
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            return
        if spec.origin is not None:
            file = Path(spec.origin).resolve()
            if file.suffix != ".py" or is_installed(file):
                return
            yield whole, file
        if spec.submodule_search_locations is None:
            return
        path = list(spec.submodule_search_locations)
