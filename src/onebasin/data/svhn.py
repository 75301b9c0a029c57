"""SVHN: street view house numbers, cropped to one digit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onebasin.data.dataset import Arrays
from onebasin.data.errors import DataError
from onebasin.data.mat import read_mat
from onebasin.data.reading import npz
from onebasin.data.source import Paths, Raw


def read_both(paths: Paths, _: int) -> Raw:
    """Training and test digits from the two MATLAB files."""
    return Raw(_mat(paths["train_32x32.mat"]), _mat(paths["test_32x32.mat"]))


def read_test(paths: Paths, _: int) -> Raw:
    """Test digits alone."""
    why = "train_32x32.mat is not beside test_32x32.mat, `onebasin data get svhn` downloads both"
    return Raw(None, _mat(paths["test_32x32.mat"]), why)


def read_subset(paths: Paths, _: int) -> Raw:
    """A subset of the test digits, from an npz file."""
    (path,) = paths.values()
    test = _checked(path, *npz(path, "images", "labels"))
    return Raw(None, test, f"{path.name} is a subset of {len(test[0])} of the 26,032 test digits")


def _mat(path: Path) -> Arrays:
    pixels, labels = read_mat(path, "X", "y")
    if pixels.ndim != 4 or labels.size != max(labels.shape) or labels.dtype.kind not in "iu":
        raise DataError(
            f"the file {path} has X of shape {pixels.shape} and y of shape {labels.shape} and type "
            f"{labels.dtype}, expected the pictures and whole numbers of SVHN."
        )
    # The digit 0 has the label 10 there.
    labels = labels.ravel()
    return _checked(path, pixels.transpose(3, 0, 1, 2), np.where(labels == 10, 0, labels))


def _checked(path: Path, pixels: np.ndarray, labels: np.ndarray) -> Arrays:
    if pixels.dtype != np.uint8 or pixels.shape[1:] != (32, 32, 3):
        raise DataError(
            f"the file {path} has pictures of shape {pixels.shape} and type {pixels.dtype}, "
            "expected bytes of shape (example, 32, 32, 3)."
        )
    return pixels, labels
