"""What tells functions, classes and containers apart, in every process alike."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onebasin.store.fingerprint import fingerprint
from onebasin.store.programs import program


def closed_over(thing):
    return lambda x: (thing, x)


class Scaled:
    """A class of a user, with slots."""

    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor


PAIRS = {
    "closures over sets": (closed_over({1, 2}), closed_over({1, 3})),
    "closures over frozen sets": (closed_over(frozenset("ab")), closed_over(frozenset("ac"))),
    "sets of sets": ({frozenset({1, 2})}, {frozenset({1, 3})}),
    "constants": (lambda x: x in {1, 2}, lambda x: x in {1, 3}),
    "constants inside": (lambda: lambda x: x in {"a"}, lambda: lambda x: x in {"b"}),
    "deques": (importlib.import_module("collections").deque([1]), []),
    "slots": (Scaled(1), Scaled(2)),
    "what is deep": ([[[[[[[[[[[[[1]]]]]]]]]]]]], [[[[[[[[[[[[[2]]]]]]]]]]]]]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_is_told_apart(name: str) -> None:
    one, other = PAIRS[name]
    assert fingerprint(one) == fingerprint(one)
    assert fingerprint(one) != fingerprint(other)


FILES = {
    "package/__init__.py": "",
    "package/numbers.py": "SCALE = 2.0\nTABLE = {'a': [1, 2]}\nNAMES = {'x', 'y'}\n",
    "package/layers.py": (
        "from . import numbers\n"
        "from .circle import forth\n"
        "class Layer:\n"
        "    bias = 1.0\n"
        "    def __call__(self, x):\n"
        "        return numbers.SCALE * x + self.bias\n"
        "def table(x):\n"
        "    return numbers.TABLE['a'][0] * x + forth(x, 1)\n"
    ),
    "package/circle.py": (
        "from . import layers\n"
        "def forth(x, n):\n"
        "    return back(x, n - 1) if n else x\n"
        "def back(x, n):\n"
        "    return forth(2 * x, n)\n"
    ),
    "own.py": (
        "from package.layers import Layer, table\n"
        "def late(x):\n"
        "    from package.numbers import NAMES\n"
        "    return len(NAMES) * x\n"
        "def factory():\n"
        "    return lambda x: late(table(Layer()(x)))\n"
    ),
}
CHANGES = {
    "package/numbers.py": [("2.0", "3.0"), ("[1, 2]", "[3, 2]"), ("'y'", "'z'")],
    "package/layers.py": [("bias = 1.0", "bias = 2.0"), ("SCALE * x", "SCALE + x")],
    "package/circle.py": [("2 * x", "3 * x")],
}
PLACES = [(file, *change) for file, changes in CHANGES.items() for change in changes]


def written(folder: Path, **changes: str) -> None:
    for name, text in {**FILES, **changes}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def print_of(folder: Path, seed: str = "0") -> str:
    script = (
        "import own\n"
        "from onebasin.store.fingerprint import fingerprint\n"
        "own.late(1)\n"
        "print(fingerprint(own.factory))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    return done.stdout


def test_functions_reach_into_other_modules(tmp_path: Path) -> None:
    """Every change in any of them is seen, whatever the order of sets in the process."""
    written(tmp_path / "0")
    found = [print_of(tmp_path / "0", seed) for seed in ("1", "2")]
    assert found[0] == found[1]
    for number, (file, old, new) in enumerate(PLACES, 1):
        assert old in FILES[file]
        written(tmp_path / str(number), **{file: FILES[file].replace(old, new)})
        found.append(print_of(tmp_path / str(number)))
    assert len(set(found)) == len(PLACES) + 1


def test_what_is_not_reached_does_not_count(tmp_path: Path) -> None:
    written(tmp_path / "a")
    more = FILES["package/numbers.py"] + "OTHER = 5\n"
    written(tmp_path / "b", **{"package/numbers.py": more})
    assert print_of(tmp_path / "a") == print_of(tmp_path / "b")


def test_long_chains_of_functions_are_followed_to_their_end(tmp_path: Path) -> None:
    found = []
    for end in (1, 2):
        links = [f"def f{n}(x):\n    return f{n + 1}(x)\n" for n in range(500)]
        folder = tmp_path / str(end)
        text = "".join(links) + f"def f500(x):\n    return {end}\nfactory = f0\n"
        written(folder, **{"own.py": text})
        script = "import own; from onebasin.store.fingerprint import fingerprint as f"
        done = subprocess.run(
            [sys.executable, "-c", f"{script}; print(f(own.factory))"],
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
        )
        found.append(done.stdout)
    assert found[0] != found[1]


def test_circles_of_objects_come_to_an_end() -> None:
    class Node:
        def __init__(self):
            self.near = set()
            self.all = [self]

    nodes = [Node() for _ in range(12)]
    for node in nodes:
        node.near |= set(nodes)
    assert fingerprint(nodes[0]) == fingerprint(nodes[0])


def test_programs_have_their_constants() -> None:
    def scaled(table):
        return lambda x: x @ table

    x = jnp.zeros((2, 3))
    tables = [np.eye(3), np.eye(3), 2 * np.eye(3)]
    first, same, other = (program(scaled(table), x) for table in tables)
    assert first == same
    assert first != other
    assert program(scaled(np.eye(3)), jnp.zeros((4, 3))) != first
    assert program(lambda x: (x, x), x) != program(lambda x: [x, x], x)


def test_keys_of_other_generators_and_other_generators_of_numpy_are_others():
    data = jax.random.key_data(jax.random.key(0, impl="rbg"))
    keys = [jax.random.wrap_key_data(data, impl=impl) for impl in ("rbg", "unsafe_rbg")]
    assert fingerprint(keys[0]) != fingerprint(keys[1])
    assert fingerprint(keys[0]) == fingerprint(jax.random.key(0, impl="rbg"))
    generators = [np.random.default_rng(seed) for seed in (0, 1, 0)]
    first, second, again = map(fingerprint, generators)
    assert first == again != second


def with_private(scale):
    class Scaled:
        _scale = scale

        def __call__(self, x):
            return self._scale * x

    return Scaled


def test_what_a_class_keeps_under_a_private_name_counts():
    assert fingerprint(with_private(2.0)) == fingerprint(with_private(2.0))
    assert fingerprint(with_private(2.0)) != fingerprint(with_private(3.0))
    assert fingerprint(with_private(2.0)()) != fingerprint(with_private(3.0)())
