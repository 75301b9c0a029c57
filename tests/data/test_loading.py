"""Each original format, read from tiny files; what is wrong with a file is said."""

import gzip
import hashlib
import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data import making
from scipy.io import savemat

import onebasin as ob
from onebasin.data import DataError, cifar, load
from onebasin.data.catalogue import CATALOGUE


@pytest.fixture(autouse=True)
def _nothing_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ONEBASIN_DATA", raising=False)


def test_digits_are_embedded_and_always_the_same() -> None:
    digits, again = load("digits"), load("digits")
    assert digits.train is not None
    assert again.train is not None
    for part, other in ((digits.train, again.train), (digits.test, again.test)):
        assert all(map(np.array_equal, part, other))
        assert part[0].dtype == np.float32
        assert part[1].dtype == np.int32
        assert (part[0].min(), part[0].max()) == (0, 1)
        assert np.bincount(part[1]).min() > 0.07 * len(part[1])
    both = np.concatenate([digits.train[0], digits.test[0]]).reshape(1797, 64)
    assert len(np.unique(both, axis=0)) == 1797
    assert "divided by 16" in digits.description


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
def test_mnist(tmp_path: Path, folder: str) -> None:
    files = making.mnist()
    making.write(tmp_path / folder, files)
    found = load("mnist", tmp_path, catalogue=making.catalogue("mnist", files))
    assert repr(found) == ("Dataset(mnist: 30 train and 10 test, inputs (28, 28, 1), 10 classes)")
    assert found.train is not None
    assert 0.99 < found.train[0].max() <= 1
    raw = found.normalisation.undo(found.test[0])
    assert np.allclose(raw, np.round(raw), atol=1e-4)


def cifar10() -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    made = [making.batch("labels", 4, 10) for _ in names]
    return dict(zip(names, (pickled for _, pickled in made), strict=True)), [c for c, _ in made]


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_cifar10(tmp_path: Path, form: str) -> None:
    files, contents = cifar10()
    if form == "folder":
        making.write(tmp_path / "cifar-10-batches-py", files)
    else:
        packed = making.tar({f"cifar-10-batches-py/{name}": x for name, x in files.items()})
        files["cifar-10-python.tar.gz"] = packed
        making.write(tmp_path, {"cifar-10-python.tar.gz": packed})
    known = making.catalogue("cifar10", files)
    found = load("cifar10", tmp_path, catalogue=known, normalise="none")
    assert found.train is not None
    assert found.train[0].shape == (20, 32, 32, 3)
    first = contents[0]["data"][0].reshape(3, 32, 32)
    assert np.array_equal(found.train[0][0, 3, 5], first[:, 3, 5])
    assert found.test[1].tolist() == contents[-1]["labels"]
    standard = load("cifar10", tmp_path, catalogue=known)
    assert standard.train is not None
    assert np.allclose(standard.train[0].mean((0, 1, 2)), 0, atol=1e-5)
    assert np.allclose(standard.train[0].std((0, 1, 2)), 1, atol=1e-5)
    assert np.allclose(standard.normalisation.undo(standard.test[0]), found.test[0], atol=1e-3)


def test_cifar100_has_fine_labels(tmp_path: Path) -> None:
    made = {name: making.batch("fine_labels", 6, 100) for name in ("train", "test")}
    files = {name: pickled for name, (_, pickled) in made.items()}
    making.write(tmp_path / "cifar-100-python", files)
    found = load("cifar100", tmp_path, catalogue=making.catalogue("cifar100", files))
    assert found.test[1].tolist() == made["test"][0]["fine_labels"]


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("harm"),))


EVIL = [
    pickle.dumps({"data": Malicious()}, 2),
    pickle.dumps(Malicious(), 4),
    b"cos\nsystem\n(S'touch harm'\ntR.",
    b"cbuiltins\neval\n(S'1'\ntR.",
    b"cnumpy.core.multiarray\nset_string_function\n(tR.",
    pickle.dumps({"data": np.array([object()], dtype=object)}, 2),
]


@pytest.mark.parametrize("content", EVIL, ids=range(len(EVIL)))
def test_a_malicious_pickle_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"a pickle asks for .* do not trust it"):
        cifar.unpickle(content)
    # Even where someone vouches for it by checksum.
    files, _ = cifar10()
    files["data_batch_2"] = content
    making.write(tmp_path / "cifar-10-batches-py", files)
    with pytest.raises(DataError, match="do not trust it"):
        load("cifar10", tmp_path, catalogue=making.catalogue("cifar10", files))
    # And it is not even looked at where nobody does.
    with pytest.raises(DataError, match=r"data_batch_1 .* is not the one of cifar10: md5:"):
        load("cifar10", tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x02", pickle.dumps([1, 2]), pickle.dumps({})])
def test_a_pickle_that_is_no_batch(tmp_path: Path, content: bytes) -> None:
    files, _ = cifar10()
    files["test_batch"] = content
    making.write(tmp_path / "cifar-10-batches-py", files)
    with pytest.raises(DataError, match=r"a pickle cannot be read|expected a batch of CIFAR"):
        load("cifar10", tmp_path, catalogue=making.catalogue("cifar10", files))


def svhn() -> bytes:
    stream = io.BytesIO()
    labels = np.array([[10], [1], [9]], np.uint8)
    savemat(stream, {"X": making.bytes_of(32, 32, 3, 3), "y": labels})
    return stream.getvalue()


def test_svhn_with_and_without_its_training_part(tmp_path: Path) -> None:
    files = {f"{part}_32x32.mat": svhn() for part in ("train", "test")}
    making.write(tmp_path / "svhn", files)
    known = making.catalogue("svhn", files)
    found = load("svhn", tmp_path, catalogue=known)
    assert found.train is not None
    assert found.train[1].tolist() == [0, 1, 9]
    (tmp_path / "svhn" / "train_32x32.mat").unlink()
    found = load("svhn", tmp_path, catalogue=known)
    assert found.train is None
    assert "Read from the test file" in found.description
    with pytest.raises(DataError, match=r"svhn has no training part here: train_32x32\.mat is not"):
        found.part("train")
    with pytest.raises(DataError, match="no training part here"):
        found.validation()
    with pytest.raises(DataError, match="normalise='standard', and svhn has no training part"):
        load("svhn", tmp_path, catalogue=known, normalise="standard")


def test_normalised_as_another(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.savez(stream, images=making.bytes_of(5, 32, 32, 3), labels=making.bytes_of(5, below=10))
    files = {"svhn_test_first949.npz": stream.getvalue()}
    making.write(tmp_path, files)
    known = making.catalogue("svhn", files)
    other = ob.data.Normalisation(np.array([120.0, 110.0, 100.0]), np.array([60.0, 50.0, 40.0]))
    raw = load("svhn", tmp_path, catalogue=known, normalise="none").test[0]
    found = load("svhn", tmp_path, catalogue=known, normalise=other)
    assert np.allclose(found.test[0], (raw - other.shift) / other.scale, atol=1e-6)
    with pytest.raises(DataError, match="normalisation of 2 channels, expected 1 or 3"):
        load("svhn", tmp_path, catalogue=known, normalise=ob.data.Normalisation(np.ones(2)))


@pytest.mark.parametrize("train", [True, False])
def test_tiny_imagenet(tmp_path: Path, train: bool) -> None:
    name = "tiny-imagenet-200.zip" if train else "tiny-imagenet-200-val-30-per-class.zip"
    files = {name: making.tiny_imagenet(train)}
    making.write(tmp_path / "tiny-imagenet-200", files)
    found = load("tiny-imagenet", tmp_path, catalogue=making.catalogue("tiny-imagenet", files))
    assert found.test[1].tolist() == [1, 0]
    assert np.allclose(found.test[0][0, 9, 9], [200 / 255, 0, 0], atol=0.02)
    assert np.allclose(found.test[0][1, 9, 9], 100 / 255, atol=0.02)
    assert (found.train is not None) == train
    assert ("no training images" in found.without_train) == (not train)


@pytest.mark.parametrize("form", ["packed", "listed"])
def test_uci(tmp_path: Path, form: str) -> None:
    table = making.CHANCE.normal(size=(20, 4)) * [1, 10, 0, 5] + [0, 3, 7, 100]
    text, stream = io.StringIO(), io.BytesIO()
    np.savetxt(text, table)
    splits = np.sort(np.stack([making.CHANCE.permutation(20)[:2] for _ in range(20)]), 1)
    np.savez(stream, test=splits)
    files = {
        "data.txt": text.getvalue().encode(),
        "index_features.txt": b"0\n1\n2\n",
        "index_target.txt": b"3\n",
        "splits.npz": stream.getvalue(),
    }
    known = making.catalogue("uci/yacht", files)
    if form == "listed":
        del files["splits.npz"]
        files |= {
            f"index_test_{k}.txt": "\n".join(map(str, r)).encode() for k, r in enumerate(splits)
        }
        making.write(tmp_path / "UCI_Datasets/yacht/data", files)
        with pytest.raises(DataError, match="not those of the published splits"):
            load("uci/yacht", tmp_path, catalogue=known)
        sha256 = hashlib.sha256(splits.astype("<i4").tobytes()).hexdigest()
        known = making.catalogue("uci/yacht", files, splits=sha256)
    else:
        making.write(tmp_path / "uci/yacht", files)
    found = load("uci/yacht", tmp_path, split=3, catalogue=known)
    assert found.train is not None
    assert (found.num_classes, len(found.train[0]), len(found.test[0])) == (None, 18, 2)
    assert np.allclose(found.train[0].mean(0), 0, atol=1e-5)
    assert np.allclose(found.train[0].std(0), [1, 1, 0], atol=1e-5)
    assert np.allclose(
        found.normalisation.undo_targets(found.test[1]), table[splits[3]][:, 3:], rtol=1e-5
    )
    assert "Split 3 of 20" in found.description
    for bad in (-1, 20):
        with pytest.raises(DataError, match=f"got split={bad}, expected 0 to 19"):
            load("uci/yacht", tmp_path, split=bad, catalogue=known)
    with pytest.raises(DataError, match="no largest value"):
        load("uci/yacht", tmp_path, catalogue=known, normalise="unit")


def test_subsets_and_validation() -> None:
    digits = load("digits")
    some, again = (digits.subset(train=50, test=20, seed=3) for _ in range(2))
    assert repr(some).startswith("Dataset(digits: 50 train and 20 test")
    assert some.train is not None
    assert again.train is not None
    assert np.array_equal(some.train[0], again.train[0])
    held = digits.validation(0.25, seed=1)
    assert digits.train is not None
    assert held.train is not None
    joined = np.concatenate([held.train[0], held.test[0]]).reshape(-1, 64)
    assert np.array_equal(
        np.unique(joined, axis=0), np.unique(digits.train[0].reshape(-1, 64), axis=0)
    )
    with pytest.raises(DataError, match="got train=5000, expected 1 to 1437"):
        digits.subset(train=5000)
    with pytest.raises(DataError, match=r"got fraction=0\.0"):
        digits.validation(0.0)
    with pytest.raises(DataError, match="expected 'train' or 'test'"):
        digits.part("val")


BAD_NAMES = [("minst", "mnist"), ("cifar-10", "cifar10"), ("uci/wine", "uci/")]


@pytest.mark.parametrize(("name", "nearest"), BAD_NAMES)
def test_an_unknown_name_lists_the_known_and_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(
        DataError, match=f"got the data set '{name}'.*did you mean '{nearest}"
    ) as caught:
        load(name)
    assert all(known in str(caught.value) for known in CATALOGUE)


def test_what_is_nowhere_is_said_with_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEBASIN_DATA", str(tmp_path / "here"))
    with pytest.raises(DataError, match=r"files of mnist .*here.*cache.*ONEBASIN_DATA"):
        load("mnist", download=False)
    with pytest.raises(DataError, match="there is no such folder"):
        load("mnist", tmp_path / "none")
    with pytest.raises(DataError, match="got normalise='zscore'"):
        load("digits", normalise="zscore")


def test_folders_of_the_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = making.mnist()
    making.write(tmp_path / "second" / "mnist", files)
    known = making.catalogue("mnist", files)
    monkeypatch.setenv("ONEBASIN_DATA", f"{tmp_path / 'first'}{os.pathsep}{tmp_path / 'second'}")
    assert len(load("mnist", catalogue=known).test[0]) == 10


BROKEN: list[tuple[str, bytes, str]] = [
    ("mnist/t10k-labels-idx1-ubyte.gz", b"no gzip", "is not a gzip file"),
    ("mnist/t10k-labels-idx1-ubyte.gz", making.idx(np.zeros(3, np.uint8))[:-9], "was cut off"),
    (
        "mnist/t10k-labels-idx1-ubyte.gz",
        gzip.compress(b"\0\0\x08\1\0\0\0\5ab"),
        "an IDX file",
    ),
    ("mnist/t10k-labels-idx1-ubyte.gz", gzip.compress(b""), "an IDX file"),
    ("mnist/t10k-labels-idx1-ubyte.gz", making.idx(np.full(10, 77, np.uint8)), "labels from 77"),
]


@pytest.mark.parametrize("case", range(len(BROKEN)))
def test_a_file_of_another_format_is_named(tmp_path: Path, case: int) -> None:
    name, content, said = BROKEN[case]
    files = making.mnist()
    files[Path(name).name] = content
    making.write(tmp_path / "mnist", files)
    with pytest.raises(DataError, match=said):
        load("mnist", tmp_path, catalogue=making.catalogue("mnist", files))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cifar10", "cifar-10-python.tar.gz"),
        ("svhn", "test_32x32.mat"),
        ("tiny-imagenet", "tiny-imagenet-200.zip"),
    ],
)
def test_garbage_is_named(tmp_path: Path, name: str, file: str) -> None:
    files = {file: b"garbage" * 50}
    making.write(tmp_path, files)
    with pytest.raises(DataError, match=file):
        load(name, tmp_path, catalogue=making.catalogue(name, files))


def test_a_corrupted_file_says_what_was_expected_and_what_to_do(tmp_path: Path) -> None:
    files = making.mnist()
    known = making.catalogue("mnist", files)
    making.write(tmp_path / "mnist", files)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load("mnist", tmp_path, catalogue=known)
    (file, *_) = known["mnist"].forms[0].files
    for said in (str(path), file.checksum, "onebasin data get mnist", f"{len(content):,} bytes"):
        assert said in str(caught.value)
