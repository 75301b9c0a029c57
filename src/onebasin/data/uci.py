"""Regression tables of the UCI repository, with the splits of the literature on Bayesian nets.

The splits are those of hernandezlobato2015probabilistic: nine tenths of the rows to train on, the
rest to test on, twenty times over (five for the largest table).
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np

from onebasin.data.dataset import Arrays
from onebasin.data.errors import DataError
from onebasin.data.reading import npz, reading
from onebasin.data.source import Paths, Raw


def read_packed(paths: Paths, split: int) -> Raw:
    """A table whose splits are in one file, `splits.npz`."""
    path = paths["splits.npz"]
    (tests,) = npz(path, "test")
    if tests.ndim != 2 or split >= len(tests):
        raise DataError(
            f"the file {path} has splits of shape {tests.shape}, expected (split, row) with more "
            f"than {split} splits."
        )
    return _split(paths, tests[split], path)


def read_listed(paths: Paths, split: int, *, splits_sha256: str) -> Raw:
    """A table with a text file of row numbers for each split.

    Args:
        paths: The files.
        split: Which split.
        splits_sha256: Hash of the sorted row numbers of all splits, as 32-bit integers.
    """
    names = sorted((n for n in paths if n.startswith("index_test_")), key=lambda n: (len(n), n))
    numbers = [_numbers(paths[name]).ravel() for name in names]
    rows = [np.sort(_places(x, 2**31, paths[n])) for x, n in zip(numbers, names, strict=True)]
    got = hashlib.sha256(b"".join(row.astype("<i4").tobytes() for row in rows)).hexdigest()
    if got != splits_sha256:
        raise DataError(
            f"the row numbers in {paths[names[0]].parent} are not those of the published splits: "
            f"sha256:{got}, expected sha256:{splits_sha256}."
        )
    return _split(paths, rows[split], paths[names[split]])


def _split(paths: Paths, test: np.ndarray, where: Path) -> Raw:
    table = _numbers(paths["data.txt"])
    features, target = (
        _places(_numbers(paths[name]).ravel(), table.shape[1], paths[name])
        for name in ("index_features.txt", "index_target.txt")
    )
    test = np.sort(_places(test, len(table), where))
    train = np.setdiff1d(np.arange(len(table)), test)

    def part(rows: np.ndarray) -> Arrays:
        return table[rows][:, features], table[rows][:, target]

    return Raw(part(train), part(test))


def _places(numbers: np.ndarray, below: int, path: Path) -> np.ndarray:
    """Numbers of rows or columns, once they are known to be some, each named once."""
    whole = len(numbers) and ((numbers >= 0) & (numbers < below) & (numbers % 1 == 0)).all()
    if not whole or len(np.unique(numbers)) < len(numbers):
        raise DataError(
            f"the file {path} is no list of numbers from 0 to {below - 1:,}, each of which stands "
            "there once: it belongs to another table."
        )
    return numbers.astype(np.int64)


def _numbers(path: Path) -> np.ndarray:
    with reading(path, "a table of numbers") as file:
        text = file.read().decode("utf-8")
        if not text.strip():
            raise ValueError("it is empty")
        found = np.loadtxt(io.StringIO(text), ndmin=2)
        if not np.isfinite(found).all():
            row, column = np.argwhere(~np.isfinite(found))[0]
            raise ValueError(f"row {row} has {found[row, column]} in column {column}")
        return found
