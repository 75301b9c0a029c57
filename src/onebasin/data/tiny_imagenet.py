"""Tiny-ImageNet: JPEG images of 200 classes in a zip file."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np

from onebasin.data.dataset import Arrays
from onebasin.data.errors import DataError
from onebasin.data.reading import member, reading, size_of
from onebasin.data.source import Paths, Raw

FOLDER = "tiny-imagenet-200/"
TRAIN = re.compile(FOLDER + r"train/(n\d+)/images/.+\.JPEG")


def read(paths: Paths, _: int) -> Raw:
    """Images (example, 64, 64, 3); the validation images are the test part.

    The labels of the original test images were never published.
    """
    (path,) = paths.values()
    with (
        reading(path, "the zip file of Tiny-ImageNet") as file,
        zipfile.ZipFile(file) as archive,
    ):
        images = _Images(archive, path, size_of(file))
        names = images.text("wnids.txt").split()
        labels = {name: label for label, name in enumerate(names)}
        rows = [line.split("\t") for line in images.text("val/val_annotations.txt").splitlines()]
        test = {f"{FOLDER}val/images/{row[0]}": labels[row[1]] for row in rows}
        train = {
            entry: labels[match[1]]
            for entry in sorted(archive.namelist())
            if (match := TRAIN.fullmatch(entry))
        }
        why = f"{path.name} has {len(test):,} validation images and no training images"
        return Raw(images.some(train) if train else None, images.some(test), why)


class _Images:
    """The images in the zip file, each read once."""

    def __init__(self, archive: zipfile.ZipFile, path: Path, packed: int) -> None:
        self._archive, self._path, self._packed = archive, path, packed
        # Entries that share their bytes would be many images in a small file.
        if sum(info.compress_size for info in archive.infolist()) > packed:
            raise DataError(f"the entries of the file {path} overlap: do not trust it.")

    def text(self, name: str) -> str:
        return member(self._archive, FOLDER + name, self._path, self._packed).decode()

    def some(self, entries: dict[str, int]) -> Arrays:
        """The images of some entries, and their labels."""
        missing = entries.keys() - set(self._archive.namelist())
        if missing:
            raise DataError(f"the file {self._path} has no {min(missing)!r:.100}: it was cut off.")
        pixels = np.empty((len(entries), 64, 64, 3), np.uint8)
        for place, entry in enumerate(entries):
            pixels[place] = self._image(entry)
        return pixels, np.fromiter(entries.values(), np.int32, len(entries))

    def _image(self, entry: str) -> np.ndarray:
        from PIL import Image

        content = member(self._archive, entry, self._path, self._packed)
        try:
            image = Image.open(io.BytesIO(content), formats=["JPEG"])
            # Before it is unpacked: a small file may say that it is a large image.
            if image.size != (64, 64):
                raise ValueError(f"it is {image.size[0]}x{image.size[1]}")
            # Some are grey.
            return np.asarray(image.convert("RGB"))
        except Exception as error:
            raise DataError(
                f"{entry!r:.100} in the file {self._path} is no JPEG image of 64x64 ({error})."
            ) from error
