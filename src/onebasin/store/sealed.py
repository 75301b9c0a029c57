"""Files that vouch for themselves: arrays, what they are the answer to, and a checksum, in one.

Such a file appears when it is complete. Whoever finds it can tell that it is whole and what it
answers, so that any number of processes may write it, early or late, and none does harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onebasin._core.files import FileError, replacing
from onebasin.store.errors import StoreError
from onebasin.store.posteriors import parts_of, posterior_of
from onebasin.store.reading import TensorFile, is_whole, read_tensors, why
from onebasin.store.tensors import SEAL, write_sealed

QUESTION = "fingerprint"


def seal(
    path: Path, question: str, arrays: Mapping[str, Any], notes: Mapping[str, str] | None = None
) -> None:
    """Writes a sealed file.

    Args:
        path: The file; its folder is made.
        question: The fingerprint of all that the arrays depend on.
        arrays: Arrays by name.
        notes: Further strings by name.

    Raises:
        StoreError: If it cannot be written.
    """
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    metadata = {**(notes or {}), QUESTION: question}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            write_sealed(file, held, metadata)
    except OSError as error:
        raise StoreError(
            f"the file {path} cannot be written ({error.strerror or error}): make room, or name "
            "another folder."
        ) from error


def is_sealed(path: Path, question: str) -> bool:
    """Whether a whole file is there that answers this question; all of it is read, in slices."""
    try:
        with TensorFile(path) as file:
            return file.header.metadata.get(QUESTION) == question and file.is_whole()
    except (OSError, FileError, StoreError):
        return False


def unseal(
    path: Path, question: str, *, checked: bool = False, mapped: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and notes of a sealed file, once it was checked.

    Args:
        path: The file.
        question: What it is to be the answer to.
        checked: Whether its bytes are known to be whole.
        mapped: Whether to leave them in the file, which nobody may write to then.

    Raises:
        OSError: If it cannot be read.
        StoreError: If it answers another question, or its bytes have changed.
    """
    try:
        arrays, metadata = read_tensors(path, mapped=mapped)
    except FileError as error:
        raise StoreError(f"the file {path} {why(error)}: remove it.") from error
    if metadata.get(QUESTION) != question:
        raise StoreError(f"the file {path} is the result of other inputs: remove it.")
    if not checked and not is_whole(arrays, metadata):
        raise StoreError(f"the file {path} has changed since it was written: remove it.")
    return arrays, {k: v for k, v in metadata.items() if k not in (QUESTION, SEAL)}


class Seals:
    """The sealed files of one piece of work: what was found whole is not read twice for that."""

    def __init__(self) -> None:
        self._whole: dict[Path, tuple[int, ...]] = {}

    def is_sealed(self, path: Path, question: str) -> bool:
        """Whether a whole file is there that answers this question; all of it is read."""
        try:
            state = _state(path)
        except OSError:
            return False
        found = is_sealed(path, question)
        if found:
            self._whole[path] = state
        return found

    def unseal(
        self, path: Path, question: str, *, mapped: bool = False
    ) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """As `unseal`; a file that was found whole, and not touched since, is not hashed again."""
        checked = self._whole.get(path) == _state(path)
        return unseal(path, question, checked=checked, mapped=mapped)

    def unseal_posterior(
        self, path: Path, question: str, like: Any = None
    ) -> tuple[Any, dict[str, str]]:
        """A sealed posterior, and the notes with it."""
        arrays, metadata = self.unseal(path, question)
        return posterior_of(arrays, metadata, like, f"the file {path}"), metadata


def seal_posterior(path: Path, question: str, posterior: Any, **notes: str) -> None:
    """Writes a posterior as a sealed file."""
    arrays, metadata = parts_of(posterior, f"the file {path}")
    seal(path, question, arrays, {**metadata, **notes})


def _state(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
