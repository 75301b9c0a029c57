"""The IDX files of MNIST and its kin."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from onebasin.data.errors import DataError
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

    Raises:
        DataError: If it is something else.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"the file {path} is not a gzip file, or was cut off ({error}).") from error
    axes = content[3] if content[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * axes
    shape = np.frombuffer(content[4:start], ">i4").tolist()
    if not axes or len(content) - start != math.prod(shape):
        raise DataError(
            f"the file {path} has {len(content):,} bytes and begins with {content[:4]!r}, expected "
            "an IDX file of bytes whose header gives its size."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
