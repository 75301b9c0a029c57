"""SVHN: street view house numbers, cropped to one digit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onebasin.data.dataset import Arrays
from onebasin.data.errors import DataError
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
    with np.load(path, allow_pickle=False) as content:
        test = content["images"], content["labels"]
    return Raw(None, test, f"{path.name} is a subset of {len(test[0])} of the 26,032 test digits")


def _mat(path: Path) -> Arrays:
    from scipy.io import loadmat

    try:
        content = loadmat(path)
        pixels, labels = content["X"], content["y"].ravel()
    except Exception as error:
        raise DataError(
            f"the file {path} cannot be read as a MATLAB file with X and y ({error})."
        ) from error
    # The digit 0 has the label 10 there.
    return pixels.transpose(3, 0, 1, 2), labels % 10
