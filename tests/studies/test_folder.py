"""Folders that are damaged, or that a stranger made: one stage is lost, and nothing outside."""

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onebasin.cli import app
from onebasin.report import build
from onebasin.studies import (
    Cell,
    Column,
    Row,
    Step,
    Study,
    StudyConfig,
    StudyError,
    Table,
    copy_results,
    sections,
)
from onebasin.studies.notes import sealed

STAGES = ("one", "two", "three")


def study() -> Study[StudyConfig]:
    found = Study("toy", "A toy", "Whether folders can be trusted.", StudyConfig)
    for name in STAGES:

        def work(step: Step, name: str = name) -> None:
            column = Column(key="seed", label="seed")
            row = Row(label=name, cells={"seed": Cell(value=step.config.seed)})
            step.show(Table(name="t", title=name, columns=[column], rows=[row]))
            step.show_times(Table(name="s", title=name, columns=[column], rows=[row]))

        work.__name__ = name
        found.stage(name.title())(work)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return study().run(StudyConfig(), tmp_path / "run")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def renamed(run: Path, stage: str, name: str) -> None:
    """The run calls a stage by another name, and vouches for it."""
    note = json.loads((run / "run.json").read_text())
    del note["sha256"]
    for found in note["stages"]:
        if found["name"] == stage:
            found["name"] = name
    (run / "run.json").write_text(sealed(note))


DAMAGE = {
    "a note cut short": ("stage.json", b'{"x', "is damaged"),
    "a note that is none": ("stage.json", b"[]", "is damaged"),
    "a note of deep brackets": ("stage.json", b"[" * 100_000, "nested more than"),
    "an edited section": ("section.json", b'{"title": "Other"}', "has changed since"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_stage_costs_that_stage(run: Path, tmp_path: Path, name: str) -> None:
    file, content, said = DAMAGE[name]
    (run / "stages" / "two" / file).write_bytes(content)
    with pytest.warns(UserWarning, match=f"{said}.*the stage is left out"):
        assert set(sections(run)) == {"one", "three"}
    with pytest.warns(UserWarning, match=said):
        kept = copy_results(run, tmp_path / "kept")
    assert set(sections(kept)) == {"one", "three"}
    assert "three-t.csv" in os.listdir(kept / "tables")


def test_tables_of_the_others_stay(run: Path) -> None:
    (run / "stages" / "two" / "stage.json").write_text('{"x')
    arguments = ["study", "compact", "--out", str(run)]
    with pytest.warns(UserWarning, match="stage is left out"):
        study().run(StudyConfig(), run, stages=["one"])
    assert sorted(os.listdir(run / "tables")) == ["one-t.csv", "three-t.csv"]
    assert sorted(os.listdir(run / "times")) == ["one-s.csv", "three-s.csv"]
    study().run(StudyConfig(), run)
    assert len(os.listdir(run / "tables")) == 3
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize("field", ["seconds", "finished", "fingerprint", "machine", "times"])
def test_an_edited_note_is_noticed(run: Path, field: str) -> None:
    path = run / "stages" / "two" / "stage.json"
    note = json.loads(path.read_text())
    other = {"seconds": 1.5, "machine": {}, "times": []}.get(field, "0" * 64)
    path.write_text(json.dumps({**note, field: other}))
    with pytest.warns(UserWarning, match="checksum does not fit"):
        assert "two" not in sections(run)
    # Without the hash it is another configuration's, or as old results are.
    del note["sha256"]
    path.write_text(json.dumps(note))
    assert "two" in sections(run)


@pytest.mark.parametrize("value", ["Infinity", "NaN", "-1", '"long"', "1e400", "[]"])
def test_seconds_are_a_time(run: Path, value: str) -> None:
    path = run / "stages" / "two" / "stage.json"
    note = json.loads(path.read_text())
    del note["sha256"]
    note["seconds"] = "here"
    path.write_text(json.dumps(note).replace('"here"', value))
    with pytest.warns(UserWarning, match="seconds"):
        assert "two" not in sections(run)
    assert build(run).is_file()


def test_an_edited_run_is_noticed(run: Path) -> None:
    path = run / "run.json"
    text = path.read_text()
    path.write_text(text.replace('"seed": 0', '"seed": 1'))
    for read in (sections, build, lambda folder: copy_results(folder, run.parent / "kept")):
        with pytest.raises(StudyError, match="checksum does not fit"):
            read(run)


@pytest.mark.parametrize("name", ["../../victim", "/etc", "..", "", ".hidden", "a\0b", "x/y"])
def test_names_of_stages_are_names(run: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    shutil.copytree(run / "stages" / "two", victim)
    renamed(run, "two", name)
    before = contents(victim)
    for read in (sections, build, lambda folder: copy_results(folder, tmp_path / "kept")):
        with pytest.raises(StudyError, match="no plain file name"):
            read(run)
    assert contents(victim) == before
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("file", ["section.json", "stage.json", ""])
def test_links_in_a_run_are_not_followed(run: Path, tmp_path: Path, file: str) -> None:
    path = run / "stages" / "two" / file
    path.rename(tmp_path / "victim")
    path.symlink_to(tmp_path / "victim")
    with pytest.warns(UserWarning, match="is a link"):
        assert "two" not in sections(run)
    study().run(StudyConfig(), run)
    assert (tmp_path / "victim").exists()
    assert not path.is_symlink()
    assert set(sections(run)) == set(STAGES)


def test_a_table_that_is_a_link_is_not_copied(run: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    table = run / "tables" / "two-t.csv"
    table.unlink()
    table.symlink_to(tmp_path / "secret")
    (run / "tables" / "more.csv").symlink_to(tmp_path / "secret")
    kept = copy_results(run, tmp_path / "kept")
    assert b"secret" not in contents(kept).values()
    assert (kept / "tables" / "two-t.csv").read_text().startswith("group,row,seed")


@pytest.mark.parametrize("name", ["stages", "work", "tables", "times"])
def test_own_folders_that_are_links_are_refused(run: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "precious").touch()
    if (run / name).exists():
        shutil.rmtree(run / name)
    (run / name).symlink_to(tmp_path / "victim")
    with pytest.raises(StudyError, match="is a link"):
        study().run(StudyConfig(seed=1), run)
    assert os.listdir(tmp_path / "victim") == ["precious"]


def test_what_was_begun_elsewhere_is_not_removed(run: Path, tmp_path: Path) -> None:
    begun = tmp_path / "victim" / ".begun-one"
    begun.mkdir(parents=True)
    (run / "work").mkdir(exist_ok=True)
    (run / "work" / "one-0").symlink_to(begun.parent)
    study().run(StudyConfig(), run, stages=["one"])
    assert begun.is_dir()


def test_work_that_is_a_link_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    mark = study().fingerprints(StudyConfig(seed=1))["one"][:12]
    (run / "work").mkdir(exist_ok=True)
    (run / "work" / f"one-{mark}").symlink_to(tmp_path / "victim")
    with pytest.raises(StudyError, match="is a link"):
        study().run(StudyConfig(seed=1), run)
    assert os.listdir(tmp_path / "victim") == []


def test_a_pipe_is_not_waited_for(run: Path) -> None:
    for file in ("section.json", "stage.json"):
        path = run / "stages" / "two" / file
        path.unlink()
        os.mkfifo(path)
        with pytest.warns(UserWarning, match="not a regular file"):
            assert "two" not in sections(run)
    os.mkfifo(run / "stages" / "one" / "pipe")
    study().run(StudyConfig(), run)
    assert set(sections(run)) == set(STAGES)


def test_a_page_that_is_a_link_is_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("whole")
    (run / "report.html").symlink_to(tmp_path / "victim")
    build(run)
    assert (tmp_path / "victim").read_text() == "whole"
    assert "One" in (run / "report.html").read_text()


def test_what_is_kept_stays_whole_where_it_cannot_be_replaced(run: Path, tmp_path: Path) -> None:
    kept = copy_results(run, tmp_path / "kept")
    before = contents(kept)
    (run / "run.json").write_text("{")
    with pytest.raises(StudyError, match="cannot be read"):
        copy_results(run, kept)
    assert contents(kept) == before


def test_a_disk_that_is_full_costs_nothing_that_was_kept(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = copy_results(run, tmp_path / "kept")
    (kept / "README").write_text("mine")
    before = contents(kept)
    study().run(StudyConfig(seed=1), run)
    writes = 0
    for limit in range(60):

        def rename(path: Path, to: Path, own=os.replace, limit=limit) -> None:
            nonlocal writes
            writes += 1
            if writes > limit:
                raise OSError(28, "No space left on device")
            own(path, to)

        writes = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", rename)
            patch.setattr(os, "replace", rename)
            try:
                copy_results(run, kept)
                break
            except StudyError:
                pass
        after = contents(kept)
        if any(".new-" in name for name in after):
            # Not even what was moved could be moved back: the next call does it.
            continue
        assert after == before
    assert 10 < limit < 59
    copy_results(run, kept)
    after = contents(kept)
    assert after["README"] == b"mine"
    assert after["tables/one-t.csv"] == contents(run)["tables/one-t.csv"]
    assert not any(".new-" in name for name in after)


def test_a_stage_that_is_damaged_stays_as_it_was_kept(run: Path, tmp_path: Path) -> None:
    kept = copy_results(run, tmp_path / "kept")
    (run / "stages" / "two" / "section.json").write_text("{}")
    with pytest.warns(UserWarning, match="has changed since"):
        copy_results(run, kept)
    assert set(sections(kept)) == set(STAGES)
    assert len(os.listdir(kept / "tables")) == 3


def test_a_run_is_not_kept_in_itself(run: Path) -> None:
    before = contents(run)
    with pytest.raises(StudyError, match="name another folder"):
        copy_results(run, run / ".." / "run")
    assert contents(run) == before


def test_the_results_of_this_repository_are_whole() -> None:
    """Older ones vouch for what was found, and not for what they say of themselves."""
    folders = [path.parent for path in (Path(__file__).parents[2] / "results").glob("*/run.json")]
    assert len(folders) > 5
    assert all(sections(folder) for folder in folders)


def test_the_command_ends_in_one_sentence(run: Path) -> None:
    renamed(run, "two", "../../victim")
    for arguments in (["report", str(run)], ["study", "compact", "--resume", "--out", str(run)]):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2
        assert done.stderr.startswith("onebasin: ")
        assert len(done.stderr.splitlines()) == 1
