"""Tiny data sets in the original formats, and catalogues with their checksums."""

import contextlib
import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import pickle
import pickletools
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from onebasin.data import File, Form, Source
from onebasin.data.catalogue import CATALOGUE

CHANCE = np.random.default_rng(0)


def bytes_of(*shape: int, below: int = 256) -> np.ndarray:
    return CHANCE.integers(0, below, shape).astype(np.uint8)


def idx(array: np.ndarray) -> bytes:
    sizes = np.array(array.shape, ">i4").tobytes()
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def mnist(train: int = 30, test: int = 10) -> dict[str, bytes]:
    return {
        f"{part}-{what}-ubyte.gz": idx(array)
        for part, count in (("train", train), ("t10k", test))
        for what, array in (
            ("images-idx3", bytes_of(count, 28, 28)),
            ("labels-idx1", bytes_of(count, below=10)),
        )
    }


def batch(labels: str, count: int, classes: int) -> tuple[dict[str, Any], bytes]:
    content = {
        "data": bytes_of(count, 3072),
        labels: bytes_of(count, below=classes).tolist(),
        "filenames": ["a.png"] * count,
    }
    return content, as_python_2(pickle.dumps(content, 3))


def as_python_2(content: bytes) -> bytes:
    """A pickle with the strings and module names of old, as the published files have them."""
    old = {"BINBYTES": b"T", "SHORT_BINBYTES": b"U"}
    changed = bytearray(content)
    for operation, _, place in pickletools.genops(content):
        if operation.name in old and place is not None:
            changed[place : place + 1] = old[operation.name]
    return bytes(changed).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def tar(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def jpeg(value: int, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    colour: Any = value if mode == "L" else (value, 0, 0)
    Image.new(mode, (64, 64), colour).save(stream, "JPEG")
    return stream.getvalue()


def tiny_imagenet(train: bool) -> bytes:
    stream, folder = io.BytesIO(), "tiny-imagenet-200/"
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(f"{folder}wnids.txt", "n01\nn02\n")
        rows = "val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n"
        archive.writestr(f"{folder}val/val_annotations.txt", rows)
        archive.writestr(f"{folder}val/images/val_0.JPEG", jpeg(200))
        archive.writestr(f"{folder}val/images/val_1.JPEG", jpeg(100, "L"))
        for name in ("n01", "n02") if train else ():
            archive.writestr(f"{folder}train/{name}/images/{name}_0.JPEG", jpeg(50))
    return stream.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address under which the files of a folder can be downloaded."""
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def catalogue(
    name: str, files: dict[str, bytes], address: str = "", splits: str = ""
) -> dict[str, Source]:
    """The catalogue with checksums (and addresses) of other files for one data set."""

    def file(old: File) -> File:
        if old.name not in files:
            return old
        method = old.checksum.partition(":")[0]
        checksum = f"{method}:{hashlib.new(method, files[old.name]).hexdigest()}" if method else ""
        urls = (f"{address}{old.name}",) if address and old.urls else old.urls
        return File(old.name, checksum, len(files[old.name]), urls)

    def form(old: Form) -> Form:
        read: Any = old.read
        if isinstance(read, functools.partial) and "members" in read.keywords:
            md5s = {
                member: hashlib.md5(files[member.rpartition("/")[2]]).hexdigest()
                for member in read.keywords["members"]
                if member.rpartition("/")[2] in files
            }
            read = functools.partial(read, members=md5s)
        if isinstance(read, functools.partial) and "splits_sha256" in read.keywords and splits:
            read = functools.partial(read, splits_sha256=splits)
        return dataclasses.replace(old, files=tuple(map(file, old.files)), read=read)

    source = CATALOGUE[name]
    made = dataclasses.replace(source, forms=tuple(map(form, source.forms)))
    return {**CATALOGUE, name: made}
