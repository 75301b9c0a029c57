"""The IDX files of MNIST and its kin."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from onebasin.data.errors import DataError
from onebasin.data.reading import Unpacked, reading
from onebasin.data.source import Paths, Raw, images

NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def read(paths: Paths, _: int) -> Raw:
    """Images (example, height, width, 1) and labels from the four files."""
    train_images, train_labels, test_images, test_labels = (read_idx(paths[n]) for n in NAMES)
    return Raw((images(train_images), train_labels), (images(test_images), test_labels))


def read_idx(path: Path) -> np.ndarray:
    """One gzipped IDX file of bytes: two zeros, the type 8, the number of axes, the sizes, bytes.

    No more is unpacked than its header says.

    Raises:
        DataError: If it is something else.
    """
    with reading(path, "a gzip file") as file:
        unpacked = Unpacked(path, file)
        start = unpacked.read(4)
        axes = start[3] if start[:3] == b"\0\0\x08" and len(start) == 4 else 0
        shape = np.frombuffer(unpacked.read(4 * axes), ">i4").tolist()
        size = math.prod(shape) if axes and min(shape, default=-1) >= 0 else -1
        content = unpacked.read(max(size, 0))
        if size < 0 or len(shape) != axes or len(content) != size or unpacked.read(1):
            raise DataError(
                f"the file {path} begins with {start!r} and a header of the shape {shape}, "
                "expected an IDX file of bytes whose header gives its size."
            )
    return np.frombuffer(content, np.uint8).reshape(shape)
