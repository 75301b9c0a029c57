"""Folders that a stranger made: whole ones of ours, each with one thing that points elsewhere.

Each function changes a folder in place. `outside` is the tree that nobody may touch.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from abuse import seals

Construction = Callable[[Path, Path], None]

NAMES: dict[str, str] = {
    "up": "../outside/victim.txt",
    "up from streams": "streams/../../outside/victim.txt",
    "absolute": "{outside}/victim.txt",
    "home": "~/victim.txt",
    "as in a copy of the run": "../outside/other/{kind}",
    "as in a copy, absolute": "{outside}/other/{kind}",
    "NUL": "streams/a\0b",
    "empty": "",
    "dot": ".",
    "two dots": "..",
    "backslash": "..\\outside\\victim.txt",
    "the manifest": "manifest.json",
    "the lock": ".lock",
    "a folder": "streams",
    "very long": "streams/" + "n" * 5000,
}


def remove(path: Path) -> None:
    """Whatever lies there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link(name: str, to: str) -> Construction:
    """Something is a link to something outside."""

    def make(folder: Path, outside: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(path)
        path.symlink_to(to.format(outside=outside))

    return make


def pipe(name: str) -> Construction:
    """Something is a pipe, at whose other end nobody is."""

    def make(folder: Path, outside: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(path)
        os.mkfifo(path)

    return make


def instead(name: str, content: bytes | None) -> Construction:
    """Something has another content; None makes it a folder."""

    def make(folder: Path, outside: Path) -> None:
        remove(folder / name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).mkdir() if content is None else (folder / name).write_bytes(content)

    return make


def edited(name: str, edit: Callable[[Any, str], None]) -> Construction:
    """A JSON file says something else, and its checksum is right where it carries one."""

    def make(folder: Path, outside: Path) -> None:
        path = folder / name
        before = path.read_bytes()
        content = json.loads(before)
        edit(content, str(outside))
        after = json.dumps(content).encode()
        path.write_bytes(seals.reseal_json(before, after) or after)

    return make


def _state(name: str) -> Construction:
    def edit(content: Any, outside: str) -> None:
        state = content["states"]["state"]
        state["file"] = name.format(outside=outside, kind=state["file"])

    return edited("manifest.json", edit)


def _shard(name: str) -> Construction:
    def edit(content: Any, outside: str) -> None:
        shard = content["streams"]["draws"]["shards"][0]
        shard["file"] = name.format(outside=outside, kind=shard["file"])

    return edited("manifest.json", edit)


def _kind(kind: str, name: str) -> Construction:
    def edit(content: Any, outside: str) -> None:
        (key,) = content[kind]
        content[kind][name] = content[kind].pop(key)

    return edited("manifest.json", edit)


RUNS: dict[str, Construction] = {
    **{f"a state named {what}": _state(name) for what, name in NAMES.items()},
    **{f"a shard named {what}": _shard(name) for what, name in NAMES.items()},
    "a state called ..": _kind("states", "../../outside/victim"),
    "a stream called ..": _kind("streams", "../../outside/victim"),
    "streams of another run": link("streams", "{outside}/other/streams"),
    "states of another run": link("states", "{outside}/other/states"),
    "streams elsewhere, with names like ours": link("streams", "{outside}/streams"),
    "states elsewhere, with names like ours": link("states", "{outside}/states"),
    "streams that lead to the parent": link("streams", ".."),
    "streams that lead nowhere": link("streams", "{outside}/nothing"),
    "a shard elsewhere": link(
        "streams/draws-000000.safetensors", "{outside}/other/streams/draws-000000.safetensors"
    ),
    "a leftover elsewhere": link("streams/draws-000007.safetensors", "{outside}/victim.txt"),
    "the next shard is a link": link("streams/draws-000004.safetensors", "{outside}/victim.txt"),
    "the next state is a link": link("states/state-000005.safetensors", "{outside}/victim.txt"),
    "a manifest elsewhere": link("manifest.json", "{outside}/other/manifest.json"),
    "a manifest that is a device": link("manifest.json", "/dev/zero"),
    "a lock elsewhere": link(".lock", "{outside}/victim.txt"),
    "a lock to be made elsewhere": link(".lock", "{outside}/made"),
    "a lock that is a pipe": pipe(".lock"),
    "a manifest that is a pipe": pipe("manifest.json"),
    "a shard that is a pipe": pipe("streams/draws-000001.safetensors"),
    "a shard that is a device": link("streams/draws-000001.safetensors", "/dev/zero"),
    "a shard that is a folder": instead("streams/draws-000001.safetensors", None),
    "a manifest without an end": instead("manifest.json", b"[" * 100_000),
    "a manifest that is a folder": instead("manifest.json", None),
    "an unfinished manifest elsewhere": link(".manifest.json.1-2.partial", "{outside}/victim.txt"),
    "an unfinished shard elsewhere": link(
        "streams/.draws-000004.safetensors.1-2.partial", "{outside}/victim.txt"
    ),
}

STAGES: dict[str, str] = {
    "up": "../../../outside",
    "up to a stage": "../../outside/stages/one",
    "absolute": "{outside}/stages/one",
    "two dots": "..",
    "dot": ".",
    "empty": "",
    "NUL": "a\0b",
    "very long": "n" * 5000,
}


def _stage(name: str) -> Construction:
    """A stage of that name, which has been done."""

    def edit(content: Any, outside: str) -> None:
        stage = dict(content["stages"][0])
        stage.pop("fingerprint", None)
        content["stages"].append({**stage, "name": name.format(outside=outside)})

    return edited("run.json", edit)


def _set(file: str, **values: Any) -> Construction:
    return edited(file, lambda content, outside: content.update(values))


def _files(name: str) -> Construction:
    def edit(content: Any, outside: str) -> None:
        content["files"][name.format(outside=outside)] = "0" * 64

    return edited("stages/one/stage.json", edit)


STUDIES: dict[str, Construction] = {
    **{f"a stage named {what}": _stage(name) for what, name in STAGES.items()},
    "a study of another name": _set("run.json", study="../../outside"),
    "a file of a stage is above": _files("../../../outside/victim.txt"),
    "a file of a stage is absolute": _files("{outside}/victim.txt"),
    "what the run is lies elsewhere": link("run.json", "{outside}/victim.json"),
    "what the run is is a pipe": pipe("run.json"),
    "what the run is is a device": link("run.json", "/dev/zero"),
    "what the run is has no end": instead("run.json", b"[" * 100_000),
    "stages elsewhere": link("stages", "{outside}/stages"),
    "stages that lead nowhere": link("stages", "{outside}/nothing"),
    "a stage elsewhere": link("stages/one", "{outside}/stages/one"),
    "an unfinished stage elsewhere": link("stages/.one-12345678", "{outside}/.left"),
    "a section elsewhere": link("stages/one/section.json", "{outside}/stages/one/section.json"),
    "a section that is a pipe": pipe("stages/one/section.json"),
    "a section that is a device": link("stages/one/section.json", "/dev/zero"),
    "a section without an end": instead("stages/one/section.json", b"[" * 100_000),
    "a stage's note elsewhere": link("stages/one/stage.json", "{outside}/stages/one/stage.json"),
    "a stage's note is a pipe": pipe("stages/two/stage.json"),
    "a stage's note without an end": instead("stages/two/stage.json", b'{"a":' * 50_000),
    "draws that are a pipe": pipe("stages/one/draws.safetensors"),
    "draws elsewhere": link("stages/one/draws.safetensors", "{outside}/victim.txt"),
    "tables elsewhere": link("tables", "{outside}/tables"),
    "times elsewhere": link("times", "{outside}/times"),
    "tables that lead nowhere": link("tables", "{outside}/nothing"),
    "a table of the system": link("tables/one-first.csv", "{outside}/victim.csv"),
    "one more table of the system": link("tables/zzz.csv", "{outside}/victim.csv"),
    "a table that is a pipe": pipe("tables/zzz.csv"),
    "a table that is a device": link("tables/zzz.csv", "/dev/zero"),
    "a report elsewhere": link("report.html", "{outside}/victim.html"),
    "a report to be made elsewhere": link("report.html", "{outside}/made.html"),
    "a report that is a pipe": pipe("report.html"),
    "a claim elsewhere": link(".claim", "{outside}/victim.txt"),
    "a lock elsewhere": link(".lock", "{outside}/victim.txt"),
    "a lock to be made elsewhere": link(".lock", "{outside}/made"),
    "a lock that is a pipe": pipe(".lock"),
    "work elsewhere": link("work", "{outside}/other"),
    "seconds elsewhere": link("work/seconds", "{outside}/victim.txt"),
}

# In the folder that results are copied to.
KEPT: dict[str, Construction] = {
    "stages elsewhere": link("stages", "{outside}/stages"),
    "a stage elsewhere": link("stages/one", "{outside}/stages/one"),
    "tables elsewhere": link("tables", "{outside}/tables"),
    "tables that lead nowhere": link("tables", "{outside}/nothing"),
    "a run elsewhere": link("run.json", "{outside}/victim.json"),
    "a run that is a pipe": pipe("run.json"),
}
