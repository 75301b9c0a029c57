"""Folders of studies: what they found, copies of it, the report, and a study that goes on."""

from __future__ import annotations

import hashlib
import random
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from abuse import changes
from abuse.readers.reader import Reader
from abuse.toy import ToyConfig, toy
from onebasin import cli, report, studies


def make(folder: Path) -> None:
    toy.run(ToyConfig(), folder / "run")


def read_sections(folder: Path) -> Any:
    """What the stages found."""
    return {k: v.model_dump_json() for k, v in studies.sections(folder / "run").items()}


def read_copy(folder: Path) -> Any:
    """A copy without draws."""
    studies.copy_results(folder / "run", folder / "kept")
    tables = sorted((folder / "kept").glob("tables/*.csv"))
    found = studies.sections(folder / "kept")
    return [{k: v.model_dump_json() for k, v in found.items()}, [p.read_text() for p in tables]]


class Refused(ValueError):
    """A command ended with code 2 and a sentence, or a page says that a part is missing."""


# A sentence on standard error, or on the page, is what errors of ours become there.
Refused.__module__ = "onebasin.cli"


def read_report(folder: Path) -> Any:
    """The tables that the page shows."""
    text = report.build([folder / "run"]).read_text(encoding="utf-8")
    if 'role="note"' in text and "This run is not finished" in text:
        raise Refused("the page says that a stage is missing")
    return re.findall(r"<td[^>]*>[^<]*", text)


class UnexpectedExit(Exception):
    """A command ended in another way than commands do."""


def read_command(folder: Path) -> Any:
    """`onebasin report`."""
    out = folder / "page.html"
    done = CliRunner().invoke(cli.app, ["report", str(folder / "run"), "--out", str(out)])
    sentence = " ".join(done.stderr.split())[:200]
    if done.exit_code == 2 and "Traceback" not in done.stderr:
        raise Refused(sentence)
    if done.exit_code:
        raise UnexpectedExit(f"{done.exit_code}: {done.exception!r} {sentence}")
    if "missing" in done.stderr:
        raise Refused(sentence)
    return re.findall(r"<td[^>]*>[^<]*", out.read_text(encoding="utf-8"))


def read_on(folder: Path) -> Any:
    """The study that goes on, and does again what is not whole."""
    toy.run(ToyConfig(), folder / "run")
    found = studies.sections(folder / "run")
    tables = sorted((folder / "run").glob("tables/*.csv"))
    return [{k: v.model_dump_json() for k, v in found.items()}, [p.read_text() for p in tables]]


def reseal(_: Path, path: Path, chance: random.Random) -> bool:
    """An edit of a file of a stage, whose hash the stage has."""
    stage = path.parent / "stage.json"
    if path == stage or not stage.is_file():
        return False
    old = path.read_bytes()
    kinds = (changes.token, changes.prune, changes.digit, changes.nest)
    new = chance.choice(kinds)(old, chance)
    path.write_bytes(new)
    was, now = (hashlib.sha256(x).hexdigest() for x in (old, new))
    stage.write_text(stage.read_text().replace(was, now))
    return True


def _sealed(file: str) -> bool:
    """What a stage has hashes of; what it says of itself has no checksum."""
    return file.endswith(("section.json", ".safetensors", "how.json"))


READERS = (
    Reader("sections", make, read_sections, _sealed, "run/**/*.json", reseal, 1.5),
    Reader("copy_results", make, read_copy, _sealed, "run/**/*.json", reseal, 1.5),
    Reader("report", make, read_report, _sealed, "run/**/*.json", reseal, 0.7),
    Reader("onebasin report", make, read_command, _sealed, "run/**/*.json", reseal, 0.3),
    Reader("study, continued", make, read_on, _sealed, "run/**/*", reseal, 1.0),
)
