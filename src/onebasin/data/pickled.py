"""Pickles of byte arrays, numbers, strings and lists, read without the machine that runs pickles.

A pickle is a program. Of its instructions the few that plain data need are followed here; what
is built are strings, numbers, lists, dictionaries, and views of the pickle's own bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from onebasin.data.errors import DataError

# Five times what the largest file of CIFAR takes. Each may build something of a hundred bytes.
MOST_STEPS = 2**20
ARRAY, DTYPE, FUNCTION = "ndarray", "dtype", "_reconstruct"
# All that an array asks for, under the names of old and new NumPy.
NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): FUNCTION,
    ("numpy._core.multiarray", "_reconstruct"): FUNCTION,
    ("numpy", "ndarray"): ARRAY,
    ("numpy", "dtype"): DTYPE,
}


class _Name(str):
    """What a pickle asks for by name, once it is known to be one of those above."""


class _Bytes:
    """An array of bytes that is being put together."""

    array: np.ndarray | None = None


class _Dtype:
    """The type of bytes."""


def unpickle(content: bytes) -> Any:
    """What a pickle holds, if it holds nothing but byte arrays, numbers, strings, lists of them.

    Args:
        content: The bytes of the pickle. Arrays are views of them.

    Raises:
        DataError: If it asks for anything else; none of that is run.

    Example:
        >>> import pickle
        >>> from onebasin.data.pickled import unpickle
        >>> unpickle(pickle.dumps({"labels": [1, 2]}))
        {'labels': [1, 2]}
    """
    try:
        return _finished(_Reader(content).run())
    except DataError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:200]
        raise DataError(f"a pickle cannot be read ({said}).") from error


def _finished(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _finished(x) if isinstance(x, _Bytes) else x for name, x in found.items()}
    if isinstance(found, _Bytes):
        if found.array is None:
            raise ValueError("an array has no bytes")
        return found.array
    return found


def _refuse(what: str) -> DataError:
    return DataError(
        f"a pickle asks for {what:.100}, and only byte arrays, numbers, strings and lists of them "
        "are opened: this is no file of CIFAR, do not trust it."
    )


class _Reader:
    """One pickle: where we are, the stack, and what was put aside under numbers."""

    def __init__(self, content: bytes) -> None:
        self._content, self._place = content, 0
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._aside: dict[int, Any] = {}

    def run(self) -> Any:
        content, steps = self._content, _STEPS
        for _ in range(MOST_STEPS):
            code = content[self._place]
            if code == _STOP:
                (found,) = self._stack
                return found
            self._place += 1
            step = steps.get(code)
            if step is None:
                raise _refuse(f"the instruction {bytes([code])!r}")
            step(self)
        raise _refuse(f"more than {MOST_STEPS:,} instructions")

    def take(self, size: int) -> bytes:
        """The next bytes."""
        start, self._place = self._place, self._place + size
        if size < 0 or self._place > len(self._content):
            raise EOFError("it was cut off")
        return self._content[start : self._place]

    def view(self, size: int) -> memoryview:
        """The next bytes, where they are: those of an array are many."""
        start, self._place = self._place, self._place + size
        if size < 0 or self._place > len(self._content):
            raise EOFError("it was cut off")
        return memoryview(self._content)[start : self._place]

    def line(self) -> str:
        end = self._content.index(b"\n", self._place)
        start, self._place = self._place, end + 1
        return self._content[start:end].decode("ascii")

    def number(self, kind: str) -> Any:
        (found,) = struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))
        return found

    def push(self, item: Any) -> None:
        self._stack.append(item)

    def pop(self) -> Any:
        return self._stack.pop()

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def since_mark(self) -> list[Any]:
        found, self._stack = self._stack, self._below.pop()
        return found

    def keep(self, number: int) -> None:
        self._aside[number] = self._stack[-1]

    def keep_next(self) -> None:
        self.keep(len(self._aside))

    def fetch(self, number: int) -> None:
        self.push(self._aside[number])

    def extend(self, items: list[Any]) -> None:
        found = self._stack[-1]
        if type(found) is not list:
            raise TypeError("something else than a list is extended")
        found.extend(items)

    def store(self, items: list[Any]) -> None:
        found = self._stack[-1]
        if type(found) is not dict or any(type(name) is not str for name in items[::2]):
            raise TypeError("something else than a dictionary by strings is filled")
        found.update(zip(items[::2], items[1::2], strict=True))

    def join(self, items: list[Any]) -> None:
        self.push(tuple(items))

    def some(self, count: int) -> list[Any]:
        return [self.pop() for _ in range(count)][::-1]

    def name(self, module: str, name: str) -> None:
        if (module, name) not in NAMES:
            raise _refuse(f"{module}.{name}")
        self.push(_Name(NAMES[module, name]))

    def call(self) -> None:
        """An array without content, or the type of bytes: nothing else can be made."""
        function, arguments = self.some(2)
        if type(function) is not _Name or type(arguments) is not tuple:
            raise _refuse("a call of something that it made")
        if function == FUNCTION and type(arguments[0]) is _Name and arguments[0] == ARRAY:
            self.push(_Bytes())
        elif function == DTYPE and arguments[0] == "u1":
            self.push(_Dtype())
        else:
            # Not `repr` of whatever it is: lists in lists can be longer than any memory.
            what = arguments[0] if type(arguments[0]) is str else type(arguments[0]).__name__
            raise _refuse(f"an array of type {what!r}")

    def build(self) -> None:
        """The content of an array; what a type says further is the same for all bytes."""
        made, state = self.some(2)
        if type(made) is _Bytes and made.array is None:
            made.array = _array(state)
        elif type(made) is not _Dtype:
            raise _refuse("the state of something that it made")
        self.push(made)


def _array(state: Any) -> np.ndarray:
    _, shape, dtype, fortran, content = state
    if type(dtype) is not _Dtype or type(content) not in (memoryview, str, bytes):
        raise _refuse("an array of something else than bytes")
    if len(shape) > 8 or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError("an array has no shape")
    if type(content) is str:
        content = content.encode("latin1")
    if math.prod(shape) != len(content):
        raise ValueError(f"{len(content):,} bytes stand for an array of another size")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


_STOP = ord(".")
# Strings of Python 2 are Latin-1; those of more than 255 bytes are contents of arrays.
_STEPS: dict[int, Callable[[_Reader], None]] = {
    ord(code): step
    for code, step in {
        "\x80": lambda r: r.take(1),
        "\x95": lambda r: r.take(8),
        "(": _Reader.mark,
        "0": _Reader.pop,
        "N": lambda r: r.push(None),
        "\x88": lambda r: r.push(True),
        "\x89": lambda r: r.push(False),
        "K": lambda r: r.push(r.take(1)[0]),
        "M": lambda r: r.push(r.number("H")),
        "J": lambda r: r.push(r.number("i")),
        "\x8a": lambda r: r.push(int.from_bytes(r.take(r.take(1)[0]), "little", signed=True)),
        "U": lambda r: r.push(r.take(r.take(1)[0]).decode("latin1")),
        "T": lambda r: r.push(r.view(r.number("i"))),
        "C": lambda r: r.push(r.view(r.take(1)[0])),
        "B": lambda r: r.push(r.view(r.number("I"))),
        "\x8c": lambda r: r.push(r.take(r.take(1)[0]).decode("utf-8")),
        "X": lambda r: r.push(r.take(r.number("I")).decode("utf-8")),
        "]": lambda r: r.push([]),
        "}": lambda r: r.push({}),
        ")": lambda r: r.push(()),
        "a": lambda r: r.extend(r.some(1)),
        "e": lambda r: r.extend(r.since_mark()),
        "s": lambda r: r.store(r.some(2)),
        "u": lambda r: r.store(r.since_mark()),
        "t": lambda r: r.join(r.since_mark()),
        "\x85": lambda r: r.join(r.some(1)),
        "\x86": lambda r: r.join(r.some(2)),
        "\x87": lambda r: r.join(r.some(3)),
        "q": lambda r: r.keep(r.take(1)[0]),
        "r": lambda r: r.keep(r.number("I")),
        "\x94": _Reader.keep_next,
        "h": lambda r: r.fetch(r.take(1)[0]),
        "j": lambda r: r.fetch(r.number("I")),
        "c": lambda r: r.name(r.line(), r.line()),
        "\x93": lambda r: r.name(*r.some(2)),
        "R": _Reader.call,
        "b": _Reader.build,
    }.items()
}
