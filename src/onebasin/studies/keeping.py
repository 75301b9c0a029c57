"""What a run found, read, written as tables, and copied to where it is kept.

One damaged stage costs that stage only, and is told of. What was there before is taken away when
what replaces it is complete.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from onebasin._core.files import FileError, read_bytes, remove
from onebasin._core.text import readable
from onebasin.studies.errors import StudyError
from onebasin.studies.folder import RUN, Whole, claim, read_stage, run_note
from onebasin.studies.results import Section, Table

TABLES = "tables"
TIMES = "times"
OLD = "old"


def sections(folder: str | Path) -> Mapping[str, Section]:
    """What the finished stages of a run found, by stage; those of another configuration are not.

    Warns of stages that are damaged, which are left out.
    """
    return {name: stage.shown for name, stage in whole_stages(Path(folder)).items()}


def whole_stages(folder: Path) -> dict[str, Whole]:
    """The finished stages of a run; warns of those that are damaged."""
    found, faults = _read(folder)
    for fault in faults.values():
        warnings.warn(
            f"{fault}: the stage is left out; give the command that made the run again",
            stacklevel=3,
        )
    return found


def write_tables(folder: Path) -> None:
    """Every table of a run as CSV: in `tables/`, and those of seconds in `times/`."""
    found = whole_stages(folder)
    with _beside(folder) as new:
        _write_tables(new, found)
        _take_places(folder, new, (TABLES, TIMES))


def copy_results(folder: str | Path, out: str | Path) -> Path:
    """Copies what a run found, without its draws, into a folder that is small enough to keep.

    A stage that is damaged is kept as it was kept before, if that is of the same configuration.

    Args:
        folder: The run.
        out: Where to; what lies there is replaced if it is a run of the same study.

    Returns:
        The new folder, which `sections` and the report read as they read the run.

    Raises:
        StudyError: If `folder` is no run, or `out` is something else or cannot be written; what
            was kept there is whole then.
    """
    folder, out = Path(folder), Path(out)
    note = run_note(folder)
    if os.path.realpath(folder) == os.path.realpath(out):
        raise StudyError(f"got {out} to keep results in, which is the run: name another folder")
    claim(out, note.study)
    found = {**_kept_before(folder, out), **whole_stages(folder)}
    try:
        with _beside(out) as new:
            for name, stage in found.items():
                _write_stage(new / "stages" / name, stage)
            (new / "stages").mkdir(exist_ok=True)
            _write_tables(new, found)
            (new / RUN).write_bytes(read_bytes(folder / RUN))
            _take_places(out, new, ("stages", TABLES, TIMES, RUN))
    except (OSError, FileError) as error:
        why = getattr(error, "strerror", None) or error
        raise StudyError(
            f"results cannot be kept in {readable(out)} ({readable(why)}): make room, or name "
            "another folder; what was kept there is as it was"
        ) from error
    return out


def _read(folder: Path) -> tuple[dict[str, Whole], dict[str, StudyError]]:
    """The finished stages of a run, and what is wrong with the damaged ones."""
    found, faults = {}, {}
    for stage in run_note(folder).stages:
        try:
            whole = read_stage(folder, stage.name, stage.fingerprint)
        except StudyError as error:
            faults[stage.name] = error
            continue
        if whole is not None:
            found[stage.name] = whole
    return found, faults


def _kept_before(folder: Path, out: Path) -> dict[str, Whole]:
    """Of the stages that are damaged in a run, those that were kept of it when they were whole."""
    _, faults = _read(folder)
    prints = {stage.name: stage.fingerprint for stage in run_note(folder).stages}
    found = {}
    for name in faults:
        with contextlib.suppress(StudyError):
            before = read_stage(out, name, prints[name])
            if before is not None:
                found[name] = before
    return found


def _write_stage(place: Path, stage: Whole) -> None:
    place.mkdir(parents=True)
    for name, content in stage.files.items():
        (place / name).write_bytes(content)


def _write_tables(folder: Path, found: Mapping[str, Whole]) -> None:
    for stage, whole in found.items():
        for name, items in ((TABLES, whole.section.items), (TIMES, whole.note.times)):
            for item in items:
                if isinstance(item, Table):
                    (folder / name).mkdir(exist_ok=True)
                    path = folder / name / f"{stage}-{item.name}.csv"
                    path.write_text(item.to_csv(), encoding="utf-8", errors="backslashreplace")


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder inside of another, for what is to take the place of something in it."""
    for left in folder.glob(".new-*"):
        _put_back(folder, left)
        remove(left)
    new = folder / f".new-{secrets.token_hex(4)}"
    new.mkdir()
    try:
        yield new
    finally:
        # What could not be put back is put back by the next call.
        if not (new / OLD).exists():
            remove(new)


def _take_places(folder: Path, new: Path, names: Sequence[str]) -> None:
    """Puts what is new in the place of what was there; all of it, or nothing."""
    (new / OLD).mkdir()
    try:
        for name in names:
            _take_place(folder, new, name)
        os.rename(new / OLD, new / "replaced")
    except BaseException:
        _put_back(folder, new)
        raise


def _take_place(folder: Path, new: Path, name: str) -> None:
    path = folder / name
    if path.is_file() and not path.is_symlink():
        # A run is never without the file that says what it is.
        (new / OLD / name).write_bytes(read_bytes(path))
    elif os.path.lexists(path):
        os.rename(path, new / OLD / name)
    if os.path.lexists(new / name):
        os.replace(new / name, path)


def _put_back(folder: Path, new: Path) -> None:
    """What was taken away for something that did not take its place after all."""
    old = new / OLD
    if new.is_symlink() or old.is_symlink() or not old.is_dir():
        return
    for path in old.iterdir():
        place = folder / path.name
        if place.is_dir() and not place.is_symlink():
            os.rename(place, new / f"undone-{secrets.token_hex(4)}")
        os.replace(path, place)
    old.rmdir()
