"""Ways to change a file: as a disk does, as an editor does, as somebody does on purpose."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

VALUES = (
    *("0", "-1", "1", "2", "1e308", "-1e400", "NaN", "Infinity", "9223372036854775808"),
    *("18446744073709551617", "0.5", "null", "true", "false", '""', '"x"', "[]", "{}", "[[]]"),
    *("[null]", '{"a":1}', '"../victim"', '"/etc/hostname"', r'"a\u0000b"', r'"\ud800"'),
    *(r'"\u202e"', "-0", "1e-320", "4294967297"),
)
YAML = (
    "2001-13-45",
    "!!int foo",
    "!!binary x",
    "!!python/name:os.system",
    "&a [*a]",
    "*nobody",
    ".nan",
    ".inf",
    "0o777",
    "1_000",
    "? [a]",
    "'",
    "|",
    "<<: 3",
    "2024-01-01",
    "!!set {a}",
    "!!omap [a]",
    "@x",
    "%x",
)


def flip(content: bytes, chance: random.Random) -> bytes:
    """One to eight bits."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    """The end is missing."""
    return content[: chance.randrange(len(content))]


def _range(content: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(content))
    return start, min(len(content), start + 2 ** chance.randint(0, 12))


def zero(content: bytes, chance: random.Random) -> bytes:
    """Some bytes are zero."""
    start, end = _range(content, chance)
    return content[:start] + bytes(end - start) + content[end:]


def noise(content: bytes, chance: random.Random) -> bytes:
    """Some bytes are random."""
    start, end = _range(content, chance)
    return content[:start] + chance.randbytes(end - start) + content[end:]


def drop(content: bytes, chance: random.Random) -> bytes:
    """Some bytes are missing."""
    start, end = _range(content, chance)
    return content[:start] + content[end:]


def double(content: bytes, chance: random.Random) -> bytes:
    """Some bytes are there twice."""
    start, end = _range(content, chance)
    return content[:end] + content[start:]


def extend(content: bytes, chance: random.Random) -> bytes:
    """More bytes at the end."""
    return content + (
        chance.randbytes(chance.randint(1, 100)) if chance.random() < 0.5 else content
    )


def empty(content: bytes, chance: random.Random) -> bytes:
    """Nothing, or zeros as an unfinished write leaves them."""
    return b"" if chance.random() < 0.5 else bytes(len(content))


def header(content: bytes, chance: random.Random) -> bytes:
    """A number of the first bytes, where sizes stand, is another."""
    changed = bytearray(content)
    place = chance.randrange(min(64, len(changed)))
    size = chance.choice((1, 2, 4, 8))
    value = chance.choice((0, 1, 2**7, 2**15 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1))
    changed[place : place + size] = (value % 2 ** (8 * size)).to_bytes(size, "little")
    return bytes(changed[: len(content)])


def digit(content: bytes, chance: random.Random) -> bytes:
    """One digit of a text is another."""
    places = [match.start() for match in re.finditer(rb"\d", content)]
    if not places:
        return flip(content, chance)
    place = chance.choice(places)
    new = str((int(content[place : place + 1]) + chance.randint(1, 9)) % 10).encode()
    return content[:place] + new + content[place + 1 :]


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null')


def token(content: bytes, chance: random.Random) -> bytes:
    """One value of a JSON text, or one of its names, is another."""
    found = list(_TOKEN.finditer(content))
    if not found:
        return flip(content, chance)
    old = chance.choice(found)
    others = [chance.choice(VALUES).encode(), chance.choice(found)[0]]
    return content[: old.start()] + chance.choice(others) + content[old.end() :]


def nest(content: bytes, chance: random.Random) -> bytes:
    """One value is a hundred thousand brackets."""
    found = list(_TOKEN.finditer(content))
    if not found:
        return b"[" * 100_000
    old = chance.choice(found)
    deep = chance.choice((b"[" * 100_000, b"[" * 50_000 + b"]" * 50_000, b'{"a":' * 50_000))
    return content[: old.start()] + deep + content[old.end() :]


def prune(content: bytes, chance: random.Random) -> bytes:
    """One entry of a JSON object or list is missing, or is there twice."""
    try:
        whole = json.loads(content)
    except ValueError:
        return drop(content, chance)
    places: list[tuple[dict | list, object]] = []
    level = [whole]
    while level:
        item = level.pop()
        if isinstance(item, dict | list):
            keys = list(item) if isinstance(item, dict) else list(range(len(item)))
            places += [(item, key) for key in keys]
            level += [item[key] for key in keys]
    if not places:
        return b"{}"
    inside, key = chance.choice(places)
    if isinstance(inside, list) and chance.random() < 0.5:
        inside.append(inside[key])  # type: ignore[call-overload]
    else:
        del inside[key]  # type: ignore[arg-type]
    return json.dumps(whole).encode()


def scalar(content: bytes, chance: random.Random) -> bytes:
    """One value of a YAML text is another, or one that is none."""
    lines = content.decode().splitlines()
    place = chance.choice([n for n, line in enumerate(lines) if ":" in line])
    name = lines[place].partition(":")[0]
    lines[place] = f"{name}: {chance.choice((*YAML, *VALUES))}"
    return "\n".join(lines).encode()


def aliases(content: bytes, chance: random.Random) -> bytes:
    """A YAML text whose aliases unfold to more than any memory."""
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    text += "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 9))
    name = chance.choice(("seed", "dataset", "hidden", "fit"))
    return text.encode() + f"{name}: *a8\n".encode()


Change = Callable[[bytes, random.Random], bytes]
BYTES: tuple[Change, ...] = (flip, flip, cut, zero, noise, drop, double, extend, empty, header)
JSON: tuple[Change, ...] = (flip, cut, drop, empty, digit, digit, token, token, token, prune, nest)
TEXT: tuple[Change, ...] = (flip, cut, noise, drop, double, empty, digit, token)
YAMLS: tuple[Change, ...] = (flip, cut, drop, double, digit, scalar, scalar, scalar, nest, aliases)


def changed(content: bytes, name: str, chance: random.Random) -> tuple[bytes, str]:
    """A file as something may have left it, and what that was.

    Args:
        content: The file as it was; it is not empty.
        name: Its name, which tells whether it is text.
        chance: Where and what.
    """
    kinds = {"json": JSON, "yaml": YAMLS, "txt": TEXT}.get(name.rpartition(".")[2], BYTES)
    change = chance.choice(kinds)
    return change(content, chance), change.__name__
