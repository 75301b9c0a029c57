"""A user's model is told by all files that it is made of."""

from pathlib import Path

import jax.numpy as jnp
import pytest

from onebasin._factory import load_model
from onebasin.studies.config import StudyConfig
from onebasin.studies.networks import NetConfig, load_setting
from onebasin.studies.sources import source_files, source_hash

FILES = {
    "models.py": "import numpy\nimport helper\nfrom package import layers as own\nimport missing\n",
    "helper.py": "import importlib\ndeep = importlib.import_module('late')\n",
    "late.py": "import models\n",
    "package/__init__.py": "from .init import *\n",
    "package/init.py": "",
    "package/layers.py": "from . import norms\nfrom .blocks.first import block\n",
    "package/norms.py": "def f():\n    from .init import g\n",
    "package/blocks/first.py": "from ... import far\nfrom ..norms import f\n",
    "package/unused.py": "",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_imports_are_followed_from_file_to_file(folder: Path) -> None:
    found = {str(path.relative_to(folder)) for path in source_files(Path("models.py")).values()}
    assert found == FILES.keys() - {"package/unused.py"}


@pytest.mark.parametrize("name", ["models.py:factory", "models:factory"])
def test_a_change_in_any_of_them_is_noticed(folder: Path, name: str) -> None:
    seen = {source_hash(name)}
    used = sorted(FILES.keys() - {"package/unused.py"})
    for file in used:
        (folder / file).write_text(FILES[file] + "changed = True\n")
        seen.add(source_hash(name))
    assert len(seen) == len(used) + 1
    (folder / "package/unused.py").write_text("changed = True\n")
    assert source_hash(name) in seen


def test_files_of_another_folder_are_the_same_model(tmp_path: Path) -> None:
    found = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "own.py").write_text("import beside")
        (tmp_path / place / "beside.py").write_text("x = 1")
        found.append(source_hash(f"{tmp_path / place / 'own.py'}:factory"))
    assert found[0] == found[1] != ""


def test_what_cannot_be_found_or_read_has_no_hash_of_its_own(tmp_path: Path) -> None:
    assert source_hash("there_is_no_such_module:factory") == ""
    (tmp_path / "own.py").write_text("def (")
    assert len(source_hash(f"{tmp_path / 'own.py'}:factory")) == 64


OWN = """
import jax.numpy as jnp
import beside

def factory():
    return (lambda key, x: {"w": jnp.ones((64, 10))}), (lambda p, x: beside.scaled(p["w"], x))

def model():
    return (*factory(), ), jnp.ones((1, 64))
"""


def test_in_one_process_a_changed_helper_is_imported_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_of_sources.py").write_text(OWN.replace("beside", "beside_own"))
    found = []
    for scale in ("1.0", "10.0"):
        (tmp_path / "beside_own.py").write_text(
            f"def scaled(w, x):\n    return {scale} * (x.reshape(len(x), -1) @ w)\n"
        )
        for name in ("own_of_sources.py", "own_of_sources"):
            config = StudyConfig(model=f"{name}:factory", train_size=5)
            net = load_setting(NetConfig(), config)[1].net
            again = load_setting(NetConfig(), config)[1].net
            assert again is net
            model = load_model(f"{name}:model")
            for apply in (net.apply, model.apply_fn):
                found.append(float(apply({"w": jnp.ones((1, 1))}, jnp.ones((1, 1)))[0, 0]))
    assert found == [1.0] * 4 + [10.0] * 4


def test_modules_of_two_packages_that_are_called_alike_both_count(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import pack_a\nimport pack_b\n")
    for name in ("pack_a", "pack_b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("from .layers import f\n")
        (tmp_path / name / "layers.py").write_text("f = 1\n")
    seen = {source_hash(f"{tmp_path / 'model.py'}:factory")}
    for name in ("pack_a", "pack_b"):
        (tmp_path / name / "layers.py").write_text("f = 2\n")
        seen.add(source_hash(f"{tmp_path / 'model.py'}:factory"))
    assert len(seen) == 3
