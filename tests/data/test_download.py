"""Downloads from a server on this machine."""

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from data import making

from onebasin.data import DataError, load


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address under which its files can be downloaded."""
    folder = tmp_path / "served"
    folder.mkdir()
    with making.served(folder) as address:
        yield folder, address


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ONEBASIN_DATA", raising=False)
    return tmp_path / "cache" / "onebasin"


def test_a_data_set_is_downloaded_once(served: tuple[Path, str], cache: Path) -> None:
    folder, address = served
    files = making.mnist()
    making.write(folder, files)
    known = making.catalogue("mnist", files, address)
    assert len(load("mnist", catalogue=known).test[0]) == 10
    assert {path.name for path in (cache / "mnist").iterdir()} == set(files)
    for name in files:
        (folder / name).unlink()
    assert len(load("mnist", catalogue=known).test[0]) == 10


def test_a_corrupted_download_is_not_kept(served: tuple[Path, str], cache: Path) -> None:
    folder, address = served
    files = making.mnist()
    known = making.catalogue("mnist", files, address)
    making.write(folder, {**files, "t10k-labels-idx1-ubyte.gz": b"corrupted"})
    with pytest.raises(DataError) as caught:
        load("mnist", catalogue=known)
    expected = known["mnist"].forms[0].files[3].checksum
    got = hashlib.md5(b"corrupted").hexdigest()
    for said in ("t10k-labels-idx1-ubyte.gz", address, expected, got, "by hand"):
        assert said in str(caught.value)
    assert not (cache / "mnist" / "t10k-labels-idx1-ubyte.gz").exists()
    making.write(folder, files)
    assert len(load("mnist", catalogue=known).test[0]) == 10


def test_what_is_not_there_is_said(served: tuple[Path, str], cache: Path) -> None:
    _, address = served
    known = making.catalogue("mnist", making.mnist(), address)
    with pytest.raises(DataError, match=r"could not be downloaded .*404"):
        load("mnist", catalogue=known)
    nobody = making.catalogue("mnist", making.mnist(), "http://127.0.0.1:9/")
    with pytest.raises(DataError, match=r"could not be downloaded .*127\.0\.0\.1"):
        load("mnist", catalogue=nobody)


def test_a_failed_download_leaves_nothing(
    served: tuple[Path, str], cache: Path, tmp_path: Path
) -> None:
    folder, address = served
    files = making.mnist()
    known = making.catalogue("mnist", files, address)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="could not be downloaded"):
        load("mnist", catalogue=known)
    assert sorted(tmp_path.rglob("*")) == before
    # What came whole is kept, with its folder.
    name = "train-images-idx3-ubyte.gz"
    making.write(folder, {name: files[name]})
    with pytest.raises(DataError, match="could not be downloaded"):
        load("mnist", catalogue=known)
    assert {path.name for path in (cache / "mnist").iterdir()} == {name}


@pytest.mark.parametrize("url", ["no address", "ftp://127.0.0.1:9/x", "http://[::1"])
def test_an_address_that_is_none(cache: Path, url: str) -> None:
    known = making.catalogue("mnist", making.mnist(), url)
    with pytest.raises(DataError, match="could not be downloaded"):
        load("mnist", catalogue=known)


def test_a_place_that_cannot_be_written(cache: Path) -> None:
    cache.parent.mkdir()
    cache.touch()
    with pytest.raises(DataError, match=r"cannot be downloaded to .*may write to"):
        load("mnist", catalogue=making.catalogue("mnist", making.mnist(), "http://127.0.0.1:9/"))


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(cache: Path) -> None:
    (cache / "mnist").mkdir(parents=True)
    os.mkfifo(cache / "mnist" / "train-images-idx3-ubyte.gz")
    with pytest.raises(DataError, match="is not a regular file"):
        load("mnist", catalogue=making.catalogue("mnist", making.mnist(), "http://127.0.0.1:9/"))


def test_the_next_address_is_tried(served: tuple[Path, str], cache: Path) -> None:
    folder, address = served
    files = making.mnist()
    making.write(folder, files)
    known = making.catalogue("mnist", files, address)
    (form,) = known["mnist"].forms
    tried = tuple(
        dataclasses.replace(file, urls=(f"{address}none/{file.name}", *file.urls))
        for file in form.files
    )
    forms = (dataclasses.replace(form, files=tried),)
    known["mnist"] = dataclasses.replace(known["mnist"], forms=forms)
    assert len(load("mnist", catalogue=known).test[0]) == 10
