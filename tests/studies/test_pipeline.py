"""Stages in a folder: what is done is kept, what changed is done again, what broke goes on."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.report import reading
from onebasin.studies import (
    Cell,
    Column,
    Row,
    Study,
    StudyConfig,
    StudyError,
    Table,
    copy_results,
    sections,
)
from onebasin.studies.notes import sealed


class Config(StudyConfig):
    first: int = 1
    second: int = 2


def toy(log: list[str]) -> Study[Config]:
    study = Study("toy", "A toy", "Whether stages run.", Config)

    @study.stage("One", reads=("first",))
    def one(step) -> None:
        log.append("one")
        step.save("draws", ob.Draws({"w": jnp.full((3, 2), float(step.config.first))}))
        step.save_notes("how", by="hand")

    @study.stage("Two", needs=("one",), reads=("second",))
    def two(step) -> None:
        log.append("two")
        draws = step.load("one", "draws", like={"w": jnp.zeros(2)})
        total = float(draws.params["w"].sum()) + step.config.second
        assert step.load_notes("one", "how") == {"by": "hand"}
        step.save_arrays("total", total=np.array(total))
        cell = Cell(value=total, low=jnp.float32(0), published=3)
        column = Column(key="total", label="total")
        step.show(
            Table(
                name="t", title="T", columns=[column], rows=[Row(label="r", cells={"total": cell})]
            )
        )
        step.headline("total", f"{total:g}")

    @study.stage("Three")
    def three(step) -> None:
        log.append("three")
        step.save_arrays("noise", x=np.asarray(jax.random.normal(step.key, (4,))))

    return study


def test_some_stages_run_with_what_they_need_and_the_rest_later(tmp_path: Path) -> None:
    log: list[str] = []
    study = toy(log)
    folder = study.run(Config(), tmp_path / "run", stages=["three"])
    assert log == ["three"]
    assert list(sections(folder)) == ["three"]
    study.run(Config(), folder, stages=["two"])
    assert log == ["three", "one", "two"]
    study.run(Config(), folder)
    assert log == ["three", "one", "two"]
    for odd in (["four"], []):
        with pytest.raises(StudyError, match="expected some of one, two, three"):
            study.run(Config(), folder, stages=odd)


def test_what_only_finished_stages_have_read_may_be_gone(tmp_path: Path) -> None:
    log: list[str] = []
    study = toy(log)

    @study.stage("Last", needs=("two",))
    def last(step) -> None:
        log.append("last")
        step.save_arrays("total", **step.load_arrays("two", "total"))

    def files(stage: str) -> list[Path]:
        return list((tmp_path / "run" / "stages" / stage).glob("*.safetensors"))

    study.run(Config(), tmp_path / "run", stages=["two"])
    for path in files("one"):
        path.unlink()
    study.run(Config(), tmp_path / "run", stages=["last"])
    assert log == ["one", "two", "last"]
    for path in files("two"):
        path.unlink()
    study.run(Config(), tmp_path / "run", stages=["last"])
    assert log == ["one", "two", "last"]
    for path in files("last"):
        path.unlink()
    study.run(Config(), tmp_path / "run", stages=["last"])
    assert log[3:] == ["one", "two", "last"]
    for path in files("one"):
        path.unlink()
    study.run(Config(second=5), tmp_path / "run", stages=["last"])
    assert log[6:] == ["one", "two", "last"]
    for path in files("one"):
        path.unlink()
    study.run(Config(second=5), tmp_path / "run")
    assert log[9:] == ["one", "three"]


def test_a_stage_that_is_redone_with_another_result_has_all_that_its_readers_need(
    tmp_path: Path,
) -> None:
    """Both read the first; its files, the second's and the last's are gone."""
    study = Study("diamond", "Diamond", "", Config)
    count = iter(range(100))

    for name, needs in (("a", ()), ("b", ()), ("x", ("a", "b")), ("y", ("a",))):

        def work(step, needs=needs) -> None:
            for need in needs:
                step.load_arrays(need, "number")
            step.save_arrays("number", number=np.array(next(count)))

        work.__name__ = name
        study.stage(name, needs=needs)(work)
    study.run(Config(), tmp_path / "run")
    for name in "aby":
        for path in (tmp_path / "run" / "stages" / name).glob("*.safetensors"):
            path.unlink()
    study.run(Config(), tmp_path / "run", stages=["x", "y", "y"])
    assert list(sections(tmp_path / "run")) == ["a", "b", "x", "y"]
    assert next(count) == 8


def test_stages_run_once_and_again_only_where_something_changed(tmp_path: Path) -> None:
    log: list[str] = []
    study = toy(log)
    study.run(Config(), tmp_path / "run")
    assert log == ["one", "two", "three"]
    said: list[str] = []
    study.run(Config(), tmp_path / "run", say=said.append)
    assert log == ["one", "two", "three"]
    assert all("kept" in line for line in said)
    study.run(Config(second=5), tmp_path / "run")
    assert log[3:] == ["two"]
    study.run(Config(first=5, second=5), tmp_path / "run")
    assert log[4:] == ["one", "two"]
    study.run(Config(first=5, second=5, memory=10**9), tmp_path / "run")
    assert len(log) == 6
    found = sections(tmp_path / "run")["two"]
    assert found.table("t").cell("r", "total").value == 3 * 2 * 5 + 5
    assert found.headlines[0].value == "35"
    assert (tmp_path / "run/tables/two-t.csv").read_text() == (
        "group,row,total,total low,total published\n,r,35.0,0.0,3.0\n"
    )


def test_seconds_are_shown_and_are_no_part_of_what_was_found(tmp_path: Path) -> None:
    clock = iter((1.5, 2.5))
    study = Study("timed", "Timed", "Whether seconds tell runs apart.", Config)
    kinds = {name: [Column(key=name, label=name)] for name in ("count", "seconds")}

    @study.stage("Work")
    def work(step) -> None:
        for show, name, value in (
            (step.show, "count", 3),
            (step.show_times, "seconds", next(clock)),
        ):
            rows = [Row(label="r", cells={name: Cell(value=value)})]
            show(Table(name=name, title=name, columns=kinds[name], rows=rows))

    found = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        study.run(Config(), folder)
        kept = copy_results(folder, folder.with_suffix(".kept"))
        assert sections(kept) == sections(folder)
        read = reading.read([kept])[0].stages[0].section
        assert read == sections(folder)["work"]
        note = json.loads((folder / "stages/work/stage.json").read_text())
        files = ["stages/work/section.json", "tables/work-count.csv"]
        found.append((note["files"], *((kept / file).read_bytes() for file in files)))
    assert found[0] == found[1]
    seconds = [
        sections(tmp_path / name)["work"].table("seconds").cell("r", "seconds").value
        for name in ("a", "b")
    ]
    assert seconds == [1.5, 2.5]
    assert (tmp_path / "b.kept/times/work-seconds.csv").read_text() == "group,row,seconds\n,r,2.5\n"


def test_a_damaged_stage_is_done_again(tmp_path: Path) -> None:
    log: list[str] = []
    study = toy(log)
    study.run(Config(), tmp_path)
    file = tmp_path / "stages/one/draws.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    study.run(Config(), tmp_path)
    assert log[3:] == ["one"]


def test_what_was_made_from_another_result_is_done_again(tmp_path: Path) -> None:
    log: list[str] = []
    study = toy(log)
    study.run(Config(), tmp_path / "a")
    study.run(Config(first=2), tmp_path / "b")
    # The same configuration, another result: as a redone stage on another machine may have.
    own = tmp_path / "a/stages/one"
    other = json.loads((tmp_path / "b/stages/one/stage.json").read_text())
    note = json.loads((own / "stage.json").read_text())
    (own / "draws.safetensors").write_bytes(
        (tmp_path / "b/stages/one/draws.safetensors").read_bytes()
    )
    note["files"]["draws.safetensors"] = other["files"]["draws.safetensors"]
    del note["sha256"]
    (own / "stage.json").write_text(sealed(note))
    del log[:]
    study.run(Config(), tmp_path / "a")
    assert log == ["two"]


def test_a_change_of_the_users_own_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = toy([])
    (tmp_path / "own.py").write_text("def factory(): return 1")
    for name in ("own.py:factory", "own:factory"):
        before = study.fingerprints(Config(model=name))
        assert before == study.fingerprints(Config(model=name))
        (tmp_path / "own.py").write_text(f"def factory(): return {name!r}")
        assert before["one"] != study.fingerprints(Config(model=name))["one"]


def test_results_of_another_configuration_are_not_shown(tmp_path: Path) -> None:
    study = toy([])
    study.run(Config(), tmp_path)

    class Stop(Exception):
        pass

    def stop(sentence: str) -> None:
        if "two" in sentence:
            raise Stop

    with pytest.raises(Stop):
        study.run(Config(second=7), tmp_path, say=stop)
    assert set(sections(tmp_path)) == {"one", "three"}


def test_a_run_that_died_at_once_can_be_run(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    toy([]).run(Config(), tmp_path)


def test_divergence_is_a_sentence_of_the_stage(tmp_path: Path) -> None:
    study = Study("toy", "A toy", "", Config)

    @study.stage("Diverges")
    def diverges(step) -> None:
        raise ArithmeticError("the loss left the real numbers")

    with pytest.raises(StudyError, match="stage 'diverges' stopped: the loss left"):
        study.run(Config(), tmp_path)


def test_a_stage_that_breaks_leaves_the_others(tmp_path: Path) -> None:
    log: list[str] = []
    study = toy(log)

    @study.stage("Breaks", needs=("two",))
    def breaks(step) -> None:
        log.append("breaks")
        (step.work / "half").write_text("done")
        if log.count("breaks") == 1:
            raise KeyboardInterrupt
        assert (step.work / "half").read_text() == "done"

    with pytest.raises(KeyboardInterrupt):
        study.run(Config(), tmp_path)
    assert set(sections(tmp_path)) == {"one", "two", "three"}
    study.run(Config(), tmp_path)
    assert log == ["one", "two", "three", "breaks", "breaks"]
    assert not list((tmp_path / "work").glob("*"))


def test_keys_depend_on_seed_and_stage_alone(tmp_path: Path) -> None:
    study = toy([])

    def noise(folder: str, config: Config) -> list[float]:
        study.run(config, tmp_path / folder)
        from safetensors.numpy import load_file

        file = tmp_path / folder / "stages/three/noise.arrays.safetensors"
        return load_file(file)["x"].tolist()

    assert noise("a", Config()) == noise("b", Config(first=9)) != noise("c", Config(seed=1))


def test_a_stage_cannot_read_what_it_does_not_need(tmp_path: Path) -> None:
    study = toy([])

    @study.stage("Cheats")
    def cheats(step) -> None:
        step.load("one", "draws")

    with pytest.raises(ValueError, match="reads 'one' without needing it"):
        study.run(Config(), tmp_path)
    with pytest.raises(ValueError, match="unknown"):
        study.stage("Asks", reads=("third",))(lambda step: None)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    study = toy([])
    study.run(Config(), tmp_path / "run")
    other = Study("other", "Another", "", Config)
    with pytest.raises(StudyError, match="a run of the study 'toy', not of 'other'"):
        other.run(Config(), tmp_path / "run")
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match="is a file"):
        study.run(Config(), tmp_path / "file")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange/thesis.tex").touch()
    with pytest.raises(StudyError, match=r"no run of a study"):
        study.run(Config(), tmp_path / "strange")
    run = tmp_path / "run/run.json"
    run.write_text(json.dumps({**json.loads(run.read_text()), "format": 99}))
    with pytest.raises(StudyError, match="another version"):
        study.run(Config(), tmp_path / "run")


def test_a_full_disk_says_how_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    study = toy([])
    study.run(Config(), tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 90, 10))
    with pytest.raises(StudyError, match=r"needs 36 bytes .* and 10 are free"):
        study.run(Config(first=3), tmp_path)
    monkeypatch.undo()
    assert set(sections(tmp_path)) >= {"three"}
    study.run(Config(first=3), tmp_path)


def test_results_are_kept_without_draws(tmp_path: Path) -> None:
    study = toy([])
    study.run(Config(), tmp_path / "run")
    kept = copy_results(tmp_path / "run", tmp_path / "kept")
    assert sections(kept) == sections(tmp_path / "run")
    assert not list(kept.rglob("*.safetensors"))
    assert (kept / "tables/two-t.csv").exists()
    study.run(Config(second=8), tmp_path / "run")
    copy_results(tmp_path / "run", kept)
    assert sections(kept)["two"].headlines[0].value == "14"
