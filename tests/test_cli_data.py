"""`onebasin data` on the command line."""

import json
import re
from pathlib import Path

import pytest
from data import making
from typer.testing import CliRunner, Result

from onebasin import cli
from onebasin.data.catalogue import CATALOGUE


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["data", *arguments], env={"COLUMNS": "200"})


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a MNIST of ten digits, which the catalogue takes for the real one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ONEBASIN_DATA", raising=False)
    files = making.mnist()
    monkeypatch.setitem(CATALOGUE, "mnist", making.catalogue("mnist", files)["mnist"])
    return making.write(tmp_path / "root" / "mnist", files).parent


@pytest.mark.parametrize("command", ["list", "get", "check"])
def test_help_has_an_example(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
    assert f"Example: onebasin data {command}" in " ".join(plain.split())


def test_list_names_all(root: Path) -> None:
    result = invoke("list", "--root", str(root))
    assert result.exit_code == 0, result.stderr
    assert all(name in result.stdout for name in CATALOGUE)
    assert re.search(r"mnist +all .*LeCun", result.stdout)
    assert re.search(r"cifar10 +no +170\.5 MB", result.stdout)
    assert "LeCun" in result.stdout
    rows = json.loads(invoke("list", "--json").stdout)["data_sets"]
    assert {row["name"]: row["here"] for row in rows}["mnist"] is None
    rows = json.loads(invoke("list", "--json", "--root", str(root)).stdout)["data_sets"]
    found = {row["name"]: row for row in rows}
    assert found["mnist"]["complete"]
    assert found["mnist"]["folder"] == str(root / "mnist")
    assert found["cifar10"]["can_be_downloaded"]
    assert found["digits"]["here"] == "part of scikit-learn"


def test_get_what_is_here_and_what_is_not(root: Path) -> None:
    result = invoke("get", "mnist", "digits", "--root", str(root))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"mnist: already here, the four original files in {root / 'mnist'}",
        "digits: already here, part of scikit-learn",
    ]
    result = invoke("get", "mnist", "--root", str(root), "--json")
    assert json.loads(result.stdout)["data_sets"]["mnist"]["did"] == "already here"


def test_get_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = making.mnist()
    with making.served(making.write(tmp_path / "served", files)) as address:
        source = making.catalogue("mnist", files, address)["mnist"]
        monkeypatch.setitem(CATALOGUE, "mnist", source)
        result = invoke("get", "mnist")
        assert result.exit_code == 0, result.stderr
        assert "mnist: downloaded" in result.stdout
        assert "already here" in invoke("get", "mnist").stdout
        elsewhere = tmp_path / "made" / "elsewhere"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
        invoke("get", "mnist", "--root", str(elsewhere))
        assert {path.name for path in (elsewhere / "mnist").iterdir()} == set(files)


def test_a_folder_made_for_a_download_that_fails_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = making.catalogue("mnist", making.mnist(), "http://127.0.0.1:9/")["mnist"]
    monkeypatch.setitem(CATALOGUE, "mnist", source)
    result = invoke("get", "mnist", "--root", str(tmp_path / "made" / "elsewhere"))
    assert result.exit_code == 2
    assert "could not be downloaded" in result.stderr
    assert not (tmp_path / "made").exists()


def test_a_file_is_no_folder_to_download_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = invoke("get", "mnist", "--root", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "file, which cannot be made a folder" in result.stderr


def test_check(root: Path) -> None:
    result = invoke("check", "--root", str(root))
    assert result.exit_code == 0, result.stderr
    assert "mnist: good" in result.stdout
    path = root / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-1])
    result = invoke("check", "--root", str(root))
    assert result.exit_code == 2
    assert "mnist: damaged" in result.stdout
    assert str(path) in result.stderr
    result = invoke("check", "mnist", "--root", str(root), "--json")
    assert result.exit_code == 2
    assert not json.loads(result.stdout)["data_sets"]["mnist"]["ok"]


MISTAKES = [
    (("get", "minst"), "did you mean 'mnist'?"),
    (("check", "svhn"), "test_32x32.mat"),
    (("list", "--root", "no/such/folder"), "there is no such folder"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES, ids=[a[0] for a, _ in MISTAKES])
def test_a_mistake_exits_with_2_and_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("onebasin: ")
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
