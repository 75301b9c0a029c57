"""Data sets without checksums, by a catalogue of one's own."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import io
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from abuse.readers.reader import Reader, always, never
from onebasin import data
from onebasin.data.catalogue import CATALOGUE

Files = dict[str, bytes]


def _bytes(*shape: int, below: int = 256) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, below, shape).astype(np.uint8)


def mnist() -> Files:
    found = {}
    for part, count in (("train", 30), ("t10k", 10)):
        for what, array in (
            ("images-idx3", _bytes(count, 28, 28)),
            ("labels-idx1", _bytes(count, below=10)),
        ):
            sizes = np.array(array.shape, ">i4").tobytes()
            content = bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()
            found[f"mnist/{part}-{what}-ubyte.gz"] = gzip.compress(content, mtime=0)
    return found


def _batch(labels: str, count: int) -> bytes:
    content = {"data": _bytes(count, 3072), labels: _bytes(count, below=10).tolist()}
    pickled = pickle.dumps({**content, "filenames": ["a.png"] * count}, 3)
    # Names as the published files have them; their bytes are strings there.
    return pickled.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def cifar_folder() -> Files:
    return {f"cifar-100-python/{n}": _batch("fine_labels", 6) for n in ("train", "test")}


def cifar_archive() -> Files:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in cifar_folder().items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return {"cifar-100-python.tar.gz": stream.getvalue()}


def svhn_mat() -> Files:
    from scipy.io import savemat

    stream = io.BytesIO()
    labels = _bytes(5, 1, below=10) + np.uint8(1)
    savemat(stream, {"X": _bytes(32, 32, 3, 5), "y": labels}, do_compression=True)
    return {"svhn/test_32x32.mat": stream.getvalue()}


def svhn_npz() -> Files:
    return {
        "svhn/svhn_test_first949.npz": _npz(images=_bytes(5, 32, 32, 3), labels=_bytes(5, below=10))
    }


def _npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def tiny() -> Files:
    from PIL import Image

    stream, folder = io.BytesIO(), "tiny-imagenet-200/"
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(f"{folder}wnids.txt", "n01\nn02\n")
        rows = [f"val_{k}.JPEG\tn0{1 + k % 2}\t0\t0\t9\t9\n" for k in range(4)]
        archive.writestr(f"{folder}val/val_annotations.txt", "".join(rows))
        for k in range(4):
            picture = io.BytesIO()
            Image.fromarray(_bytes(64, 64, 3)).save(picture, "JPEG")
            archive.writestr(f"{folder}val/images/val_{k}.JPEG", picture.getvalue())
    return {"tiny-imagenet-200-val-30-per-class.zip": stream.getvalue()}


def _table() -> Files:
    text = io.StringIO()
    np.savetxt(text, np.random.default_rng(0).normal(size=(20, 4)))
    return {
        "uci/yacht/data.txt": text.getvalue().encode(),
        "uci/yacht/index_features.txt": b"0\n1\n2\n",
        "uci/yacht/index_target.txt": b"3\n",
    }


def uci_packed() -> Files:
    return {**_table(), "uci/yacht/splits.npz": _npz(test=np.tile(np.arange(2), (20, 1)))}


def uci_listed() -> Files:
    rows = {f"uci/yacht/index_test_{k}.txt": f"{k}\n{(k + 7) % 20}\n".encode() for k in range(20)}
    return {**_table(), **rows}


def _catalogue(name: str, members: Files) -> dict[str, data.Source]:
    """The data set without checksums, but where one file has those of others."""

    def form(old: data.Form) -> data.Form:
        files = tuple(dataclasses.replace(f, checksum="", bytes=0, urls=()) for f in old.files)
        read: Any = old.read
        if isinstance(read, functools.partial) and "members" in read.keywords:
            md5s = {n: hashlib.md5(members[n]).hexdigest() for n in read.keywords["members"]}
            read = functools.partial(read, members=md5s)
        if isinstance(read, functools.partial) and "splits_sha256" in read.keywords:
            rows = [np.sort([k, (k + 7) % 20]).astype("<i4").tobytes() for k in range(20)]
            read = functools.partial(read, splits_sha256=hashlib.sha256(b"".join(rows)).hexdigest())
        return dataclasses.replace(old, files=files, read=read)

    source = CATALOGUE[name]
    return {name: dataclasses.replace(source, forms=tuple(map(form, source.forms)))}


def _reader(title: str, name: str, files: Callable[[], Files], weight: float) -> Reader:
    def make(folder: Path) -> None:
        for path, content in files().items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    def read(folder: Path) -> Any:
        members = cifar_folder() if name == "cifar100" else {}
        known = _catalogue(name, members)
        found = data.load(name, folder, normalise="none", download=False, catalogue=known)
        return [found.train, found.test]

    sealed = always if "archive" in title else never
    return Reader(f"data: {title}", make, read, sealed, weight=weight)


READERS = (
    _reader("idx", "mnist", mnist, 1.0),
    _reader("cifar folder", "cifar100", cifar_folder, 1.0),
    _reader("cifar archive", "cifar100", cifar_archive, 0.5),
    _reader("svhn mat", "svhn", svhn_mat, 1.0),
    _reader("svhn npz", "svhn", svhn_npz, 1.0),
    _reader("tiny-imagenet", "tiny-imagenet", tiny, 1.0),
    _reader("uci packed", "uci/yacht", uci_packed, 1.0),
    _reader("uci listed", "uci/yacht", uci_listed, 0.5),
)
