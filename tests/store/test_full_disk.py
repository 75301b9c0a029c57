"""A disk that is full at any write of a run: the folder opens, and the run goes on."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onebasin as ob
from onebasin._core import files
from onebasin.store import Run, StoreError, load, load_params, save, save_params

FULL = OSError(28, "No space left on device")


class Disk:
    """Counts what takes room on it, and refuses from some moment on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: float = float("inf")
        self.used = 0
        for name in ("fsync", "replace", "link", "mkdir"):
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))
        opened = open

        def own(path: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if "x" not in mode and "w" not in mode:
                return opened(path, mode, *more, **options)
            self.take()
            # Without a buffer, so that each write is one.
            return _File(opened(path, mode, 0), self)

        monkeypatch.setattr(files, "open", own, raising=False)

    def take(self) -> None:
        self.used += 1
        if self.used > self.room:
            raise FULL

    def _counted(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.take()
            return act(*arguments, **options)

        return counted


class _File:
    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, part: Any) -> int:
        """Half of it fits before the disk is full."""
        try:
            self._disk.take()
        except OSError:
            self._file.write(memoryview(part)[: len(part) // 2])
            raise
        return self._file.write(part)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def step(run: Run) -> None:
    done = run.notes.get("done", 0)
    with run.transaction() as t:
        t.append("draws", {"w": np.full(2, done)})
        t.put("state", {"done": done + 1})
        t.note(done=done + 1)


def work(folder: Path) -> None:
    with Run.continue_or_create(folder, {}) as run:
        while run.notes.get("done", 0) < 3:
            step(run)


def test_full_at_every_write_of_a_run(tmp_path: Path, disk: Disk) -> None:
    work(tmp_path / "whole")
    total = disk.used
    assert total > 40
    reached = set()
    for number in range(total):
        folder = tmp_path / str(number)
        disk.used, disk.room = 0, number
        with pytest.raises(StoreError, match="No space left on device") as caught:
            work(folder)
        assert "\n" not in str(caught.value)
        disk.room = float("inf")
        if (folder / "manifest.json").exists():
            run = Run.open(folder)
            run.check()
            assert Run.recovery(folder).reason == ""
            reached.add(run.notes.get("done", 0))
        work(folder)
        run = Run.open(folder)
        run.check()
        assert run.stream("draws")[:]["w"].tolist() == [0, 0, 1, 1, 2, 2]
        assert run.get("state", like={"done": 0}) == {"done": 3}
        assert not list(folder.rglob("*.partial"))
        shutil.rmtree(folder)
    assert reached == {0, 1, 2, 3}


def test_full_while_a_run_goes_back(tmp_path: Path, disk: Disk) -> None:
    folder = tmp_path / "whole"
    work(folder)
    (folder / "streams/draws-000002.safetensors").write_bytes(b"")
    for number in range(100):
        place = Path(shutil.copytree(folder, tmp_path / str(number)))
        disk.used, disk.room = 0, number
        try:
            Run.recover(place)
        except StoreError as error:
            said = str(error)
        else:
            said = ""
        disk.room = float("inf")
        Run.recover(place)
        work(place)
        assert Run.open(place).stream("draws")[:]["w"].tolist() == [0, 0, 1, 1, 2, 2]
        if not said:
            break
        assert "cannot be written" in said
    assert number > 3


def test_full_at_every_write_of_a_file(tmp_path: Path, disk: Disk) -> None:
    like = {"w": np.ones(3, np.float32)}
    writes: list[tuple[Callable[[Path, float], None], Callable[[Path], float]]] = [
        (
            lambda path, x: save_params(path, {"w": np.full(3, x, np.float32)}),
            lambda path: float(load_params(path, like)["w"][0]),
        ),
        (
            lambda path, x: save(path, ob.Gaussian({"w": np.full(3, x, np.float32)}, 1.0)),
            lambda path: float(load(path).mean["w"][0]),  # type: ignore[union-attr]
        ),
    ]
    for kind, (write, read) in enumerate(writes):
        path = tmp_path / str(kind) / "file"
        path.parent.mkdir()
        disk.used = 0
        write(path, 1.0)
        total = disk.used
        for number in range(total - 1):
            disk.used, disk.room = 0, number
            with pytest.raises(StoreError, match="No space left"):
                write(path, 2.0)
            disk.room = float("inf")
            assert read(path) == 1.0
            assert [x.name for x in path.parent.iterdir()] == ["file"]
