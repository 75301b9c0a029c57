"""Tiny-ImageNet: JPEG images of 200 classes in a zip file."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np

from onebasin.data.dataset import Arrays
from onebasin.data.errors import DataError
from onebasin.data.source import Paths, Raw

FOLDER = "tiny-imagenet-200/"
TRAIN = re.compile(FOLDER + r"train/(n\d+)/images/.+\.JPEG")


def read(paths: Paths, _: int) -> Raw:
    """Images (example, 64, 64, 3); the validation images are the test part.

    The labels of the original test images were never published.
    """
    (path,) = paths.values()
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.read(f"{FOLDER}wnids.txt").decode().split()
            labels = {name: label for label, name in enumerate(names)}
            lines = archive.read(f"{FOLDER}val/val_annotations.txt").decode().splitlines()
            rows = [line.split("\t") for line in lines]
            test = {f"{FOLDER}val/images/{row[0]}": labels[row[1]] for row in rows}
            train = {
                entry: labels[match[1]]
                for entry in sorted(archive.namelist())
                if (match := TRAIN.fullmatch(entry))
            }
            why = f"{path.name} has {len(test):,} validation images and no training images"
            images = _images(archive, train, path) if train else None
            return Raw(images, _images(archive, test, path), why)
    except (zipfile.BadZipFile, KeyError, IndexError) as error:
        raise DataError(
            f"the file {path} is not the zip file of Tiny-ImageNet, or was cut off ({error})."
        ) from error


def _images(archive: zipfile.ZipFile, entries: dict[str, int], path: Path) -> Arrays:
    from PIL import Image, UnidentifiedImageError

    pixels = np.empty((len(entries), 64, 64, 3), np.uint8)
    for place, entry in enumerate(entries):
        try:
            # Some are grey.
            image = Image.open(io.BytesIO(archive.read(entry))).convert("RGB")
            pixels[place] = np.asarray(image)
        except (UnidentifiedImageError, OSError, ValueError) as error:
            raise DataError(
                f"{entry} in the file {path} is no image of 64x64 ({error})."
            ) from error
    return pixels, np.fromiter(entries.values(), np.uint8, len(entries))
