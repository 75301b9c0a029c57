"""CIFAR-10 and CIFAR-100: pickles of byte arrays, as they lie in a folder or in the archive."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from onebasin.data.dataset import Arrays
from onebasin.data.errors import DataError
from onebasin.data.pickled import unpickle as unpickle
from onebasin.data.reading import Unpacked, reading
from onebasin.data.source import Paths, Raw

BLOCK = 2**18


def read_folder(paths: Paths, _: int, *, labels: str) -> Raw:
    """The unpacked batches, all but the last for training."""
    return _joined([_file(path, labels) for path in paths.values()])


def read_archive(paths: Paths, _: int, *, labels: str, members: Mapping[str, str]) -> Raw:
    """The same from the archive, which is not unpacked.

    Args:
        paths: The archive.
        labels: The name of the labels in the batches.
        members: The batches by their path in the archive, with the MD5 of each.
    """
    (path,) = paths.values()
    found = _members(path, members)
    batches = []
    for name, md5 in members.items():
        if name not in found:
            raise DataError(f"the file {path} has no {name}: it is another archive.")
        got = hashlib.md5(found[name]).hexdigest()
        if got != md5:
            raise DataError(f"{name} in the file {path} has md5:{got}, expected md5:{md5}.")
        batches.append(_batch(found[name], labels, f"{name} in the file {path}"))
    return _joined(batches)


def _file(path: Path, labels: str) -> Arrays:
    with reading(path, "a batch of CIFAR") as file:
        return _batch(file.read(), labels, f"the file {path}")


def _members(path: Path, names: Mapping[str, str]) -> dict[str, bytes]:
    found = {}
    with reading(path, "an archive") as file:
        stream = cast(IO[bytes], Unpacked(path, file))
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK) as archive:
            for entry in archive:
                if entry.name in names and (opened := archive.extractfile(entry)):
                    found[entry.name] = opened.read()
    return found


def _batch(content: bytes, labels: str, where: str) -> Arrays:
    try:
        batch: Any = unpickle(content)
    except DataError as error:
        raise DataError(f"{where} is no batch of CIFAR: {error}") from error
    pixels, classes = (
        (batch.get("data"), batch.get(labels)) if isinstance(batch, dict) else (None, None)
    )
    if not isinstance(pixels, np.ndarray) or pixels.shape[1:] != (3072,):
        raise DataError(f"{where} has no images, expected a batch of CIFAR.")
    if type(classes) is not list or any(type(x) is not int or not 0 <= x < 256 for x in classes):
        raise DataError(f"{where} has no {labels}, expected a batch of CIFAR.")
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, np.array(classes, np.uint8)


def _joined(batches: list[Arrays]) -> Raw:
    *train, test = batches
    inputs, targets = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return Raw((inputs, targets), test)
