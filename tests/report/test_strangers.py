"""Pages of runs that a stranger made: texts are read as they are, and nothing computes."""

import csv
import io
import json
import os
import shutil
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import onebasin.report
from onebasin.cli import app
from onebasin.report import build
from onebasin.studies import Axis, Cell, Column, Figure, Panel, Row, Series, Study, Table
from onebasin.studies import StudyConfig as Config
from report import toy
from report.pages import Page

FORMULA = '=HYPERLINK("http://elsewhere","open")'
TURNED = "safe\u202egnp.exe"
FIGURES = Path(onebasin.report.__file__).parent / "assets" / "figures.js"


def run(folder: Path, text: str) -> Path:
    """A run that calls everything by a text."""
    study = Study("toy", text, text, Config)

    @study.stage(text)
    def stage(step: Any) -> None:
        columns = [Column(key="v", label=text), Column(key=text, label=text)]
        cells = {"v": Cell(value=-1.5), text: Cell(value=2)}
        rows = [Row(label=text, group=text, cells=cells), Row(label="-3", cells=cells)]
        step.show(Table(name="t", title=text, columns=columns, rows=rows))
        series = Series(name=text, group=text, x=[-1], y=[2], labels=[text])
        axis = Axis(label=text)
        step.show(Figure(name="f", title=text, panels=[Panel(x=axis, y=axis, series=[series])]))
        step.headline(text, text, text)

    return study.run(Config(), folder)


@pytest.mark.parametrize("text", [FORMULA, "@SUM(A1)", "+1+1", "-1+1", "\t=1", " =1", "\uff1d1"])
def test_spreadsheets_compute_nothing(tmp_path: Path, text: str) -> None:
    folder = run(tmp_path / "run", text)
    other = shutil.copytree(folder, tmp_path / text.replace("/", "_"))
    pages = [Page(build(folder)), Page(build([other, folder], tmp_path / "both.html"))]
    links = [a["href"] or "" for page in pages for a, _ in page.all("a") if "download" in a]
    texts = [urllib.parse.unquote(link.partition(",")[2]).removeprefix("\ufeff") for link in links]
    texts.append((folder / "tables" / "stage-t.csv").read_text())
    assert len(texts) == 3
    for found in texts:
        cells = [cell for row in csv.reader(io.StringIO(found)) for cell in row]
        assert "-1.5" in cells
        assert "-3" in cells
        begins = [cell for cell in cells if cell.lstrip()[:1] in list("=+-@\uff1d")]
        assert {cell for cell in begins if cell} <= {"-1.5", "-3"}
        assert f"'{text}" in cells


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_spreadsheets_compute_nothing_of_figures() -> None:
    series = {"name": FORMULA, "group": "+1+1", "x": [-1.5], "y": [2], "labels": ["-3"]}
    spec = {"panels": [{"title": "@now", "series": [series]}], "frames": []}
    script = f"{FIGURES.read_text()}\nprocess.stdout.write(Figures.csv({json.dumps(spec)}));"
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    row = list(csv.reader(io.StringIO(done.stdout.removeprefix("\ufeff"))))[1]
    assert row == ["'@now", "", "'+1+1", f"'{FORMULA}", "-3", "-1.5", "2", "", "", ""]


def test_nothing_turns_the_direction_of_what_follows(tmp_path: Path) -> None:
    first, second = (run(tmp_path / name, TURNED) for name in ("first", TURNED))
    page = Page(build([first, second], tmp_path / "page.html"))
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069") & set(page.text)
    assert "safe\\u202egnp.exe" in page.text
    [(_, text)] = page.all("script", id="figures")
    spec = json.loads(text)[0]
    keys = {series["key"] for panel in spec["panels"] for series in panel["series"]}
    assert keys == {"g:safe\\u202egnp.exe"}
    names = [text for attrs, text in page.all("bdi")]
    assert {"first", "safe\\u202egnp.exe"} <= set(names)


def test_names_that_are_not_utf8_are_spelt_out(tmp_path: Path) -> None:
    folder = toy.run(tmp_path / "run")
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    try:
        folder.rename(odd)
    except OSError:
        pytest.skip("this file system takes no such names")
    page = Page(build(odd))
    assert "caf\\xe9" in page.text
    done = CliRunner().invoke(app, ["report", str(odd)])
    assert done.exit_code == 0, done.stderr
    assert "caf\\xe9" in done.stdout
    other = toy.run(tmp_path / "other")
    both = Page(build([odd, other], tmp_path / "both.html"))
    assert "caf\\xe9" in [text for _, text in both.all("bdi")]
    (odd / "run.json").unlink()
    done = CliRunner().invoke(app, ["report", str(odd)])
    assert done.exit_code == 2
    assert "caf\\xe9 is no run" in done.stderr


def test_sentences_of_strangers_move_no_cursor(tmp_path: Path) -> None:
    folder = toy.run(tmp_path / "run")
    note = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**note, "format": "\x1b[2J" + "9" * 5000}))
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 2
    assert "\x1b" not in done.stderr
    assert len(done.stderr) < 1000
