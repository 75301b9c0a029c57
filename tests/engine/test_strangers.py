"""A shared directory that a stranger prepared: nothing outside of it is read, changed or made."""

import json
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from onebasin.engine import EngineError, LocalEngine, Task, TaskError, run_tasks
from onebasin.engine.attempt import write_log
from onebasin.engine.claims import claimed, holder
from onebasin.engine.packing import pack, unpack
from onebasin.engine.refusals import forget, refuse, refused
from onebasin.engine.reports import Report, added_up

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no such links")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("whole")
    return path


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_claim_that_is_a_link_leaves_its_target_alone(tmp_path: Path, victim: Path, link) -> None:
    path = tmp_path / ".task.claim"
    link(victim, path)
    with claimed(path) as mine:
        assert mine
    assert victim.read_text() == "whole"


def test_a_claim_makes_no_file_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / ".task.claim"
    path.symlink_to(tmp_path / "new")
    with claimed(path) as mine:
        assert mine
    assert not (tmp_path / "new").exists()


def test_a_claim_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".claim")
    with claimed(tmp_path / ".claim") as mine:
        assert mine
    assert holder(tmp_path / ".claim") == "another process"


def test_a_claim_that_is_large_was_not_written_here(tmp_path: Path) -> None:
    path = tmp_path / ".claim"
    path.write_text("x" * 10_000)
    with claimed(path) as mine:
        assert mine
    assert len(path.read_text()) == 10_000
    assert holder(path) == "another process"


def test_logs_replace_links(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "task.1.log").symlink_to(victim)
    place = write_log(str(tmp_path), "task", 1, "why")
    assert place is not None
    assert "why" in Path(place).read_text()
    assert victim.read_text() == "whole"


def test_a_folder_of_logs_that_is_a_link_gets_none(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "logs").symlink_to(tmp_path / "elsewhere")

    def fail() -> None:
        raise RuntimeError("no")

    with pytest.raises(TaskError, match="log: none"):
        list(run_tasks(LocalEngine(tmp_path / "own", retries=0), [Task("task", fail)]))
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    "text", ["5", "null", "[1]", "{}", '["a", 1, 1, 1]', "[" * 100_000, "[1e999, 0, 0, 0]", "{"]
)
def test_reports_that_are_none_count_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / "good.json").write_text(json.dumps([4, 3, 1, 0]))
    (tmp_path / "progress" / "odd.json").write_text(text)
    os.mkfifo(tmp_path / "progress" / "pipe.json")
    assert added_up(tmp_path) == (4, 3, 1, 0)


def test_reports_replace_links(tmp_path: Path, victim: Path) -> None:
    report = Report(tmp_path)
    report._path.parent.mkdir()
    report._path.symlink_to(victim)
    report.write(4, 4, 0, 0)
    assert victim.read_text() == "whole"
    assert added_up(tmp_path) == (4, 4, 0, 0)


def test_refusals_are_texts_of_their_own(tmp_path: Path, victim: Path) -> None:
    refuse(str(tmp_path), "node", "it has no GPU")
    (tmp_path / "refused" / "other.txt").symlink_to(victim)
    os.mkfifo(tmp_path / "refused" / "pipe.txt")
    (tmp_path / "refused" / "odd.txt").write_bytes(b"\xff")
    assert refused(str(tmp_path)) == {"node": "it has no GPU"}
    refuse(str(tmp_path), "other", "nor this")
    assert victim.read_text() == "whole"
    with pytest.raises(ValueError, match="no plain file name"):
        refuse(str(tmp_path), "../node", "it is elsewhere")
    forget(tmp_path)
    assert refused(str(tmp_path)) == {}


def test_inputs_that_are_no_arrays_are_refused(tmp_path: Path, victim: Path) -> None:
    value = np.arange(20_000.0)
    packed = pack(pickle.Pickler, value, tmp_path)
    (file,) = (tmp_path / "inputs").iterdir()
    assert file.name == file.name.strip(".")
    np.testing.assert_array_equal(unpack(packed), value)
    whole = file.read_bytes()

    def as_link() -> None:
        file.symlink_to(victim)

    def as_pipe() -> None:
        os.mkfifo(file)

    def as_garbage() -> None:
        file.write_bytes(b"\0" * 1000)

    def as_other() -> None:
        file.write_bytes(whole[:-1] + b"\1")

    for make, said in (
        (as_link, "is a link"),
        (as_pipe, "regular"),
        (as_garbage, "damaged"),
        (as_other, "has changed"),
    ):
        file.unlink()
        make()
        with pytest.raises(EngineError, match=said):
            unpack(packed)


def test_a_folder_of_inputs_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "inputs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EngineError, match="is a link"):
        pack(pickle.Pickler, np.zeros(20_000), tmp_path)
    assert os.listdir(tmp_path / "elsewhere") == []
