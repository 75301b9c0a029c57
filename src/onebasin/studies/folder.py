"""The folder of a run: what it says of itself, which stages are whole, and what they found."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from onebasin._core.files import replacing, sha256_of
from onebasin.store.manifest import now, versions
from onebasin.studies.errors import StudyError
from onebasin.studies.results import Figure, Section, Table

FORMAT = 1
RUN = "run.json"
STAGE = "stage.json"
SECTION = "section.json"
TABLES = "tables"
TIMES = "times"


def kept(folder: Path, stage: str) -> dict[str, Any] | None:
    """What a finished stage says of itself, whether or not its files are there; None if nothing."""
    try:
        text = (folder / "stages" / stage / STAGE).read_text(encoding="utf-8")
        content: dict[str, Any] = json.loads(text)
        return content if isinstance(content["files"], dict) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def finished(folder: Path, stage: str) -> dict[str, Any] | None:
    """What a finished stage says of itself; None if it is unfinished, or a file is not whole."""
    place, content = folder / "stages" / stage, kept(folder, stage)
    if content is None:
        return None
    try:
        whole = all(sha256_of(place / name) == digest for name, digest in content["files"].items())
    except OSError:
        return None
    return content if whole else None


def put_in_place(folder: Path, stage: str, place: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Gives a stage's folder its name; what another worker has finished meanwhile stays.

    Returns:
        What the stage that is there now says of itself.
    """
    final = folder / "stages" / stage
    before = finished(folder, stage)
    same = before is not None and all(before.get(k) == content[k] for k in ("fingerprint", "read"))
    if not same:
        shutil.rmtree(final, ignore_errors=True)
        try:
            place.rename(final)
            return content
        except OSError:
            before = finished(folder, stage)
            if before is None or before["fingerprint"] != content["fingerprint"]:
                raise
    shutil.rmtree(place, ignore_errors=True)
    assert before is not None
    return before


def digest(files: Mapping[str, str]) -> str:
    """One hash for all files of a stage."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def claim(folder: Path, study: str) -> None:
    """Makes the folder, or sees that it is a run of this study."""
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file, expected a folder for the run: choose another --out")
    # A process that died on its first steps leaves no more than a lock and half a file.
    if folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
        content = read_run(folder)
        if content["study"] != study:
            raise StudyError(
                f"{folder} is a run of the study {content['study']!r}, not of {study!r}: "
                "choose another --out"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stages").mkdir(exist_ok=True)
    except OSError as error:
        raise StudyError(
            f"no folder can be made at {folder} ({error.strerror}): choose another --out"
        ) from error


def read_run(folder: str | Path) -> dict[str, Any]:
    """What a run's folder says of the run.

    Raises:
        StudyError: If it is no run of a study, or was made by another version.
    """
    path = Path(folder) / RUN
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StudyError(
            f"{folder} is no run of a study (it has no {RUN}): name a folder that "
            "`onebasin study ... --out` made"
        ) from None
    except (OSError, ValueError) as error:
        raise StudyError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise StudyError(
            f"{folder} was made by another version of onebasin (format {found}, expected "
            f"{FORMAT}): choose another --out, or install that version"
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
    with replacing(folder / RUN) as file:
        file.write((json.dumps(whole, indent=1) + "\n").encode())


def times_of(content: Mapping[str, Any]) -> list[Table | Figure]:
    """The tables and figures of seconds, which a stage keeps in what it says of itself."""
    return Section(title="", items=content.get("times", [])).items


def sections(folder: str | Path) -> Mapping[str, Section]:
    """What the finished stages of a run found, by stage; those of another configuration are not."""
    return {name: with_times(section, times) for name, (section, times) in _read(folder).items()}


def with_times(section: Section, times: list[Table | Figure]) -> Section:
    """What a stage found, and how long it took, as one section."""
    return section.model_copy(update={"items": [*section.items, *times]})


def _read(folder: str | Path) -> dict[str, tuple[Section, list[Table | Figure]]]:
    folder = Path(folder)
    found = {}
    for stage in read_run(folder)["stages"]:
        place = folder / "stages" / stage["name"]
        if not (place / SECTION).exists() or not (place / STAGE).exists():
            continue
        content = json.loads((place / STAGE).read_text(encoding="utf-8"))
        written = content["fingerprint"]
        if stage.get("fingerprint", written) == written:
            text = (place / SECTION).read_text(encoding="utf-8")
            found[stage["name"]] = Section.model_validate_json(text), times_of(content)
    return found


def write_tables(folder: Path) -> None:
    """Every table of a run as CSV: in `tables/`, and those of seconds in `times/`."""
    for name in (TABLES, TIMES):
        shutil.rmtree(folder / name, ignore_errors=True)
    for stage, (section, times) in _read(folder).items():
        for name, items in ((TABLES, section.items), (TIMES, times)):
            for item in items:
                if isinstance(item, Table):
                    path = folder / name / f"{stage}-{item.name}.csv"
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(item.to_csv(), encoding="utf-8")


def copy_results(folder: str | Path, out: str | Path) -> Path:
    """Copies what a run found, without its draws, into a folder that is small enough to keep.

    Args:
        folder: The run.
        out: Where to; what lies there is replaced if it is a run of the same study.

    Returns:
        The new folder, which `sections` and the report read as they read the run.
    """
    folder, out = Path(folder), Path(out)
    claim(out, read_run(folder)["study"])
    for name in ("stages", TABLES, TIMES):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in sections(folder):
        place = out / "stages" / name
        place.mkdir(parents=True)
        for file in (SECTION, STAGE):
            shutil.copy2(folder / "stages" / name / file, place / file)
    for name in (TABLES, TIMES):
        if (folder / name).is_dir():
            shutil.copytree(folder / name, out / name)
    shutil.copy2(folder / RUN, out / RUN)
    return out
