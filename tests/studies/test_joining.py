"""A second process helps a run: it does some of the tasks, and what is found stays the same."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onebasin import cli

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
        yield process
        process.kill()


def said(process: subprocess.Popen[str]) -> str:
    _, text = process.communicate(timeout=300)
    assert process.returncode == 0, text
    return text


def test_a_helper_does_tasks_and_changes_nothing(tmp_path: Path) -> None:
    fields = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    with study(tmp_path / "helped", *fields) as running:
        assert running.stderr is not None
        while "target" not in running.stderr.readline():
            pass
        with study(tmp_path / "helped", "--join") as helper:
            words = said(helper)
        said(running)
    assert "target: helping" in words
    assert int(words.split("target: ")[-1].split()[0]) > 0
    with study(tmp_path / "alone", *fields) as alone:
        said(alone)
    helped, own = (
        (tmp_path / name / "stages" / "target" / "section.json").read_text()
        for name in ("helped", "alone")
    )
    assert helped == own
    after = CliRunner().invoke(
        cli.app, ["study", "exploration", "--out", str(tmp_path / "alone"), "--join"]
    )
    assert after.exit_code == 2
    assert "no process is running the study" in after.output


def test_there_must_be_a_run_to_help(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli.app, ["study", "exploration", "--out", str(tmp_path / "none"), "--join"]
    )
    assert result.exit_code == 2
    assert "no run of a study" in result.output


@pytest.mark.parametrize("more", [("--engine", "ray"), ("--keep", "kept"), ("--set", "seed=1")])
def test_a_helper_takes_the_run_as_it_is(more: tuple[str, str], tmp_path: Path) -> None:
    arguments = ["study", "compact", "--out", str(tmp_path / "run"), "--join"]
    result = CliRunner().invoke(cli.app, [*arguments, *more])
    assert result.exit_code == 2
    assert "leave out" in result.output
    assert more[0] in result.output
