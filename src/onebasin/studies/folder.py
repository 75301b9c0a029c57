"""The folder of a run: what it says of itself, which stages are whole, and what they found.

Whoever made a folder may have put anything in it: names in it stay in it, links are not followed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from onebasin._core.files import (
    FileError,
    check_own_folder,
    inside,
    parse_json,
    read_bytes,
    remove,
    sha256_of,
    write_text,
)
from onebasin._core.text import readable, shortened
from onebasin.store.manifest import now, versions
from onebasin.studies.errors import StudyError
from onebasin.studies.notes import RunNote, StageNote, checked, read_note, sealed, understood
from onebasin.studies.results import Figure, Section, Table

FORMAT = 1
RUN = "run.json"
STAGE = "stage.json"
SECTION = "section.json"
OWN = ("stages", "work", "tables", "times")


@dataclasses.dataclass(frozen=True)
class Whole:
    """A stage whose files are whole: what it says of itself, what it found, and both as bytes."""

    note: StageNote
    section: Section
    files: dict[str, bytes]

    @property
    def shown(self) -> Section:
        """What it found, and how long it took, as one section."""
        return with_times(self.section, list(self.note.times))


def kept(folder: Path, stage: str) -> dict[str, Any] | None:
    """What a finished stage says of itself, whether or not its files are there; None if nothing."""
    try:
        note = read_note(StageNote, inside(folder, f"stages/{stage}/{STAGE}"))
    except (OSError, ValueError):
        return None
    return note.model_dump(mode="json") if note.stage == stage else None


def finished(folder: Path, stage: str) -> dict[str, Any] | None:
    """What a finished stage says of itself; None if it is unfinished, or a file is not whole."""
    content = kept(folder, stage)
    if content is None:
        return None
    place = folder / "stages" / stage
    try:
        files = content["files"].items()
        whole = all(sha256_of(inside(place, name)) == digest for name, digest in files)
    except (OSError, FileError):
        return None
    return content if whole else None


def read_stage(folder: Path, stage: str, fingerprint: str | None = None) -> Whole | None:
    """A finished stage; None if it is not there, or of another configuration.

    Raises:
        StudyError: If a file of it is damaged, naming the file.
    """
    path = folder
    try:
        path = inside(folder, f"stages/{stage}/{STAGE}")
        files = {STAGE: read_bytes(path)}
        note = understood(StageNote, parse_json(files[STAGE]))
        if note.stage != stage:
            raise ValueError(f"it is of the stage {shortened(note.stage)!r}")
        path = inside(folder, f"stages/{stage}/{SECTION}")
        files[SECTION] = read_bytes(path)
        if hashlib.sha256(files[SECTION]).hexdigest() != note.files.get(SECTION):
            raise StudyError(f"{readable(path)} has changed since it was written")
        if fingerprint not in (None, note.fingerprint):
            return None
        return Whole(note, checked(Section, parse_json(files[SECTION])), files)
    except FileNotFoundError:
        return None
    except StudyError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise StudyError(f"{readable(path)} cannot be read ({why})") from error
    except FileError as error:
        raise StudyError(readable(error)) from error
    except ValueError as error:
        raise StudyError(f"{readable(path)} is damaged ({readable(error)})") from error


def put_in_place(folder: Path, stage: str, place: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Gives a stage's folder its name; what another worker has finished meanwhile stays.

    Returns:
        What the stage that is there now says of itself.
    """
    final = folder / "stages" / stage
    before = finished(folder, stage)
    same = before is not None and all(before.get(k) == content[k] for k in ("fingerprint", "read"))
    if not same:
        with contextlib.suppress(OSError):
            remove(final)
        try:
            place.rename(final)
            return content
        except OSError:
            before = finished(folder, stage)
            if before is None or before["fingerprint"] != content["fingerprint"]:
                raise
    remove(place)
    assert before is not None
    return before


def digest(files: Mapping[str, str]) -> str:
    """One hash for all files of a stage."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def claim(folder: Path, study: str) -> None:
    """Makes the folder, or sees that it is a run of this study."""
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file, expected a folder for the run: choose another --out")
    try:
        # A process that died on its first steps leaves no more than a lock and half a file.
        begun = folder.is_dir() and any(not x.name.startswith(".") for x in folder.iterdir())
        if begun and (found := _content(folder).get("study")) != study:
            raise StudyError(
                f"{folder} is a run of the study {shortened(found)!r}, not of {study!r}: "
                "choose another --out"
            )
        for name in OWN:
            check_own_folder(folder / name)
        (folder / "stages").mkdir(parents=True, exist_ok=True)
    except FileError as error:
        raise StudyError(f"{error}: remove it, or choose another --out") from error
    except OSError as error:
        raise StudyError(
            f"no folder can be made at {folder} ({error.strerror}): choose another --out"
        ) from error


def work_of(folder: Path, stage: str, fingerprint: str) -> Path:
    """Where a stage keeps what it has begun; made if it is not there.

    Raises:
        StudyError: If something else has its name.
    """
    work = folder / "work" / f"{stage}-{fingerprint[:12]}"
    try:
        check_own_folder(work.parent)
        check_own_folder(work).mkdir(parents=True, exist_ok=True)
    except FileError as error:
        raise StudyError(f"{error}: remove it, and give the same command again") from error
    return work


def read_run(folder: str | Path) -> dict[str, Any]:
    """What a run's folder says of the run.

    Raises:
        StudyError: If it is no run of a study, was made by another version, or is damaged.
    """
    return run_note(Path(folder)).model_dump(mode="json", exclude_unset=True)


def run_note(folder: Path) -> RunNote:
    """The same, as a record."""
    content = _content(folder)
    try:
        return understood(RunNote, content)
    except ValueError as error:
        raise StudyError(
            f"{readable(folder / RUN)} is damaged ({readable(error)}): give the command that made "
            "the run again"
        ) from error


def _content(folder: Path) -> dict[str, Any]:
    """What the file of a run holds, in the format of this version."""
    path = folder / RUN
    try:
        content = parse_json(read_bytes(path))
    except FileNotFoundError:
        raise StudyError(
            f"{readable(folder)} is no run of a study (it has no {RUN}): name a folder that "
            "`onebasin study ... --out` made"
        ) from None
    except (OSError, ValueError) as error:
        raise StudyError(f"{readable(path)} cannot be read: {readable(error)}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise StudyError(
            f"{readable(folder)} was made by another version of onebasin (format "
            f"{shortened(found)}, expected {FORMAT}): choose another --out, or install that version"
        )
    return content


def machine() -> dict[str, str]:
    """Where the work is done."""
    device = jax.devices()[0]
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "device": device.device_kind,
        "platform": device.platform,
    }


def write_run(folder: Path, **content: Any) -> None:
    """Says what the run is; replaced in one step."""
    whole = {
        "format": FORMAT,
        **content,
        "versions": versions(),
        "machine": machine(),
        "started": now(),
    }
    write_text(folder / RUN, sealed(whole))


def with_times(section: Section, times: list[Table | Figure]) -> Section:
    """What a stage found, and how long it took, as one section."""
    return section.model_copy(update={"items": [*section.items, *times]})
