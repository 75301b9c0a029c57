"""Runs as a report reads them: what is there, and what is not yet."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onebasin._core.text import readable
from onebasin.report.numbers import NOTHING
from onebasin.studies import Section, StudyError
from onebasin.studies.folder import read_stage, run_note
from onebasin.studies.notes import Named, RunNote


@dataclasses.dataclass(frozen=True)
class StageResult:
    """What one stage found; `section` is None where it is missing, or has a fault."""

    name: str
    title: str
    section: Section | None
    seconds: float | None = None
    finished: str = ""
    machine: dict[str, str] = dataclasses.field(default_factory=dict)
    fault: str = ""


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a study.

    Attributes:
        folder: Where it lies.
        name: What the report calls it, which no other run of the page has.
        note: What the run's folder says of it.
        stages: Its stages in order, finished or not.
    """

    folder: Path
    name: str
    note: RunNote
    stages: list[StageResult]

    @property
    def missing(self) -> list[str]:
        """Names of the stages that are not there."""
        return [stage.name for stage in self.stages if stage.section is None]

    @property
    def faults(self) -> list[str]:
        """What is wrong with the files of stages that are there."""
        return [stage.fault for stage in self.stages if stage.fault]

    @property
    def seconds(self) -> float:
        """What the finished stages took together."""
        return sum(stage.seconds or 0.0 for stage in self.stages)

    def stage(self, name: str) -> StageResult | None:
        """The stage of a name."""
        return next((stage for stage in self.stages if stage.name == name), None)


def read(folders: Sequence[Path]) -> list[Run]:
    """Reads runs.

    Raises:
        StudyError: If a folder is not a run, or one of another version.
    """
    if not folders:
        raise StudyError("got no run, expected the folder of at least one")
    places = [folder.resolve() for folder in folders]
    for number, (folder, place) in enumerate(zip(folders, places, strict=True)):
        if not place.is_dir():
            what = "a file" if place.exists() else "not there"
            raise StudyError(f"{folder} is {what}, expected the folder of a run: check the path")
        if place in places[:number]:
            raise StudyError(f"got the run {folder} twice: name each run once")
    names = _names(places)
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def flat(config: dict[str, Any], before: str = "") -> dict[str, str]:
    """Every field of a configuration, by dotted name, as text."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{before}{key}.")
        else:
            found[before + key] = NOTHING if value is None else _text(value)
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(folder: Path, name: str) -> Run:
    note = run_note(folder)
    return Run(folder, name, note, [_stage(folder, stage) for stage in note.stages])


def _stage(folder: Path, stage: Named) -> StageResult:
    """A stage, as missing where its files are not there, not whole or another configuration's."""
    absent = StageResult(stage.name, stage.title, None)
    try:
        found = read_stage(folder, stage.name, stage.fingerprint)
    except StudyError as error:
        return dataclasses.replace(absent, fault=str(error))
    if found is None:
        return absent
    note = found.note
    return StageResult(
        stage.name, found.shown.title, found.shown, note.seconds, note.finished, note.machine
    )


def _names(places: Sequence[Path]) -> list[str]:
    """The last part of each path, and as many before it as tell them apart."""
    for depth in range(1, max(len(place.parts) for place in places) + 1):
        names = [
            readable("/".join(part for part in p.parts[-depth:] if part != p.anchor))
            for p in places
        ]
        if len(set(names)) == len(names):
            return names
    return [readable(place) for place in places]


def by_study(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs of one study together, in the order in which they were named."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.note.study, []).append(run)
    return list(found.values())
