"""The manifest of a run: what it was asked to do, and every file that belongs to it."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import platform
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from onebasin.store.errors import StoreError
from onebasin.store.tensors import replacing

FORMAT = "onebasin-run"
VERSION = 1
NAME = "manifest.json"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One file of a run.

    Args:
        file: Its path in the folder of the run.
        bytes: Its size.
        sha256: Its hash; empty where the manifest was lost and the file speaks for itself.
        index: Which shard of its stream it is; of a state, the number of the transaction.
        draws: How many draws it holds; 0 for a state.
    """

    file: str
    bytes: int
    sha256: str
    index: int
    draws: int = 0


@dataclasses.dataclass(frozen=True)
class Stream:
    """The shards of one stream, and type and shape of a draw of every leaf."""

    leaves: dict[str, tuple[str, tuple[int, ...]]]
    shards: tuple[Entry, ...] = ()


@dataclasses.dataclass(frozen=True)
class Manifest:
    """All that is known of a run. It is never changed: a transaction makes the next one."""

    run: str
    config: Any
    seeds: Any
    versions: tuple[dict[str, str], ...]
    created: str
    updated: str
    transactions: int = 0
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    states: dict[str, Entry] = dataclasses.field(default_factory=dict)
    streams: dict[str, Stream] = dataclasses.field(default_factory=dict)

    @classmethod
    def new(cls, config: Any, seeds: Any) -> Manifest:
        """The manifest of a run that has not begun."""
        time = now()
        return cls(secrets.token_hex(8), config, seeds, (versions(),), time, time)

    @property
    def files(self) -> dict[str, Entry]:
        """Every file of the run by its path."""
        shards = [shard for stream in self.streams.values() for shard in stream.shards]
        return {entry.file: entry for entry in [*self.states.values(), *shards]}

    def write(self, folder: Path) -> None:
        """Replaces the manifest in a folder in one step."""
        content = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        with replacing(folder / NAME) as file:
            file.write(json.dumps({"sha256": _seal(content), **content}, indent=1).encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Reads the manifest in a folder.

        Raises:
            StoreError: If there is none, or it was cut off, edited, or is of a later onebasin.
        """
        path = folder / NAME
        if not path.is_file():
            raise StoreError(f"there is no run in {folder}, which has no file {NAME}.")
        try:
            content = json.loads(path.read_bytes())
            if content.pop("format") != FORMAT:
                raise KeyError("format")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise StoreError(
                f"the file {path} ({path.stat().st_size:,} bytes) is not the manifest of a run, "
                "or was cut off."
            ) from error
        if content.get("version") != VERSION:
            raise StoreError(
                f"the file {path} has version {content.get('version')} of its format, and this "
                f"onebasin reads {VERSION}: update onebasin."
            )
        seal = content.pop("sha256", None)
        if seal != _seal({"format": FORMAT, **content}):
            raise StoreError(
                f"the file {path} was edited, or its bytes have changed: its own checksum does not "
                "fit its content."
            )
        del content["version"]
        return _from_json(content)


def plain(value: Any, name: str) -> Any:
    """A value as JSON keeps it, so that it compares equal to what is read back.

    Args:
        value: Dictionaries, lists, strings, numbers, arrays of numbers, None.
        name: What to call it, in an error.

    Raises:
        StoreError: If part of it has no place in JSON; it names the part.
    """
    if isinstance(value, np.ndarray | np.generic | jax.Array) and value.dtype.kind in "biuf":
        return value.tolist()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item, f"{name}[{place}]") for place, item in enumerate(value)]
    raise StoreError(
        f"{name} is {type(value).__name__} {value!r:.60}, expected what JSON can hold: strings, "
        "numbers, lists and dictionaries of them."
    )


def difference(ours: Any, theirs: Any, name: str) -> str | None:
    """The first place where two values from JSON differ, as a clause; None if they do not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys([*theirs, *ours]):
            inner = f"{name}.{key}"
            if key not in ours or key not in theirs:
                has, value = ("here", ours) if key in ours else ("there", theirs)
                return f"only {has} is {inner} given ({value[key]!r:.60})"
            found = difference(ours[key], theirs[key], inner)
            if found:
                return found
        return None
    same = json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    return None if same else f"{name} is {theirs!r:.60} there and {ours!r:.60} here"


def now() -> str:
    """The time, as manifests write it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """What the numbers of a run depend on, beside its config and seeds."""
    device = jax.devices()[0]
    return {
        **{name: version_of(name) for name in ("onebasin", "jax", "numpy")},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{device.platform}: {device.device_kind}",
    }


def made_with() -> dict[str, str]:
    """Those of the versions with which a task that is done again finds the same."""
    return {k: v for k, v in versions().items() if k in ("onebasin", "jax", "device")}


def version_of(name: str) -> str:
    """The version of a package, or that it runs from its sources."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed: run from its sources"


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _from_json(content: dict[str, Any]) -> Manifest:
    streams = {
        name: Stream(
            {leaf: (dtype, tuple(shape)) for leaf, (dtype, shape) in stream["leaves"].items()},
            tuple(Entry(**shard) for shard in stream["shards"]),
        )
        for name, stream in content.pop("streams").items()
    }
    states = {name: Entry(**entry) for name, entry in content.pop("states").items()}
    return Manifest(
        **{**content, "versions": tuple(content["versions"])}, states=states, streams=streams
    )
