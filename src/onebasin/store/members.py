"""One network of a checkpoint set: its file, and what is known of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onebasin._core.files import FileError, parse_json, replacing
from onebasin.store.errors import StoreError
from onebasin.store.manifest import plain
from onebasin.store.reading import TensorFile, why
from onebasin.store.tensors import SEAL, write_sealed

FORMAT = "onebasin-member"
VERSION = "1"
ABOUT = "about"
HALF = np.dtype(np.float16)

Leaves = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Member:
    """What is known of one network of a set.

    Args:
        file: The name of its file.
        bytes: The size of the file.
        sha256: The checksum of what it holds.
        seed: The seed that it was trained from.
        epochs: How long it was trained.
        accuracy: Its share of right answers, on the data that the config names.
        commit: The state of the sources that trained it.
        config: What it was asked to be.
        created: When it was written.
        notes: Anything else.
        leaves: The shape of each of its arrays.
    """

    file: str
    bytes: int
    sha256: str
    seed: int
    epochs: float | None
    accuracy: float | None
    commit: str | None
    config: Any
    created: str
    notes: dict[str, Any]
    leaves: dict[str, tuple[int, ...]]


def shortened(arrays: Mapping[str, np.ndarray], dtype: str, where: str) -> dict[str, np.ndarray]:
    """Arrays as a set keeps them: those of two axes and more in the type that was asked for.

    Biases, gains and running statistics are few and stay whole.

    Raises:
        StoreError: If a weight is too large for the type.
    """
    found = {}
    for name, array in arrays.items():
        short = np.dtype(dtype) == HALF and array.dtype == np.float32 and array.ndim > 1
        with np.errstate(over="ignore"):
            found[name] = array.astype(HALF) if short else array
        if short and not np.array_equal(np.isfinite(found[name]), np.isfinite(array)):
            raise StoreError(
                f"{where} cannot hold the leaf {name!r} in float16: its largest entry is "
                f"{np.abs(array[np.isfinite(array)]).max():.3g}, expected at most 65,504. Make the "
                "set with dtype='float32'."
            )
    return found


def write_member(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Writes one network, whole or not at all.

    Raises:
        StoreError: If the file cannot be written, or what is said of it has no place in JSON.
    """
    text = json.dumps(plain(dict(about), "what is noted"))
    metadata = {"format": FORMAT, "version": VERSION, ABOUT: text}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            write_sealed(file, arrays, metadata)
    except OSError as error:
        raise StoreError(
            f"the file {path} cannot be written ({error.strerror or error}): make room, or name "
            "another folder. The networks that were there before are whole."
        ) from error


def read_member(path: Path) -> Member:
    """What a file says of itself; its arrays are not read.

    Raises:
        StoreError: If it cannot be read, or is no member of a set.
    """
    try:
        with TensorFile(path) as file:
            header, size = file.header, file.size
    except (OSError, FileError) as error:
        raise StoreError(f"the file {path} {why(error)}") from error
    said = header.metadata
    if said.get("format") != FORMAT or SEAL not in said:
        raise StoreError(f"the file {path} is no network of a checkpoint set")
    if said.get("version") != VERSION:
        raise StoreError(
            f"the file {path} has version {said.get('version')!r:.20} of its format, and this "
            f"onebasin reads {VERSION}"
        )
    try:
        about = parse_json(said.get(ABOUT, ""))
        return _member(path.name, size, said[SEAL], about, dict(header.shapes))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"the file {path} does not say what network it holds ({error})") from error


def _member(
    name: str, size: int, seal: str, about: Any, leaves: dict[str, tuple[int, ...]]
) -> Member:
    if type(about["seed"]) is not int or not isinstance(about["notes"], dict):
        raise ValueError("its seed or its notes are none")
    for key in ("epochs", "accuracy"):
        if about[key] is not None and type(about[key]) not in (int, float):
            raise ValueError(f"{key} is no number")
    known = ("seed", "epochs", "accuracy", "commit", "config", "created", "notes")
    said = {key: about[key] for key in known}
    return Member(file=name, bytes=size, sha256=seal, leaves=leaves, **said)
