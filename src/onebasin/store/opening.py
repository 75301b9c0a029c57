"""How a run is opened: what lies in the folder, whether it can be trusted, who may write."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any, Literal

from onebasin.store.damage import OTHER_RUN, Hash, faults, sentence, way_back
from onebasin.store.errors import DamageWarning, ManifestError, StoreError
from onebasin.store.hashes import sha256_known
from onebasin.store.lock import Lock
from onebasin.store.manifest import difference, versions
from onebasin.store.manifest_file import NAME, PREVIOUS, read_manifest
from onebasin.store.rebuilding import check_folders, files_of_runs, rebuild
from onebasin.store.records import Manifest

Damaged = Literal["error", "skip"]


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
                f"{sentence(folder, found)}: {way_back(folder)}, or read what is left with "
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


def has_run(folder: Path) -> bool:
    """Whether a folder has a run.

    Raises:
        StoreError: If it has the files of one without their manifest.
    """
    if os.path.lexists(folder / NAME):
        return True
    left = files_of_runs(folder)
    if left or os.path.lexists(folder / PREVIOUS):
        what = f"{len(left)} files of a run" if left else PREVIOUS
        raise StoreError(
            f"the folder {folder} has {what}, and its {NAME} is lost: {way_back(folder)}, read "
            "what is left with Run.open(..., damaged='skip'), or begin in another folder."
        )
    return False


def check_free(folder: Path) -> None:
    """Refuses a folder that has a run."""
    if has_run(folder):
        raise StoreError(
            f"there is already a run in {folder}: continue it with Run.continue_or_create, or name "
            "another folder."
        )


def for_writing(folder: Path, asked: dict[str, Any], *, whole: bool) -> Manifest:
    """The manifest of a run that was asked to do the same and is good.

    Args:
        folder: The folder of the run.
        asked: Its config and seeds.
        whole: Whether every file is compared with its hash, for which it is read.
    """
    try:
        manifest, found = _settled(folder, sha256_known if whole else None)
    except ManifestError as error:
        said = str(error).rstrip(".")
        raise StoreError(f"{said}: {way_back(folder)}, or begin in another folder.") from error
    for name, value in asked.items():
        differs = difference(value, getattr(manifest, name), name)
        if differs:
            raise StoreError(
                f"the run in {folder} was asked to do something else ({differs}): name another "
                "folder, or remove that one."
            )
    if found:
        raise StoreError(
            f"{sentence(folder, found)}: {way_back(folder)}, or begin in another folder."
        )
    with_what = versions()
    if manifest.versions[-1] != with_what:
        return dataclasses.replace(manifest, versions=(*manifest.versions, with_what))
    return manifest


def remove_leftovers(folder: Path, manifest: Manifest) -> None:
    """Removes what interrupted transactions left: files of ours that the manifest does not name."""
    known = {folder / file for file in manifest.kept}
    half = [*folder.glob(f".{NAME}.*.partial"), *folder.glob(f".{PREVIOUS}.*.partial")]
    for path in [*files_of_runs(folder, partial=True), *half]:
        if path not in known:
            # A folder that somebody called so is none of ours.
            with contextlib.suppress(IsADirectoryError, PermissionError):
                path.unlink(missing_ok=True)


def _settled(folder: Path, hashed: Hash | None = None) -> tuple[Manifest, dict[str, str]]:
    """The manifest and what is wrong, looking again if a writer replaced it meanwhile."""
    check_folders(folder)
    manifest = read_manifest(folder)
    found = faults(folder, manifest, hashed=hashed)
    while found and (newer := read_manifest(folder)) != manifest:
        manifest, found = newer, faults(folder, newer, hashed=hashed)
    return manifest, found


def _warn(message: str) -> None:
    warnings.warn(message, DamageWarning, stacklevel=4)
