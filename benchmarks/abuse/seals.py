"""Checksums put right after an edit, as somebody does who means harm.

A way to seal counts only if it gives the seal that the file has: where onebasin seals its files in
another way, there is nothing to put right here, and edits are only those that a checksum notices.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    """The same of a sealed safetensors file: other metadata, types, shapes or values."""
    from onebasin.store.tensors import SEAL, checksum_of, map_tensors, read_header

    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    head = json.loads(content[8 : 8 + size])
    said = head.get("__metadata__", {})
    if said.get(SEAL) is None:
        return None
    what = changes.token(json.dumps(head).encode(), chance)
    try:
        edited = json.loads(what)
        metadata = edited["__metadata__"]
        metadata.pop(SEAL, None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    changed = path.with_name("changed.safetensors")
    try:
        # What cannot be read cannot be sealed: but for the metadata it is then as it was.
        changed.write_bytes(_file(edited, content[8 + size :]))
        metadata[SEAL] = checksum_of(dict(map_tensors(changed)), read_header(changed).metadata)
    except Exception:
        return None
    finally:
        changed.unlink(missing_ok=True)
    return _file(edited, content[8 + size :])


def _file(head: Any, data: bytes) -> bytes:
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data
