"""How large the rooms are, and how far one has to walk through them.

    python benchmarks/house.py            # the tree that is installed
    python benchmarks/house.py --src DIR  # another one, such as an older checkout's src

Reach is read off the sources: from a function to every function, and to every method of every
class, that its body names. Traces and readings of `discover` are counted while it runs on a small
network, with the tree that is installed.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import json
import pathlib
import sys
import tokenize
from collections.abc import Iterator
from typing import Any

MOST_PARAMETERS = 8
GROUND = "_core"
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class House:
    """The modules of a package, parsed."""

    def __init__(self, src: pathlib.Path) -> None:
        self.root = src / "onebasin"
        self.trees = {
            self._module(path): ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted(self.root.rglob("*.py"))
        }
        self.sources = {self._module(path): path for path in sorted(self.root.rglob("*.py"))}

    def _module(self, path: pathlib.Path) -> str:
        parts = path.relative_to(self.root.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def room(self, module: str) -> str:
        parts = module.split(".")
        return parts[1] if len(parts) > 1 else "(top)"

    def definitions(self) -> Iterator[tuple[str, str, Definition]]:
        """Module, class or nothing, and each function at the top of a module or class."""
        for module, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, Definition):
                    yield module, "", node
                elif isinstance(node, ast.ClassDef):
                    inside = [n for n in node.body if isinstance(n, Definition)]
                    yield from ((module, node.name, own) for own in inside)


def code_lines(path: pathlib.Path) -> int:
    """Lines that hold code: no blanks, comments or docstrings."""
    found: set[int] = set()
    text = path.read_text(encoding="utf-8")
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*skipped, tokenize.ENDMARKER):
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - strings)


def rooms(house: House) -> dict[str, tuple[int, int, int]]:
    """Files, lines and lines of code of every room."""
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for module, path in house.sources.items():
        count = counts[house.room(module)]
        count[0] += 1
        count[1] += len(path.read_text(encoding="utf-8").splitlines())
        count[2] += code_lines(path)
    return {room: (files, lines, code) for room, (files, lines, code) in sorted(counts.items())}


def long_signatures(house: House) -> list[str]:
    """Functions with more parameters than a person keeps in mind."""

    def count(node: Definition) -> int:
        own = node.args
        names = [a.arg for a in (*own.posonlyargs, *own.args, *own.kwonlyargs)]
        return len([name for name in names if name not in ("self", "cls")])

    return [
        f"{module}.{owner + '.' if owner else ''}{node.name} ({count(node)})"
        for module, owner, node in house.definitions()
        if count(node) > MOST_PARAMETERS
    ]


def imports(tree: ast.Module) -> Iterator[str]:
    """The modules of ours that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onebasin"):
            yield from [node.module or ""] * len(node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("onebasin"))


def past_doors(house: House) -> list[str]:
    """Imports of a module inside another room, instead of what the room shows."""
    return [
        f"{module} <- {name}"
        for module, tree in house.trees.items()
        for name in imports(tree)
        if name.count(".") > 1
        and house.room(name) not in (house.room(module), GROUND)
        and not house.room(name).startswith("(")
    ]


def repeated(names: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that stand in more than one place."""
    places: dict[str, set[str]] = collections.defaultdict(set)
    for name, place in names:
        places[name].add(place)
    return {name: sorted(found) for name, found in sorted(places.items()) if len(found) > 1}


def class_names(house: House) -> Iterator[tuple[str, str]]:
    for module, tree in house.trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield node.name.lstrip("_"), module


def module_names(house: House) -> Iterator[tuple[str, str]]:
    for module, path in house.sources.items():
        if path.name != "__init__.py" and module.count(".") > 1:
            yield path.stem, house.room(module)


class Reach:
    """What a function can come to, by the names in its body."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.bodies: dict[tuple[str, str], list[ast.AST]] = {}
        for module, tree in house.trees.items():
            for node in tree.body:
                if isinstance(node, Definition | ast.ClassDef):
                    self.bodies[module, node.name] = [node]
        self.scopes = {module: self._scope(module) for module in house.trees}

    def _scope(self, module: str) -> dict[str, tuple[str, str]]:
        """What a name means in a module: where it is defined."""
        found = {name: (module, name) for m, name in self.bodies if m == module}
        for node in ast.walk(self.house.trees[module]):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onebasin"):
                for alias in node.names:
                    found[alias.asname or alias.name] = (node.module or "", alias.name)
        return found

    def _resolved(self, place: tuple[str, str]) -> tuple[str, str] | None:
        """Through the doors of rooms to where something is defined."""
        seen = set()
        while place not in self.bodies and place not in seen:
            seen.add(place)
            module, name = place
            place = self.scopes.get(module, {}).get(name, place)
        return place if place in self.bodies else None

    def _named(self, module: str, node: ast.AST) -> Iterator[tuple[str, str]]:
        scope = self.scopes[module]
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in scope:
                yield scope[part.id]
            elif (
                isinstance(part, ast.Attribute)
                and isinstance(part.value, ast.Name)
                and part.value.id in scope
            ):
                owner, name = scope[part.value.id]
                yield f"{owner}.{name}", part.attr

    def of(self, module: str, name: str) -> tuple[int, int, int]:
        """Functions and classes, files, and the longest of the shortest ways from a function."""
        start = self._resolved((module, name))
        if start is None:
            raise SystemExit(f"there is no {name} in {module}")
        depth = {start: 0}
        queue = collections.deque([start])
        while queue:
            place = queue.popleft()
            for node in self.bodies[place]:
                for named in self._named(place[0], node):
                    found = self._resolved(named)
                    if found is not None and found not in depth:
                        depth[found] = depth[place] + 1
                        queue.append(found)
        return len(depth), len({module for module, _ in depth}), max(depth.values())


def readings() -> dict[str, int]:
    """How often `discover` traces a model, and goes through a program."""
    import jax
    import jax.numpy as jnp

    import onebasin as ob

    counts = collections.Counter[str]()

    def apply_fn(params: Any, inputs: Any) -> Any:
        counts["traces"] += 1
        return jax.nn.relu(inputs @ params["w"]) @ params["v"]

    def watch(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == "run" and "interpret" in code.co_filename:
            counts["interpretations"] += 1

    params = {"w": jnp.ones((3, 4)), "v": jnp.ones((4, 2))}
    sys.setprofile(watch)
    try:
        ob.discover(apply_fn, params, jnp.ones((2, 3)))
    finally:
        sys.setprofile(None)
    return dict(counts)


def main() -> None:
    """Prints what was counted; with `--json FILE` writes it too, names and all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--src", type=pathlib.Path, default=pathlib.Path("src"))
    parser.add_argument("--json", type=pathlib.Path, help="a file for the names behind the counts")
    parser.add_argument("--readings", action="store_true", help="run discover and count")
    options = parser.parse_args()
    house = House(options.src)
    by_room, reach = rooms(house), Reach(house)
    print(f"{'room':14} files   lines    code")
    for room, (files, lines, code) in by_room.items():
        print(f"{room:14} {files:5} {lines:7,} {code:7,}")
    total = [sum(column) for column in zip(*by_room.values(), strict=True)]
    print(f"{'all':14} {total[0]:5} {total[1]:7,} {total[2]:7,}")
    lists: dict[str, Any] = {
        f"functions with more than {MOST_PARAMETERS} parameters": long_signatures(house),
        "imports past a door": past_doors(house),
        "class names used twice": repeated(class_names(house)),
        "module names in several rooms": repeated(module_names(house)),
    }
    for name, found in lists.items():
        print(f"{name}: {len(found)}")
    for name, module in (("align", "onebasin.align"), ("discover", "onebasin.symmetry")):
        functions, files, depth = reach.of(module, name)
        print(f"{name} reaches {functions} functions in {files} files, {depth} steps away")
    if options.readings:
        print("discover, on a small network:", readings())
    if options.json:
        options.json.write_text(json.dumps(lists, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
