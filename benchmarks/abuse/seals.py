"""Checksums put right after an edit, as somebody does who means harm.

A way to seal counts only if it gives the seal that the file has: where onebasin seals its files in
another way, there is nothing to put right here, and edits are only those that a checksum notices.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from abuse import changes

SEALS = ("sha256", "checksum", "seal")


def _sorted(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _plain(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


WAYS: tuple[Callable[[Any], str], ...] = (_sorted, _plain)


def reseal_json(old: bytes, new: bytes) -> bytes | None:
    """An edited JSON file with its checksum put right; None if it has none that is known."""
    try:
        before, after = json.loads(old), json.loads(new)
    except (ValueError, RecursionError):
        return None
    if not isinstance(before, dict) or not isinstance(after, dict):
        return None
    for name in SEALS:
        if name not in before:
            continue
        rest = {k: v for k, v in before.items() if k != name}
        for way in WAYS:
            if way(rest) == before[name]:
                try:
                    edited = {k: v for k, v in after.items() if k != name}
                    return json.dumps({name: way(edited), **edited}).encode()
                except RecursionError:
                    return None
    return None


def edit_json(content: bytes, chance: random.Random) -> bytes | None:
    """An edit of a sealed JSON file that its checksum does not tell."""
    change = chance.choice((changes.token, changes.prune, changes.digit))
    return reseal_json(content, change(content, chance))


def edit_tensors(path: Path, chance: random.Random) -> bytes | None:
    """The same of a sealed safetensors file: other metadata, types, shapes or names."""
    content = path.read_bytes()
    head, data = _parts(content)
    said = dict(head.pop("__metadata__", {}))
    seal = said.pop("sha256", None)
    if seal is None or _of_tensors(said, head, data) != seal:
        return None
    try:
        edited = json.loads(changes.token(json.dumps({"": said, **head}).encode(), chance))
        said = edited.pop("")
        # What cannot be sealed keeps its old seal: somebody who does not know better.
        with contextlib.suppress(Exception):
            seal = _of_tensors(said, edited, data)
        return _file({"__metadata__": {**said, "sha256": seal}, **edited}, data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U32": "<u4"}


def _parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes of the tensors."""
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def _of_tensors(said: dict[str, str], tensors: dict[str, Any], data: bytes) -> str:
    """The seal of a safetensors file: what is said, then names, types, shapes and bytes."""
    digest = hashlib.sha256(repr(sorted(said.items())).encode())
    for name in sorted(tensors):
        start, end = tensors[name]["data_offsets"]
        shape = tuple(tensors[name]["shape"])
        array = np.frombuffer(data[start:end], TYPES[tensors[name]["dtype"]]).reshape(shape)
        digest.update(f"{name} {array.dtype.name} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _file(head: Any, data: bytes) -> bytes:
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data
