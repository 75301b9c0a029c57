"""CIFAR-10 and CIFAR-100: pickles of NumPy arrays, opened so that nothing in them can run."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from onebasin.data.dataset import Arrays
from onebasin.data.errors import DataError
from onebasin.data.source import Paths, Raw

# All that the files ask for: the three parts of an array, under the names of Python 2's NumPy.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(
                f"a pickle asks for {module}.{name}, and only NumPy arrays, numbers, strings and "
                "lists of them are opened: this is no file of CIFAR, do not trust it."
            )
        return _ALLOWED[module, name]


def unpickle(content: bytes) -> Any:
    """What a pickle holds, if it holds nothing but arrays, numbers, strings, lists, dictionaries.

    Args:
        content: The bytes of the pickle.

    Raises:
        DataError: If it asks for anything else; none of that is run.

    Example:
        >>> import pickle
        >>> from onebasin.data.cifar import unpickle
        >>> unpickle(pickle.dumps({"labels": [1, 2]}))
        {'labels': [1, 2]}
    """
    try:
        return _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"a pickle cannot be read ({type(error).__name__}: {error}).") from error


def read_folder(paths: Paths, _: int, *, labels: str) -> Raw:
    """The unpacked batches, all but the last for training."""
    batches = [_batch(path.read_bytes(), labels, str(path)) for path in paths.values()]
    return _joined(batches)


def read_archive(paths: Paths, _: int, *, labels: str, members: Mapping[str, str]) -> Raw:
    """The same from the archive, which is not unpacked.

    Args:
        paths: The archive.
        labels: The name of the labels in the batches.
        members: The batches by their path in the archive, with the MD5 of each.
    """
    (path,) = paths.values()
    found = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for entry in archive:
                if entry.name in members and (opened := archive.extractfile(entry)):
                    found[entry.name] = opened.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"the file {path} is not an archive, or was cut off ({error}).") from error
    batches = []
    for name, md5 in members.items():
        if name not in found:
            raise DataError(f"the file {path} has no {name}: it is another archive.")
        got = hashlib.md5(found[name]).hexdigest()
        if got != md5:
            raise DataError(f"{name} in the file {path} has md5:{got}, expected md5:{md5}.")
        batches.append(_batch(found[name], labels, f"{name} in {path}"))
    return _joined(batches)


def _batch(content: bytes, labels: str, where: str) -> Arrays:
    batch = unpickle(content)
    try:
        pixels = np.asarray(batch["data"]).reshape(-1, 3, 32, 32)
        return pixels.transpose(0, 2, 3, 1), np.asarray(batch[labels], np.uint8)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{where} has no images and {labels}, expected a batch of CIFAR ({error})."
        ) from error


def _joined(batches: list[Arrays]) -> Raw:
    *train, test = batches
    inputs, targets = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return Raw((inputs, targets), test)
