"""The manifest as a file, which carries its own checksum; nothing that it says is believed unread.

A manifest may come from a stranger, and a checksum is no signature: types, counts and names are
checked as well, and a file of the run can have no other name than the one that its place gives it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any

from onebasin._core.files import FileError, inside, read_json, replacing, seal_text
from onebasin.store.errors import ManifestError, StoreError, checked_path
from onebasin.store.reading import why
from onebasin.store.records import Before, Entry, Manifest, Stream
from onebasin.store.tensors import DTYPES

FORMAT = "onebasin-run"
VERSION = 2
READ = (1, 2)
NAME = "manifest.json"
PREVIOUS = "manifest.previous.json"
LARGEST = 2**29

_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
_HASH = re.compile(r"[0-9a-f]{64}")
_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_plain_name(name: object) -> bool:
    """Whether a stream or a state may be called so."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name))


def file_of(kind: str, name: str, index: int) -> str:
    """Where a file of a run lies: `kind` is "streams" or "states"."""
    return f"{kind}/{name}-{index:06d}.safetensors"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replaces the manifest in a folder in one step.

    Raises:
        OSError: If it cannot be written.
    """
    content = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(manifest)}
    with replacing(folder / NAME) as file:
        file.write(json.dumps({"sha256": seal_text(content), **content}, indent=1).encode())


def keep_previous(folder: Path) -> None:
    """Gives the manifest in a folder a second name, before another takes the first.

    Raises:
        OSError: If that cannot be done.
    """
    aside = folder / f".{PREVIOUS}.{os.getpid()}-{secrets.token_hex(4)}.partial"
    try:
        os.link(folder / NAME, aside)
        os.replace(aside, folder / PREVIOUS)
    except OSError:
        # Some file systems have one name for a file.
        with replacing(folder / PREVIOUS) as file:
            file.write((folder / NAME).read_bytes())
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)


def read_manifest(folder: Path, name: str = NAME) -> Manifest:
    """Reads the manifest in a folder.

    Args:
        folder: The folder of the run.
        name: The name of the file.

    Raises:
        ManifestError: If there is none, or it was cut off or edited.
        StoreError: If it may not be read, or is of a later onebasin.
    """
    path = checked_path(folder) / name
    content = _content(folder, name)
    version = content.pop("version", None)
    if type(version) is not int or version not in READ:
        raise StoreError(
            f"the file {path} has version {version!r:.40} of its format, and this onebasin reads "
            f"{READ[-1]}: update onebasin."
        )
    seal = content.pop("sha256", None)
    if seal != seal_text({"format": FORMAT, "version": version, **content}):
        raise ManifestError(
            f"the file {path} was edited, or its bytes have changed: its own checksum does not "
            "fit its content."
        )
    try:
        return _manifest(content)
    except _Unfit as error:
        raise ManifestError(
            f"the file {path} was edited: {error}, though its checksum fits."
        ) from error


def _content(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    try:
        content = read_json(inside(folder, name), largest=LARGEST)
        if content.pop("format") != FORMAT:
            raise KeyError("format")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ManifestError(f"there is no run in {folder}, which has no file {name}.") from error
    except OSError as error:
        raise StoreError(
            f"the file {path} {why(error)}: see to it that you may read the run in {folder}."
        ) from error
    except FileError as error:
        raise ManifestError(f"{error}: expected the manifest of a run.") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ManifestError(
            f"the file {path} ({os.path.getsize(path):,} bytes) is not the manifest of a run, "
            "or was cut off."
        ) from error
    return content


class _Unfit(ValueError):
    """Part of a manifest is not what it has to be; the message is a clause."""


def _manifest(content: dict[str, Any]) -> Manifest:
    fields = {field.name for field in dataclasses.fields(Manifest)}
    _check(fields - {"before"} <= set(content) <= fields, "it has other parts than a manifest")
    run = content["run"]
    _check(isinstance(run, str) and bool(_RUN.fullmatch(run)), f"its run is called {run!r:.60}")
    for name in ("created", "updated"):
        _check(isinstance(content[name], str), f"{name!r} is no time")
    versions = content["versions"]
    good = isinstance(versions, list) and versions and all(map(_is_strings, versions))
    _check(bool(good), "'versions' are none")
    streams = {name: _stream(name, x) for name, x in _named(content, "streams")}
    held = _held(content)
    earlier = content.get("before")
    return Manifest(
        run=run,
        config=content["config"],
        seeds=content["seeds"],
        versions=tuple(versions),
        created=content["created"],
        streams=streams,
        before=None if earlier is None else _before(earlier, streams),
        **held,
    )


def _before(content: Any, streams: dict[str, Stream]) -> Before:
    fields = {field.name for field in dataclasses.fields(Before)}
    _check(isinstance(content, dict) and set(content) == fields, "what was before is incomplete")
    counts = dict(_named(content, "shards"))
    for name, count in counts.items():
        known = name in streams and _is_count(count) and count <= len(streams[name].shards)
        _check(known, f"{name!r:.60} had {count!r:.40} shards before")
    return Before(shards=counts, **_held(content))


def _held(content: dict[str, Any]) -> dict[str, Any]:
    """What stands in a manifest, and in what it says of the time before."""
    _check(_is_count(content["transactions"]), "its number of transactions is none")
    _check(isinstance(content["updated"], str), "'updated' is no time")
    _check(isinstance(content["notes"], dict), "its notes are no object")
    states = {name: _entry("states", name, x) for name, x in _named(content, "states")}
    return {
        "transactions": content["transactions"],
        "updated": content["updated"],
        "notes": content["notes"],
        "states": states,
    }


def _named(content: dict[str, Any], kind: str) -> list[tuple[str, Any]]:
    found = content[kind]
    _check(isinstance(found, dict), f"{kind!r} is no object")
    for name in found:
        _check(is_plain_name(name), f"it names {name!r:.80} among the {kind}")
    return list(found.items())


def _stream(name: str, content: Any) -> Stream:
    good = isinstance(content, dict) and set(content) == {"leaves", "shards"}
    _check(good, f"the stream {name!r} has other parts than a stream")
    leaves, shards = content["leaves"], content["shards"]
    _check(isinstance(leaves, dict) and bool(leaves), f"the stream {name!r} has no leaves")
    _check(isinstance(shards, list), f"the shards of {name!r} are no list")
    return Stream(
        {leaf: _leaf(f"{leaf!r:.80} of {name!r}", x) for leaf, x in leaves.items()},
        tuple(_entry("streams", name, x, place) for place, x in enumerate(shards)),
    )


def _leaf(what: str, content: Any) -> tuple[str, tuple[int, ...]]:
    good = isinstance(content, list) and len(content) == 2 and isinstance(content[0], str)
    _check(good and content[0] in DTYPES and isinstance(content[1], list), f"{what} has no type")
    _check(all(map(_is_count, content[1])), f"{what} has the shape {content[1]!r:.60}")
    return content[0], tuple(content[1])


def _entry(kind: str, name: str, content: Any, place: int | None = None) -> Entry:
    """A state, or the shard of a stream at some place."""
    fields = {field.name for field in dataclasses.fields(Entry)}
    good = isinstance(content, dict) and set(content) == fields
    _check(good, f"a file of {name!r} is not described as files are")
    entry = Entry(**content)
    counts = (entry.bytes, entry.index, entry.draws)
    _check(all(map(_is_count, counts)), f"a file of {name!r} has numbers that are no counts")
    _check(place in (None, entry.index), f"the shards of {name!r} are not in order")
    wanted = file_of(kind, name, entry.index)
    _check(entry.file == wanted, f"it names {entry.file!r:.80}, expected {wanted!r}")
    _check((entry.draws > 0) == (kind == "streams"), f"{wanted!r} has {entry.draws} draws")
    good = isinstance(entry.sha256, str) and bool(_HASH.fullmatch(entry.sha256))
    _check(good, f"{wanted!r} has no hash")
    return entry


def _check(good: bool, clause: str) -> None:
    if not good:
        raise _Unfit(clause)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _is_strings(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(x, str) for x in value.values())
