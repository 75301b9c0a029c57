"""Folders that somebody else made: nothing outside is touched, and nothing is waited for."""

import contextlib
import json
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onebasin as ob
from onebasin._core.files import seal_text
from onebasin.store import (
    DamageWarning,
    Run,
    StoreError,
    load,
    load_params,
    open_torch,
    save,
    save_params,
)

STATE = "states/state-000002.safetensors"
SHARD = "streams/draws-000001.safetensors"


def make(folder: Path) -> Path:
    with Run.create(folder, {}) as run:
        for step in range(2):
            with run.transaction() as t:
                t.append("draws", {"params": {"w": np.full((2, 3), step, np.float32)}})
                t.put("state", {"step": step})
    return folder


def reseal(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """An edit of the manifest by somebody who knows how its checksum is made."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    path.write_text(json.dumps({"sha256": seal_text(content), **content}))


def name_victim(name: str) -> Callable[[Path, Path], None]:
    def harm(folder: Path, outside: Path) -> None:
        def change(content: dict[str, Any]) -> None:
            content["states"]["state"]["file"] = name.replace("OUT", str(outside))

        reseal(folder, change)

    return harm


def name_before(folder: Path, outside: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["before"]["states"]["state"]["file"] = "../outside/victim"

    reseal(folder, change)


def name_shard(folder: Path, outside: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["streams"]["draws"]["shards"][1]["file"] = "../outside/victim"

    reseal(folder, change)


def name_stream(folder: Path, outside: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["streams"]["../../outside/victim"] = content["streams"].pop("draws")
        content["before"]["shards"] = {"../../outside/victim": 1}

    reseal(folder, change)


def link_folder(kind: str) -> Callable[[Path, Path], None]:
    def harm(folder: Path, outside: Path) -> None:
        shutil.rmtree(folder / kind)
        (folder / kind).symlink_to(outside / "run" / kind)

    return harm


def link_file(name: str, target: str) -> Callable[[Path, Path], None]:
    def harm(folder: Path, outside: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(outside / target)

    return harm


def link_copy(folder: Path, outside: Path) -> None:
    """A link to a good file, which is outside all the same."""
    shutil.copy(folder / SHARD, outside / "copy")
    link_file(SHARD, "copy")(folder, outside)


HOSTILE: dict[str, Callable[[Path, Path], None]] = {
    "parent": name_victim("../outside/victim"),
    "absolute": name_victim("OUT/victim"),
    "inside out": name_victim("states/../../outside/victim"),
    "another file of the run": name_victim(".lock"),
    "before": name_before,
    "shard": name_shard,
    "stream": name_stream,
    "streams is a link": link_folder("streams"),
    "states is a link": link_folder("states"),
    "manifest is a link": link_file("manifest.json", "run/manifest.json"),
    "manifest is a dead link": link_file("manifest.json", "nothing"),
    "lock is a link": link_file(".lock", "victim"),
    "lock is a dead link": link_file(".lock", "nothing"),
    "shard is a link": link_file(SHARD, "victim"),
    "shard is a link to itself elsewhere": link_copy,
    "state is a link": link_file(STATE, "run/" + STATE),
}


def seen(folder: Path) -> dict[str, Any]:
    """Every file and folder with its content."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        kind = stat.S_IFMT(os.lstat(path).st_mode)
        found[str(path)] = (kind, path.read_bytes() if kind == stat.S_IFREG else None)
    return found


def use(folder: Path) -> None:
    """All that one does to a run."""
    run = Run.continue_or_create(folder, {})
    for step in range(3):
        with run.transaction() as t:
            t.append("draws", {"params": {"w": np.full((2, 3), step, np.float32)}})
            t.put("state", {"step": step})
    run.get("state")
    run.draws()
    run.check()
    run.close()


@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_outside_of_a_hostile_folder_is_touched(tmp_path: Path, case: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("whole")
    make(outside / "run")
    folder = make(tmp_path / "run")
    HOSTILE[case](folder, outside)
    before = seen(outside)
    with pytest.raises(StoreError) as caught:
        use(folder)
    assert "\n" not in str(caught.value)
    for act in (Run.open, lambda path: Run.open(path, damaged="skip").draws(), Run.recover, use):
        with contextlib.suppress(StoreError), warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)
            act(folder)
    assert seen(outside) == before
    assert not (outside / "nothing").exists()


def test_files_that_are_links_are_replaced_when_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("whole")
    run = Run.create(tmp_path / "run", {})
    for name in ("manifest.previous.json", "streams/draws-000000.safetensors"):
        path = run.path / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(tmp_path / "victim")
    with run.transaction() as t:
        t.append("draws", {"w": np.ones(2)})
    run.check()
    save(tmp_path / "run" / "x", _draws())
    assert (tmp_path / "victim").read_text() == "whole"


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    make(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    use(tmp_path / "link")
    assert len(Run.open(tmp_path / "real").draws()) == 10


@pytest.mark.parametrize("name", [SHARD, STATE, "manifest.json", ".lock"])
def test_pipes_and_folders_are_not_read(tmp_path: Path, name: str) -> None:
    for kind, put in (("pipe", os.mkfifo), ("folder", os.mkdir)):
        folder = make(tmp_path / kind)
        (folder / name).unlink()
        put(folder / name)
        with pytest.raises(StoreError):
            use(folder)
        assert (folder / name).exists()


def test_pipes_in_the_place_of_single_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    os.mkfifo(path)
    like = {"w": np.ones(2, np.float32)}
    for read in (
        lambda: load(path),
        lambda: load_params(path, like),
        lambda: open_torch(path, {"w": "w"}, like),
    ):
        with pytest.raises(StoreError, match="is not a regular file"):
            read()
    save_params(path, like)
    assert path.is_file()


def test_a_device_is_not_read() -> None:
    with pytest.raises(StoreError, match="is not a regular file"):
        load("/dev/zero")


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "x/" * 3000, "\ud800"], ids=range(4))
def test_paths_that_no_file_has(path: str, tmp_path: Path) -> None:
    like = {"w": np.ones(2, np.float32)}
    place = f"{tmp_path}/{path}"
    calls: list[Callable[[], Any]] = [
        lambda: Run.open(place),
        lambda: Run.create(place, {}),
        lambda: Run.continue_or_create(place, {}),
        lambda: Run.recover(place),
        lambda: load(place),
        lambda: save(place, _draws()),
        lambda: load_params(place, like),
        lambda: save_params(place, like),
        lambda: open_torch(place, {"w": "w"}, like),
    ]
    for call in calls:
        with pytest.raises(StoreError):
            call()


def _draws() -> Any:
    return ob.Draws({"w": np.ones((2, 3), np.float32)})


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs to become another user")
def test_what_may_not_be_read_is_said_so() -> None:
    place = Path(tempfile.mkdtemp())
    try:
        place.chmod(0o755)
        folder = make(place / "run")
        save_params(place / "net", {"w": np.ones(2)})
        for path in (folder / SHARD, place / "net"):
            path.chmod(0)
        os.seteuid(65534)
        with pytest.raises(StoreError, match=r"draws-000001.* may not be read \(Permission denied"):
            Run.open(folder)
        with pytest.raises(StoreError, match=r"net may not be read \(Permission denied"):
            load_params(place / "net", {"w": np.ones(2)})
        os.seteuid(0)
        (folder / "manifest.json").chmod(0)
        os.seteuid(65534)
        for act in (Run.open, Run.recover, lambda path: Run.continue_or_create(path, {})):
            with pytest.raises(StoreError, match=r"manifest\.json may not be read"):
                act(folder)
    finally:
        os.seteuid(0)
        shutil.rmtree(place)


def test_streams_that_are_removed_under_a_run(tmp_path: Path) -> None:
    run = Run.continue_or_create(make(tmp_path / "run"), {})
    stream = run.stream("draws")
    shutil.rmtree(run.path / "streams")
    for read in (lambda: stream[0], lambda: run.stream("draws"), run.draws, run.check):
        with pytest.raises(StoreError, match=r"draws-00000\d\.safetensors is missing"):
            read()
    with pytest.raises(StoreError, match="cannot be read"):
        stream.files()
