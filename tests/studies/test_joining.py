"""A second process helps a run: it does some of the tasks, and what is found stays the same."""

import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from onebasin import cli
from onebasin.engine import LocalEngine, Superseded
from onebasin.store.lock import Lock, is_held
from onebasin.store.manifest import made_with
from onebasin.studies import (
    Study,
    StudyConfig,
    StudyError,
    get,
    help_run,
    joining,
    load_config,
)
from onebasin.studies.exploration.base import ExplorationConfig
from onebasin.studies.folder import FORMAT, write_run
from onebasin.studies.helpers import helpers
from onebasin.studies.step import BEGUN, Step

exploration = get("exploration")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="has no such locks")

TINY = {
    "train_size": 60,
    "test_size": 30,
    "networks_per_task": 1,
    "net.hidden": [4],
    "train.epochs": 400,
    "train.batch_size": 20,
    "num_samples": 4,
    "repeats": 2,
    "toy.num_networks": 10,
    "toy.epochs": 1,
}


@contextlib.contextmanager
def study(folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "onebasin", "study", "exploration", "--out", str(folder)]
    with subprocess.Popen(
        [*command, "--stages", "target", *more], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    _, text = process.communicate(timeout=300)
    assert process.returncode == 0, text
    return text


def found(folder: Path) -> str:
    return (folder / "stages" / "target" / "section.json").read_text()


def found_alone(folder: Path, *fields: str) -> str:
    with study(folder, *fields) as alone:
        said(alone)
    return found(folder)


def test_a_helper_does_tasks_and_changes_nothing(tmp_path: Path) -> None:
    fields = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    with study(tmp_path / "helped", *fields) as running:
        assert running.stderr is not None
        while "target" not in (line := running.stderr.readline()):
            assert line
        with study(tmp_path / "helped", "--join") as helper:
            words = said(helper)
        said(running)
    assert "target: helping" in words
    done = int(words.split("target: ")[-1].split()[0])
    assert 0 < done < 16
    assert found(tmp_path / "helped") == found_alone(tmp_path / "alone", *fields)
    after = CliRunner().invoke(
        cli.app, ["study", "exploration", "--out", str(tmp_path / "alone"), "--join"]
    )
    assert after.exit_code == 2
    assert "no process is running the study" in after.output


def test_a_run_starts_helpers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    fields = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    with study(tmp_path / "run", *fields, "--helpers", "1") as running:
        assert running.stderr is not None
        log = tmp_path / "run" / "work" / "helper-1.log"
        while running.poll() is None and not (log.exists() and "helping" in log.read_text()):
            time.sleep(0.1)
        said(running)
    # Not all stages were asked for, so that what helpers wrote is still there.
    assert "target: helping" in log.read_text()
    assert any((tmp_path / "run" / "work" / "compiled").iterdir())
    assert found(tmp_path / "run") == found_alone(tmp_path / "alone", *fields)


def test_what_a_killed_run_had_begun_counts_no_more(tmp_path: Path) -> None:
    begun = tmp_path / "work" / "methods-0123" / f"{BEGUN}dropout"
    begun.mkdir(parents=True)
    (tmp_path / "run.json").write_text(json.dumps({"format": FORMAT, "study": "exploration"}))
    config = load_config(ExplorationConfig, "exploration", overrides=TINY)
    exploration.run(config, tmp_path, stages=["toy"])
    assert not begun.exists()


def test_helpers_that_fail_are_told_of(tmp_path: Path) -> None:
    sentences: list[str] = []
    with helpers(1, "exploration", tmp_path, sentences.append) as processes:
        assert processes[0].wait(120) == 2
    (sentence,) = sentences
    assert "helper 1 stopped with code 2" in sentence
    assert str(tmp_path) in sentence


@pytest.mark.parametrize("more", [("--join",), ("--engine", "ray")])
def test_helpers_are_of_runs_here(more: tuple[str, ...], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path), "--helpers", "1"]
    refused = CliRunner().invoke(cli.app, ["study", "exploration", *out, *more])
    assert refused.exit_code == 2
    assert "--helpers goes with a run on the engine local" in " ".join(refused.output.split())


def test_helpers_begin_with_what_nobody_has_begun(tmp_path: Path) -> None:
    stage = exploration.chosen(["methods"])[-1]
    config = load_config(ExplorationConfig, "exploration")
    places = (stage, config, tmp_path, tmp_path, tmp_path / "work", False)
    names = ["dropout", "swag", "laplace"]
    kinds = (Step, joining.Helping, joining.Helping)
    run, first, second = (kind(*places).in_turn(names) for kind in kinds)
    assert [next(run), next(first), next(second)] == names
    assert list(first) == ["dropout", "laplace"]
    assert list(run) == ["swag", "laplace"]


def test_there_must_be_a_run_to_help(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli.app, ["study", "exploration", "--out", str(tmp_path / "none"), "--join"]
    )
    assert result.exit_code == 2
    assert "no run of a study" in result.output


@pytest.mark.parametrize(
    "more", [("--engine", "ray"), ("--keep", "kept"), ("--resume",), ("--set", "seed=1")]
)
def test_a_helper_takes_the_run_as_it_is(more: tuple[str, ...], tmp_path: Path) -> None:
    arguments = ["study", "compact", "--out", str(tmp_path / "run"), "--join"]
    result = CliRunner().invoke(cli.app, [*arguments, *more])
    assert result.exit_code == 2
    assert "leave out" in result.output
    assert more[0] in result.output


CONFIG = load_config(exploration.config, "exploration", "demo")
STAGES = [
    {"name": name, "fingerprint": found} for name, found in exploration.fingerprints(CONFIG).items()
]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({}, "this process 'other'"),
        ({"doing": {"engine": "ray", "stages": ["target"]}}, "engine 'local'"),
        ({"doing": {"engine": None, "stages": ["target"]}}, "engine 'local'"),
        ({"stages": [*STAGES, {"name": "newer"}]}, "another configuration"),
        ({"stages": [{"name": "target"}]}, "another configuration"),
        ({"study": "compact"}, "a run of the study 'compact'"),
    ],
)
def test_what_would_be_done_for_nothing_is_refused(
    written: dict, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doing = {"engine": "local", "stages": ["target"]}
    content = {"study": "exploration", "stages": STAGES, "config": {}, "doing": doing}
    write_run(tmp_path, **{**content, **written})
    monkeypatch.setattr(joining, "made_with", lambda: {**made_with(), "onebasin": "other"})
    lock = Lock(tmp_path)
    with pytest.raises(StudyError, match=words):
        help_run(exploration, CONFIG, tmp_path)
    assert lock.held
    assert is_held(tmp_path)
    lock.release()
    assert not is_held(tmp_path)


def test_a_helper_leaves_what_follows_the_tasks_to_the_run(tmp_path: Path) -> None:
    """Of the target it trains networks and looks at none of them; of a mass it has nothing."""
    config = load_config(ExplorationConfig, "exploration", overrides=TINY | {"train.epochs": 1})
    exploration.run(config, tmp_path, stages=["target"], engine=LocalEngine)
    for name in ("target", "excess-mass"):
        stage = next(stage for stage in exploration.stages if stage.name == name)
        work = tmp_path / "work" / name
        engine = LocalEngine(tmp_path / "engine", networks_per_task=1)
        step = joining.Helping(stage, config, tmp_path, work, work, False, engine)
        with pytest.raises(Superseded):
            stage.work(step)
        assert engine.done == {"target": 16, "excess-mass": 0}[name]
        assert not step.section.items


def test_a_helper_waits_for_files_that_are_gone(tmp_path: Path) -> None:
    """The run does the first stage again, since its file is gone: the second cannot read it yet."""
    study = Study("two", "Two", "", StudyConfig)

    @study.stage("First")
    def first(step: Step) -> None:
        step.save_arrays("x", x=np.zeros(2))

    @study.stage("Second", needs=("first",), tasks=True)
    def second(step: Step) -> None:
        step.load_arrays("first", "x")

    folder = study.run(StudyConfig(), tmp_path / "run", engine=LocalEngine(tmp_path / "engine"))
    (file,) = (folder / "stages" / "first").glob("*.safetensors")
    file.unlink()
    shutil.rmtree(folder / "stages" / "second")
    lock = Lock(folder)
    threading.Timer(1.0, lock.release).start()
    heard: list[str] = []
    assert help_run(study, StudyConfig(), folder, say=heard.append) == 0
    assert heard == []
    assert not is_held(folder)
