"""How a run is opened: what lies in the folder, whether it can be trusted, who may write."""

from __future__ import annotations

import dataclasses
import re
import warnings
from pathlib import Path
from typing import Any, Literal

from onebasin.store.damage import FOLDERS, OTHER_RUN, faults, rebuild, sentence
from onebasin.store.errors import DamageWarning, StoreError
from onebasin.store.lock import Lock
from onebasin.store.manifest import NAME, Manifest, difference, versions

Damaged = Literal["error", "skip"]

_OURS = re.compile(r"\.?[A-Za-z0-9_-]+-\d{6,}\.safetensors(\..+\.partial)?")


def check_damaged(damaged: str) -> str:
    """Refuses a word that is not one of the two."""
    if damaged not in ("error", "skip"):
        raise StoreError(f"got damaged={damaged!r}, expected 'error' or 'skip'.")
    return damaged


def lock(folder: Path) -> Lock:
    """The right to write to a folder, which is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Lock(folder)
    except OSError as error:
        raise StoreError(
            f"no run can be written in {folder} ({error.strerror or error}): name a folder that "
            "you may write to."
        ) from error


def for_reading(folder: Path, damaged: Damaged) -> Manifest:
    """The manifest of a run, after checking the size and header of every file."""
    try:
        manifest, found = _settled(folder)
        foreign = [file for file, clause in found.items() if OTHER_RUN in clause]
        lost = bool(found) and len(foreign) == len(manifest.files)
        if lost or (found and damaged == "error"):
            raise StoreError(
                sentence(folder, found) + ": restore what is bad, or read what is left with "
                "Run.open(..., damaged='skip')."
            )
    except StoreError as error:
        if damaged == "error":
            raise
        manifest = rebuild(folder)
        reason = str(error).partition(": restore what is bad")[0].rstrip(".")
        _warn(
            f"{reason}: config, notes and hashes are lost, and what the files say of themselves "
            "is read."
        )
        return manifest
    if found:
        _warn(sentence(folder, found) + ".")
    return manifest


def check_free(folder: Path) -> None:
    """Refuses a folder that has a run."""
    if (folder / NAME).exists():
        raise StoreError(
            f"there is already a run in {folder}: continue it with Run.continue_or_create, or name "
            "another folder."
        )


def for_writing(folder: Path, asked: dict[str, Any]) -> Manifest:
    """The manifest of a run that was asked to do the same and is whole."""
    manifest, found = _settled(folder)
    for name, value in asked.items():
        differs = difference(value, getattr(manifest, name), name)
        if differs:
            raise StoreError(
                f"the run in {folder} was asked to do something else ({differs}): name another "
                "folder, or remove that one."
            )
    if found:
        raise StoreError(
            sentence(folder, found) + ": restore what is bad, or begin in another folder."
        )
    with_what = versions()
    if manifest.versions[-1] != with_what:
        return dataclasses.replace(manifest, versions=(*manifest.versions, with_what))
    return manifest


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Removes what interrupted transactions left: files of ours that the manifest does not name."""
    known = {folder / file for file in manifest.files}
    for path in [path for kind in FOLDERS for path in (folder / kind).glob("*")]:
        if _OURS.fullmatch(path.name) and path not in known:
            path.unlink(missing_ok=True)
    for path in folder.glob(f".{NAME}.*.partial"):
        path.unlink(missing_ok=True)


def _settled(folder: Path) -> tuple[Manifest, dict[str, str]]:
    """The manifest and what is wrong, looking again if a writer replaced it meanwhile."""
    manifest = Manifest.read(folder)
    found = faults(folder, manifest)
    while found and (newer := Manifest.read(folder)) != manifest:
        manifest, found = newer, faults(folder, newer)
    return manifest, found


def _warn(message: str) -> None:
    warnings.warn(message, DamageWarning, stacklevel=4)
