import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onebasin.cli import app
from report import toy


def invoke(*arguments: object):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.run(tmp_path_factory.mktemp("runs") / "half", stop=True)


def test_it_writes_the_page_and_says_what_is_missing(half: Path) -> None:
    result = invoke(half)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"Wrote {half / 'report.html'}.\n"
    assert "is not finished: curves missing" in result.stderr


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    whole = toy.run(tmp_path / "whole")
    file = sorted(whole.glob("stages/*/section.json"))[0]
    file.write_bytes(file.read_bytes() + b" ")
    result = invoke(whole)
    assert result.exit_code == 0, result.stderr
    assert f"{file} has changed since it was written: give the command" in result.stderr


def test_json(half: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = invoke(half, "--out", out, "--json")
    assert json.loads(result.stdout) == {"report": str(out), "missing": ["curves"]}
    assert out.is_file()


def test_bad_input_is_one_sentence(half: Path, tmp_path: Path) -> None:
    for arguments in ([tmp_path / "nowhere"], [tmp_path], [half, half], [half, "--out", tmp_path]):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith("onebasin: ")
        assert len(result.stderr.splitlines()) == 1


def test_help_has_an_example() -> None:
    assert "onebasin report runs/compact" in " ".join(invoke("--help").stdout.split())
