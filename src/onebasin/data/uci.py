"""Regression tables of the UCI repository, with the splits of the literature on Bayesian nets.

The splits are those of hernandezlobato2015probabilistic: nine tenths of the rows to train on, the
rest to test on, twenty times over (five for the largest table).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from onebasin.data.dataset import Arrays
from onebasin.data.errors import DataError
from onebasin.data.source import Paths, Raw


def read_packed(paths: Paths, split: int) -> Raw:
    """A table whose splits are in one file, `splits.npz`."""
    with np.load(paths["splits.npz"], allow_pickle=False) as content:
        return _split(paths, content["test"][split])


def read_listed(paths: Paths, split: int, *, splits_sha256: str) -> Raw:
    """A table with a text file of row numbers for each split.

    Args:
        paths: The files.
        split: Which split.
        splits_sha256: Hash of the sorted row numbers of all splits, as 32-bit integers.
    """
    names = sorted((n for n in paths if n.startswith("index_test_")), key=lambda n: (len(n), n))
    rows = [np.sort(_numbers(paths[name]).ravel()).astype("<i4") for name in names]
    got = hashlib.sha256(b"".join(row.tobytes() for row in rows)).hexdigest()
    if got != splits_sha256:
        raise DataError(
            f"the row numbers in {paths[names[0]].parent} are not those of the published splits: "
            f"sha256:{got}, expected sha256:{splits_sha256}."
        )
    return _split(paths, rows[split])


def _split(paths: Paths, test: np.ndarray) -> Raw:
    table = _numbers(paths["data.txt"])
    features = _numbers(paths["index_features.txt"]).ravel().astype(int)
    target = _numbers(paths["index_target.txt"]).ravel().astype(int)
    train = np.setdiff1d(np.arange(len(table)), test)

    def part(rows: np.ndarray) -> Arrays:
        return table[rows][:, features], table[rows][:, target]

    return Raw(part(train), part(np.sort(test)))


def _numbers(path: Path) -> np.ndarray:
    try:
        return np.loadtxt(path, ndmin=2)
    except (ValueError, OSError) as error:
        raise DataError(f"the file {path} is not a table of numbers ({error}).") from error
