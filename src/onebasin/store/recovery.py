"""The way back: a run whose last transaction is damaged goes on from the one before."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from onebasin.store.damage import faults, sentence
from onebasin.store.errors import ManifestError, StoreError
from onebasin.store.hashes import sha256_anew
from onebasin.store.manifest_file import NAME, PREVIOUS, read_manifest, write_manifest
from onebasin.store.opening import lock, remove_leftovers
from onebasin.store.rebuilding import check_folders, rebuild
from onebasin.store.records import Manifest


@dataclasses.dataclass(frozen=True)
class Recovery:
    """What going back to the transaction before costs.

    Attributes:
        folder: The folder of the run.
        reason: What is bad, as a sentence; empty if the run is whole, and stays as it is.
        transactions: How many transactions are left.
        kept: How many draws of each stream are left.
        lost: How many draws of each stream are given up; the run makes them again, the same.
    """

    folder: Path
    reason: str
    transactions: int
    kept: dict[str, int]
    lost: dict[str, int]

    def __str__(self) -> str:
        left = f"{self.transactions:,} transaction{'s' * (self.transactions != 1)}"
        parts = "; ".join(
            f"{name!r} keeps {count:,} draws and loses {self.lost.get(name, 0):,}"
            for name, count in self.kept.items()
        )
        held = f"{left}{': ' * bool(parts)}{parts}"
        if not self.reason:
            return f"the run in {self.folder} is whole, with {held}"
        return f"{self.reason}. Before the last transaction the run had {held}"


def plan(folder: Path) -> tuple[Recovery, Manifest]:
    """What it would cost to go back, and the manifest from which the run would go on.

    Raises:
        StoreError: If there is no way back.
    """
    check_folders(folder)
    try:
        manifest = read_manifest(folder)
    except ManifestError as error:
        return _without_manifest(folder, str(error).rstrip("."))
    found = faults(folder, manifest, hashed=sha256_anew)
    draws = manifest.num_draws()
    if not found:
        return Recovery(folder, "", manifest.transactions, draws, {}), manifest
    reason = sentence(folder, found)
    before = manifest.without_last()
    if before is None:
        raise StoreError(
            f"{reason}: {NAME} does not say what was before the last transaction, as the run has "
            "gone back already, or was written by an older onebasin; restore what is bad, or "
            "read what is left with Run.open(..., damaged='skip')."
        )
    return _checked(folder, before, reason, draws)


def recover(folder: Path) -> Recovery:
    """Goes back, and removes what was made since; a run that is whole stays as it is.

    Raises:
        StoreError: If there is no way back, or another process is writing.
    """
    plan(folder)
    held = lock(folder)
    try:
        found, manifest = plan(folder)
        if found.reason:
            write_manifest(folder, manifest)
            remove_leftovers(folder, manifest)
        return found
    except OSError as error:
        raise StoreError(
            f"the run in {folder} cannot be written ({error.strerror or error}): make room, and "
            "try again."
        ) from error
    finally:
        held.release()


def _without_manifest(folder: Path, reason: str) -> tuple[Recovery, Manifest]:
    """The way back where the manifest itself is lost or damaged."""
    try:
        # The states that came before those are gone.
        before = dataclasses.replace(read_manifest(folder, PREVIOUS), before=None)
    except ManifestError as error:
        raise StoreError(
            f"{reason}, and {PREVIOUS}, from which the run could go on, is no better: restore one "
            "of the two, or read what is left with Run.open(..., damaged='skip')."
        ) from error
    try:
        said = rebuild(folder)
    except StoreError:
        said = before
    draws = said.num_draws() if said.run == before.run else {}
    return _checked(folder, before, reason, draws)


def _checked(
    folder: Path, before: Manifest, reason: str, draws: dict[str, int]
) -> tuple[Recovery, Manifest]:
    found = faults(folder, before, hashed=sha256_anew)
    if found:
        raise StoreError(
            f"{sentence(folder, found)}: this is older than the last transaction, so that going "
            "back does not help; restore what is bad, or read what is left with "
            "Run.open(..., damaged='skip')."
        )
    kept = before.num_draws()
    streams = dict.fromkeys([*kept, *draws])
    lost = {name: max(draws.get(name, 0) - kept.get(name, 0), 0) for name in streams}
    kept = {name: kept.get(name, 0) for name in streams}
    return Recovery(folder, reason, before.transactions, kept, lost), before
