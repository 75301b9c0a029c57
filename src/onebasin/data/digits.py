"""The digits of scikit-learn, which come with it."""

from __future__ import annotations

import numpy as np

from onebasin.data.source import Form, Paths, Raw, Source, images

TEST = 360


def read(_: Paths, __: int) -> Raw:
    """Images (example, 8, 8, 1); a fifth of them, drawn once and for all, to test on."""
    from sklearn.datasets import load_digits

    content = load_digits()
    pixels, labels = images(content.images), content.target
    order = np.random.default_rng(0).permutation(len(pixels))
    test, train = np.sort(order[:TEST]), np.sort(order[TEST:])
    return Raw((pixels[train], labels[train]), (pixels[test], labels[test]))


DIGITS = Source(
    name="digits",
    about="Handwritten digits, 8x8 grey: 1,437 to train on and 360 to test on.",
    forms=(Form("part of scikit-learn", ("",), (), read),),
    num_classes=10,
    normalise="unit",
    largest=16.0,
    licence="CC BY 4.0",
    citation="E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, 1998",
)
