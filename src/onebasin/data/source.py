"""Where a data set comes from: its files, their checksums, and who reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from onebasin.data.dataset import Arrays

Paths = Mapping[str, Path]


@dataclasses.dataclass(frozen=True)
class File:
    """One file.

    Args:
        name: Its name.
        checksum: As "md5:..." or "sha256:..."; empty where another file vouches for it.
        bytes: Its size.
        urls: Where it can be downloaded, in the order in which to try.
    """

    name: str
    checksum: str
    bytes: int
    urls: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Raw:
    """What the files of a data set hold: values as they are there.

    Args:
        train: Inputs and targets for training; None if these files have no such part.
        test: Inputs and targets for testing.
        without_train: Why there is no training part.
    """

    train: Arrays | None
    test: Arrays
    without_train: str = ""


@dataclasses.dataclass(frozen=True)
class Form:
    """One set of files that a data set can be read from.

    Args:
        what: What it is, in a few words.
        folders: Where the files may lie under a root; the first is where downloads go.
        files: All of them are needed.
        read: Reads them, already checked; takes the number of the split.
        partial: Whether it is only part of what was published.
    """

    what: str
    folders: tuple[str, ...]
    files: tuple[File, ...]
    read: Callable[[Paths, int], Raw]
    partial: bool = False

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def can_be_downloaded(self) -> bool:
        """Whether all files have an address."""
        return all(file.urls for file in self.files)


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set before it is read.

    Args:
        name: Its name, as `load` takes it.
        about: What it is, in a sentence.
        forms: The files that it can be read from, the best first.
        num_classes: How many classes there are; None for a regression.
        normalise: How inputs are normalised by default: "unit", "standard".
        largest: The largest value that an input has in the files; None if there is none.
        licence: Under which it was published.
        citation: Whom to cite.
        num_splits: How many fixed splits it has.
    """

    name: str
    about: str
    forms: tuple[Form, ...]
    num_classes: int | None
    normalise: str
    largest: float | None
    licence: str
    citation: str
    num_splits: int = 1


def images(pixels: np.ndarray) -> np.ndarray:
    """Grey images (example, height, width) with their channel axis."""
    return pixels[..., None] if pixels.ndim == 3 else pixels
