"""The end of a transaction: its manifest takes the place of the one before, which is kept."""

from __future__ import annotations

import contextlib
from pathlib import Path

from onebasin._core.files import inside
from onebasin.store.errors import StoreError
from onebasin.store.manifest_file import NAME, keep_previous, write_manifest
from onebasin.store.records import Manifest


def put_manifest(folder: Path, manifest: Manifest, *, keep: bool = False) -> None:
    """Replaces the manifest in a folder.

    Args:
        folder: The folder of the run.
        manifest: What it holds from then on.
        keep: Whether the manifest before keeps another name.

    Raises:
        StoreError: If it cannot be written.
    """
    try:
        if keep:
            keep_previous(folder)
        write_manifest(folder, manifest)
    except OSError as error:
        raise StoreError(
            f"the file {folder / NAME} cannot be written ({error.strerror or error}); "
            "what was kept before is whole: make room and continue the run."
        ) from error


def remove_replaced(folder: Path, before: Manifest, after: Manifest) -> None:
    """Removes the files that a run no longer needs, not even to go back."""
    for file in before.kept - after.kept:
        with contextlib.suppress(OSError):
            inside(folder, file).unlink(missing_ok=True)
