"""Files that someone else made, and vouches for by a catalogue of their own."""

import gzip
import io
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data import making
from PIL import Image
from scipy.io import savemat

from onebasin.data import DataError, cifar, load
from onebasin.data.idx import read_idx
from onebasin.data.mat import read_mat
from onebasin.data.reading import FREE, npz


@pytest.fixture(autouse=True)
def _nothing_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ONEBASIN_DATA", raising=False)


# The state of a type says that its eight bytes are an object, and the array that they point to one.
POINTER = (
    b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    b"(K\x01M\x00\x0c\x85cnumpy\ndtype\nU\x02V8K\x00K\x01\x87R"
    b"(K\x03U\x01|NU\x01f\x85}U\x01fcnumpy\ndtype\nU\x02O8K\x00K\x01\x87RK\x00\x86sK\x08K\x01K\x00tb"
    b"\x89T\x00\x60\x00\x00" + b"A" * 8 * 3072 + b"tbsU\x06labels]K\x01as."
)


def test_a_pickle_makes_no_pointers() -> None:
    script = (
        "import sys; from onebasin.data import DataError, cifar\n"
        "try: print(cifar.unpickle(sys.stdin.buffer.read())['data'][0])\n"
        "except DataError as error: print(error)"
    )
    # Followed, the pointer ends the process.
    done = subprocess.run([sys.executable, "-c", script], input=POINTER, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"asks for an array of type 'V8'" in done.stdout


PICKLES = {
    "a memo of two thousand million": b"N" + b"r\xff\xff\xff\x7f" * 2 + b"0",
    "a long string": b"X\xff\xff\xff\x7f",
    "a string of negative length": b"T\xff\xff\xff\xff.",
    "what is not there": b"\x80\x02h\x07.",
    "an instruction of another kind": b"\x80\x02(i__main__\nx\n.",
    "more than anybody needs": b"\x80\x02" + b"]0" * 2**20 + b"N.",
    "lists in lists": b"]q\x00" + b"(" + b"h\x00" * 9 + b"eq\x00" * 40 + b".",
    "a dictionary by lists": b"}]Ns.",
    "an array that is not filled": pickle.dumps(np.zeros(3, np.uint8), 2)[:60] + b".",
}


@pytest.mark.parametrize("content", PICKLES.values(), ids=PICKLES)
def test_a_pickle_of_another_kind(content: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(DataError):
        cifar.unpickle(content)
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_of_every_protocol(protocol: int) -> None:
    found = {"labels": [1, 2, 300, -1, 2**40], "name": "é", "more": (None, True, [])}
    assert cifar.unpickle(pickle.dumps(found, protocol)) == found


def gzipped(shape: tuple[int, ...], size: int) -> bytes:
    return gzip.compress(
        bytes([0, 0, 8, len(shape)]) + np.array(shape, ">i4").tobytes() + bytes(size)
    )


GZIPS = {
    "a header that promises more": gzipped((2**30, 2), 10),
    "a header without an end": gzip.compress(b"\0\0\x08\xff" + b"\xff" * 40),
    "negative sizes": gzip.compress(b"\0\0\x08\x02" + b"\xff" * 8 + b"x"),
    "more than its header says": gzipped((10,), 2 * FREE),
    "the bytes that it says, which are too many": gzipped((2 * FREE,), 2 * FREE),
}


@pytest.mark.parametrize("content", GZIPS.values(), ids=GZIPS)
def test_a_gzip_file_gives_what_its_header_says_and_no_more(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.gz"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"labels\.gz"):
        read_idx(path)
    assert tracemalloc.get_traced_memory()[1] < FREE
    tracemalloc.stop()


def test_an_archive_that_unpacks_to_far_more_than_its_size(tmp_path: Path) -> None:
    content = making.tar({"cifar-10-batches-py/other": bytes(2 * FREE)})
    making.write(tmp_path, {"cifar-10-python.tar.gz": content})
    known = making.catalogue("cifar10", {"cifar-10-python.tar.gz": content})
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz unpacks to .* do not trust it"):
        load("cifar10", tmp_path, catalogue=known)


def npz_bytes(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def with_npy(content: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("test.npy", content)
    return stream.getvalue()


def npy(shape: str, dtype: str = "<i8", rest: bytes = b"") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + rest


NPZS = {
    "no zip": b"nothing",
    "without the array": npz_bytes(other=np.zeros(3)),
    "objects": with_npy(npy("(1,)", "|O", pickle.dumps([3]))),
    "text": npz_bytes(test=np.array(["a"])),
    "a header that promises more": with_npy(npy("(1000000000000,)")),
    "a shape that is none": with_npy(npy("(-1, 'x')")),
    "a bomb": npz_bytes(test=np.zeros(2 * FREE, np.uint8)),
    "a method without bounds": with_npy(npy("(0,)"), zipfile.ZIP_LZMA),
    "no array": with_npy(b"\x93NUMPY"),
}


@pytest.mark.parametrize("content", NPZS.values(), ids=NPZS)
def test_an_npz_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "splits.npz"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"splits\.npz"):
        npz(path, "test")
    assert tracemalloc.get_traced_memory()[1] < FREE
    tracemalloc.stop()


def test_arrays_of_an_npz_file(tmp_path: Path) -> None:
    wanted = np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array(7, ">i2")
    np.savez(tmp_path / "a.npz", x=wanted[0], y=wanted[1])
    for got, want in zip(npz(tmp_path / "a.npz", "x", "y"), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype


@pytest.mark.parametrize("compressed", [True, False])
def test_arrays_of_a_matlab_file_are_as_scipy_writes_them(tmp_path: Path, compressed: bool) -> None:
    wanted = {
        "X": making.bytes_of(4, 3, 2, 5),
        "y": np.array([[10], [300]], np.uint16),
        "z": np.arange(3.0)[None],
        "n": np.array([[7]], np.uint8),
    }
    others = {"text": "abc", "cells": np.array([[1, "x"]], object), "complex": np.ones((1, 2)) * 1j}
    savemat(tmp_path / "a.mat", {**others, **wanted}, do_compression=compressed)
    for got, want in zip(read_mat(tmp_path / "a.mat", *wanted), wanted.values(), strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    with pytest.raises(DataError, match=r"a\.mat is not a MATLAB file of version 5 with complex"):
        read_mat(tmp_path / "a.mat", "complex")


def mat(element: bytes) -> bytes:
    return b" " * 124 + b"\0\1IM" + element


def packed(content: bytes) -> bytes:
    small = zlib.compress(content)
    return mat(b"\x0f\0\0\0" + len(small).to_bytes(4, "little") + small)


MATS = {
    "a tag that promises more": mat(b"\x0e\0\0\0\xff\xff\xff\x7f" + bytes(64)),
    "a packed tag that promises more": packed(b"\x0e\0\0\0\xff\xff\xff\x7f" + bytes(64)),
    "a packed bomb": packed(b"\x0e\0\0\0" + (2 * FREE).to_bytes(4, "little") + bytes(2 * FREE)),
    "more than the packed tag says": packed(b"\x0e\0\0\0\x08\0\0\0" + bytes(2 * FREE)),
    "nothing": mat(b""),
    "version 7.3": b"\x89HDF" + bytes(500),
}


@pytest.mark.parametrize("content", MATS.values(), ids=MATS)
def test_a_matlab_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.mat").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"a\.mat"):
        read_mat(tmp_path / "a.mat", "X", "y")
    assert tracemalloc.get_traced_memory()[1] < FREE
    tracemalloc.stop()


def picture(size: tuple[int, int], form: str = "JPEG") -> bytes:
    stream = io.BytesIO()
    Image.new("L", size).save(stream, form)
    return stream.getvalue()


def tiny(**changed: bytes) -> bytes:
    """The zip file of Tiny-ImageNet with other members."""
    stream, folder = io.BytesIO(), "tiny-imagenet-200/"
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        members = {
            "wnids.txt": b"n01\n",
            "val/val_annotations.txt": b"a.JPEG\tn01\n",
            "val/images/a.JPEG": picture((64, 64)),
        }
        for name, content in members.items():
            archive.writestr(folder + name, changed.get(name.rpartition("/")[2][:1], content))
    return stream.getvalue()


TINY = {
    "a large picture": tiny(a=picture((12000, 12000))),
    "a picture of another format": tiny(a=picture((64, 64), "PNG")),
    "a bomb": tiny(a=bytes(2 * FREE)),
    "a list that is a bomb": tiny(w=bytes(2 * FREE)),
    "bytes that are no text": tiny(w=b"\xff\xfe\x00"),
    "a line without a class": tiny(v=b"a.JPEG"),
    "a picture that is not there": tiny(v=b"b.JPEG\tn01\n"),
    "a class that is not there": tiny(v=b"a.JPEG\tn02\n"),
    "no pictures": tiny(v=b""),
}


@pytest.mark.parametrize("content", TINY.values(), ids=TINY)
def test_pictures_of_another_kind(tmp_path: Path, content: bytes) -> None:
    name = "tiny-imagenet-200-val-30-per-class.zip"
    making.write(tmp_path, {name: content})
    tracemalloc.start()
    with pytest.raises(DataError, match=r"tiny-imagenet"):
        load(
            "tiny-imagenet", tmp_path, catalogue=making.catalogue("tiny-imagenet", {name: content})
        )
    assert tracemalloc.get_traced_memory()[1] < FREE
    tracemalloc.stop()


def test_entries_that_share_their_bytes(tmp_path: Path) -> None:
    """Many pictures in the room of one."""
    name = "tiny-imagenet-200-val-30-per-class.zip"
    content = tiny()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.start_dir
        entries = archive.infolist()
    directory = content[start : content.rindex(b"PK\5\6")]
    count = 100
    end = content[content.rindex(b"PK\5\6") :]
    end = (
        end[:8]
        + (len(entries) * count).to_bytes(2, "little") * 2
        + (len(directory) * count).to_bytes(4, "little")
        + end[16:]
    )
    content = content[:start] + directory * count + end
    making.write(tmp_path, {name: content})
    with pytest.raises(DataError, match="overlap"):
        load(
            "tiny-imagenet", tmp_path, catalogue=making.catalogue("tiny-imagenet", {name: content})
        )


def table(**changed: bytes) -> dict[str, bytes]:
    numbers = np.arange(80).reshape(20, 4) ** 1.5
    text = io.StringIO()
    np.savetxt(text, numbers)
    return {
        "data.txt": text.getvalue().encode(),
        "index_features.txt": b"0\n1\n2\n",
        "index_target.txt": b"3\n",
        "splits.npz": npz_bytes(test=np.tile(np.arange(2), (20, 1))),
    } | changed


TABLES: dict[str, dict[str, bytes]] = {
    "no numbers": {"data.txt": b"a b c d\n"},
    "an empty table": {"data.txt": b"\n"},
    "not finite": {"data.txt": b"1 2 3 nan\n" * 20},
    "beyond what a number can be": {"data.txt": b"1 2 3 1e999\n" * 20},
    "another width": {"data.txt": b"1 2 3\n" * 20},
    "bytes that are no text": {"data.txt": b"\xff\xfe1 2 3 4\n"},
    "a column that is not there": {"index_features.txt": b"0\n1\n9\n"},
    "a column before the first": {"index_target.txt": b"-1\n"},
    "half a column": {"index_target.txt": b"2.5\n"},
    "a column twice": {"index_features.txt": b"0\n1\n1\n"},
    "no columns": {"index_features.txt": b""},
    "a row that is not there": {"splits.npz": npz_bytes(test=np.full((20, 1), 20))},
    "a row twice": {"splits.npz": npz_bytes(test=np.zeros((20, 2), int))},
    "half a row": {"splits.npz": npz_bytes(test=np.full((20, 1), 0.5))},
    "no splits": {"splits.npz": npz_bytes(test=np.zeros(20, int))},
    "fewer splits": {"splits.npz": npz_bytes(test=np.zeros((3, 1), int))},
    "nothing to train on": {"splits.npz": npz_bytes(test=np.tile(np.arange(20), (20, 1)))},
}


@pytest.mark.parametrize("changed", TABLES.values(), ids=TABLES)
def test_tables_of_another_kind(tmp_path: Path, changed: dict[str, bytes]) -> None:
    files = table(**changed)
    making.write(tmp_path / "uci/yacht", files)
    with pytest.raises(DataError, match=r"yacht"):
        load("uci/yacht", tmp_path, split=7, catalogue=making.catalogue("uci/yacht", files))


def svhn(images: np.ndarray, labels: np.ndarray) -> dict[str, bytes]:
    return {"svhn_test_first949.npz": npz_bytes(images=images, labels=labels)}


def two_batches(**changed: Any) -> dict[str, bytes]:
    made = {"data": making.bytes_of(4, 3072), "fine_labels": [1, 2, 3, 4]}
    good, bad = (
        making.as_python_2(pickle.dumps(content, 3)) for content in (made, {**made, **changed})
    )
    return {"train": good, "test": bad}


def mnist(**changed: np.ndarray) -> dict[str, bytes]:
    return making.mnist() | {f"{k}-ubyte.gz": making.idx(x) for k, x in changed.items()}


PIXELS = making.bytes_of(5, 32, 32, 3)
DIGITS = np.zeros(5, int)
UNEVEN: dict[str, tuple[str, Callable[[], dict[str, bytes]]]] = {
    "more pictures": (
        "mnist",
        lambda: mnist(**{"train-labels-idx1": making.bytes_of(29, below=9)}),
    ),
    "no pictures": ("mnist", lambda: mnist(**{"t10k-images-idx3": making.bytes_of(0, 28, 28)})),
    "other sizes": ("mnist", lambda: mnist(**{"t10k-images-idx3": making.bytes_of(10, 9, 9)})),
    "labels of two axes": (
        "mnist",
        lambda: mnist(**{"t10k-labels-idx1": making.bytes_of(10, 2, below=9)}),
    ),
    "fewer digits": ("svhn", lambda: svhn(PIXELS, DIGITS[:4])),
    "a class beyond 32 bits": ("svhn", lambda: svhn(PIXELS, DIGITS + 2**32 + 1)),
    "half a class": ("svhn", lambda: svhn(PIXELS, DIGITS + 0.5)),
    "no number": ("svhn", lambda: svhn(PIXELS, np.full(5, np.nan))),
    "other digits": ("svhn", lambda: svhn(PIXELS[:, :9], DIGITS)),
    "no bytes": ("svhn", lambda: svhn(PIXELS * 1.0, DIGITS)),
    "fewer labels": ("cifar100", lambda: two_batches(fine_labels=[1, 2, 3])),
    "a label beyond a byte": ("cifar100", lambda: two_batches(fine_labels=[1, 2, 3, 2**40])),
    "no list of labels": ("cifar100", lambda: two_batches(fine_labels="1234")),
    "pictures of another size": ("cifar100", lambda: two_batches(data=making.bytes_of(4, 3071))),
    "pictures as numbers": ("cifar100", lambda: two_batches(data=np.ones((4, 3072)))),
    "no pictures at all": ("cifar100", lambda: two_batches(data=[1, 2])),
}
FOLDERS = {"mnist": "mnist", "svhn": "svhn", "cifar100": "cifar-100-python"}


@pytest.mark.parametrize(("name", "made"), UNEVEN.values(), ids=UNEVEN)
def test_what_does_not_fit_together_is_refused(
    tmp_path: Path, name: str, made: Callable[[], dict[str, bytes]]
) -> None:
    files = made()
    making.write(tmp_path / FOLDERS[name], files)
    with pytest.raises(DataError, match=r"mnist|svhn|cifar"):
        load(name, tmp_path, catalogue=making.catalogue(name, files), normalise="unit")


def test_only_regular_files_are_read_and_links_of_the_user_followed(tmp_path: Path) -> None:
    files = making.mnist()
    making.write(tmp_path / "elsewhere", files)
    (tmp_path / "mnist").mkdir()
    for name in files:
        (tmp_path / "mnist" / name).symlink_to(tmp_path / "elsewhere" / name)
    known = making.catalogue("mnist", files)
    assert len(load("mnist", tmp_path, catalogue=known).test[0]) == 10
    link = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    for put in (lambda: os.mkfifo(link), lambda: link.symlink_to("/dev/zero")):
        link.unlink()
        put()
        with pytest.raises(DataError, match="mnist"):
            load("mnist", tmp_path, catalogue=known, download=False)
        with pytest.raises(DataError, match="is not a regular file"):
            read_idx(link)


def test_a_checksum_that_nobody_knows(tmp_path: Path) -> None:
    files = making.mnist()
    making.write(tmp_path / "mnist", files)
    known = making.catalogue("mnist", files)
    file = known["mnist"].forms[0].files[0]
    object.__setattr__(file, "checksum", "crc:12")
    with pytest.raises(DataError, match=r"got the checksum 'crc:12', expected md5"):
        load("mnist", tmp_path, catalogue=known)


def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such folder"):
        load("mnist", tmp_path / ("n" * 300))
    with pytest.raises(DataError, match="there is no such folder"):
        load("mnist", tmp_path / "a\0b")
