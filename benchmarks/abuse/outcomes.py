"""How a call ended: with what was asked for, with an error of ours, or badly."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

SAME = "same"
OURS = "ours"
TOLD = "told"
OTHER = "other, no checksum"
RESEALED = "other, resealed"
DAMAGED = "DAMAGED"
RAW = "RAW ERROR"
SLOW = "SLOW"
BIG = "BIG"
CRASH = "CRASH"
GOOD = (SAME, OURS, TOLD, OTHER, RESEALED)
BAD = (DAMAGED, RAW, SLOW, BIG, CRASH)
SECONDS = 20.0
BYTES = 2 * 2**30


def is_ours(error: BaseException) -> bool:
    """Whether an error is one that onebasin has for people: a ValueError with a sentence.

    Its class is one of onebasin, or it is plain and was raised there by hand: what a conversion in
    one of its lines raises does not count.
    """
    if not isinstance(error, ValueError) or len(str(error)) <= 10:
        return False
    if type(error) is not ValueError:
        return type(error).__module__.partition(".")[0] == "onebasin"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "/onebasin/" in last.filename and (last.line or "").startswith("raise ")


def where(error: BaseException) -> str:
    """An error in one line: what it is, and the last place in onebasin that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/onebasin/" in f.filename]
    place = f"{ours[-1].filename.rpartition('/onebasin/')[2]}:{ours[-1].name}" if ours else "?"
    return f"{type(error).__name__} in {place}: {' '.join(str(error).split())[:80]}"


def digest(found: Any) -> str:
    """The hash of what a reader gave: trees of arrays, texts, numbers."""
    hashed = hashlib.sha256()
    for part in _parts(found):
        hashed.update(part)
    return hashed.hexdigest()


def _parts(found: Any) -> Any:
    if isinstance(found, Mapping):
        for key in sorted(found, key=str):
            yield f"{key}:".encode()
            yield from _parts(found[key])
    elif isinstance(found, list | tuple):
        for item in found:
            yield b","
            yield from _parts(item)
    elif isinstance(found, np.ndarray | np.generic | jax.Array):
        array = np.asarray(found)
        yield f"{array.dtype.name}{array.shape}".encode() + array.tobytes()
    elif found is None or isinstance(found, str | bytes | bool | int | float):
        yield repr(found).encode()
    else:
        for leaf in jax.tree.leaves(found):
            if leaf is found:
                raise TypeError(f"no digest of {type(found).__name__}")
            yield from _parts(leaf)
