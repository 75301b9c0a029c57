"""The published files themselves, where they are at hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from onebasin.data import DataError, Dataset, load
from onebasin.data.catalogue import CATALOGUE

NEAR = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def _where_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if "ONEBASIN_DATA" not in os.environ:
        if not NEAR.is_dir():
            pytest.skip("set ONEBASIN_DATA to a folder with the published files")
        monkeypatch.setenv("ONEBASIN_DATA", str(NEAR))


def loaded(name: str) -> Dataset:
    try:
        return load(name, download=False)
    except DataError as error:
        if "are not in" not in str(error):
            raise
        pytest.skip(str(error))


COUNTS = {
    "mnist": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    "fashion-mnist": [1000] * 10,
    "tiny-imagenet": [30] * 200,
}


@pytest.mark.parametrize("name", COUNTS)
def test_images(name: str) -> None:
    found = loaded(name)
    counts = np.bincount(found.test[1])
    assert counts.tolist() == COUNTS[name] or counts.tolist() == [50] * 200
    assert found.test[0].dtype == np.float32
    assert (found.test[0].min(), found.test[0].max()) == (0, 1)


def test_the_first_digits_of_svhn() -> None:
    found = loaded("svhn")
    first = np.bincount(found.test[1][:949])
    assert first.tolist() == [65, 174, 155, 111, 90, 78, 82, 74, 58, 62]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mean"), [("cifar10", [125.3, 123.0, 113.9]), ("cifar100", [129.3, 124.1, 112.4])]
)
def test_cifar(name: str, mean: list[float]) -> None:
    found = loaded(name)
    assert found.train is not None
    assert len(set(np.bincount(found.train[1]))) == 1
    assert np.allclose(found.normalisation.shift, mean, atol=0.06)


@pytest.mark.parametrize("name", [name for name in CATALOGUE if name.startswith("uci/")])
def test_tables(name: str) -> None:
    found = loaded(name)
    assert found.train is not None
    rows = len(found.train[0]) + len(found.test[0])
    assert f"{rows:,} rows, {found.test[0].shape[1]} inputs" in found.description
    assert np.allclose(found.train[1].mean(), 0, atol=1e-4)
    assert len(found.test[0]) == pytest.approx(rows / 10, abs=1)
