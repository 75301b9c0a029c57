"""`onebasin recover`: says what is lost, and goes back when it is told to."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from onebasin import cli
from onebasin.store import Run

SHARD = "streams/draws-000002.safetensors"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["recover", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Run.create(tmp_path / "run", {}) as run:
        for step in range(3):
            with run.transaction() as t:
                t.append("draws", {"w": np.full((2, 3), step)})
    return tmp_path / "run"


def test_it_changes_nothing_until_it_is_told_to(folder: Path) -> None:
    (folder / SHARD).write_bytes(b"")
    result = invoke(str(folder))
    assert result.exit_code == 0
    assert "draws-000002.safetensors is truncated" in result.stdout
    assert "2 transactions: 'draws' keeps 4 draws and loses 2." in result.stdout
    assert "Nothing was changed: add --yes to go back." in result.stdout
    assert (folder / SHARD).exists()
    result = invoke(str(folder), "--yes")
    assert result.exit_code == 0
    assert "The run was taken back" in result.stdout
    assert len(Run.open(folder).stream("draws")) == 4
    result = invoke(str(folder), "--yes")
    assert (result.exit_code, "is whole, with 2 transactions" in result.stdout) == (0, True)


def test_as_json(folder: Path) -> None:
    (folder / SHARD).unlink()
    for yes in ([], ["--yes"]):
        result = invoke(str(folder), "--json", *yes)
        found = json.loads(result.stdout)
        assert (found["kept"], found["lost"]) == ({"draws": 4}, {"draws": 2})
        assert (found["whole"], found["recovered"]) == (False, bool(yes))
    assert json.loads(invoke(str(folder), "--json").stdout)["whole"]


def test_what_cannot_be_done_is_one_sentence(folder: Path) -> None:
    (folder / "streams/draws-000001.safetensors").unlink()
    for place, said in ((folder, "older than the last transaction"), (folder / "x", "no run in")):
        result = invoke(str(place), "--yes")
        assert result.exit_code == 2
        assert said in result.stderr
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
