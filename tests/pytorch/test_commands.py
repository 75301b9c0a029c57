"""The command line takes factories of PyTorch modules, and state dicts."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import onebasin as ob
from onebasin.cli.application import app
from onebasin.studies.setting import mlp_setting
from pytorch.modules import ResNet

MODELS = """
import numpy as np
import torch
from collections import UserDict
from pytorch.modules import ResNet
from pytorch.test_language import Text, ids

def text():
    return Text(), {"input_ids": ids()}

def tokens():
    return torch.nn.DataParallel(Text()), UserDict(input_ids=ids())

def factory():
    return ResNet().eval(), torch.randn(2, 1, 8, 8)

def training():
    return ResNet(), torch.randn(2, 1, 8, 8)

def loader():
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 1, 8, 8)).astype("f"), rng.integers(0, 10, 20)

def parts():
    return loader(), loader()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    for seed, name in enumerate(("a", "b")):
        torch.manual_seed(seed)
        state = ResNet().state_dict()
        save_file(state, tmp_path / f"{name}.safetensors")
        torch.save(state, tmp_path / f"{name}.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_symmetries(folder: Path) -> None:
    text = run("symmetries", "models.py:factory")
    assert "layer1.0.conv1.weight" in text
    assert "Verified" in text


@pytest.mark.parametrize("factory", ["text", "tokens"])
def test_symmetries_of_a_language_model(folder: Path, factory: str) -> None:
    assert "inner.weight" in run("symmetries", f"models.py:{factory}")


def test_a_module_in_train_mode(folder: Path) -> None:
    done = CliRunner().invoke(app, ["symmetries", "models.py:training"])
    assert done.exit_code == 2
    assert "call module.eval() first" in done.output
    assert "Traceback" not in done.output


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_align_writes_a_state_dict(folder: Path, suffix: str) -> None:
    files = [f"{name}.{suffix}" for name in "ab"]
    options = ["--model", "models.py:factory", "--out", f"c.{suffix}", "--json"]
    found = json.loads(run("align", *files, *options))
    assert found["cost"] <= found["cost_before"]
    x = torch.randn(3, 1, 8, 8)
    before, after = ResNet().eval(), ResNet().eval()
    before.load_state_dict(load_file("a.safetensors"))
    load = load_file if suffix == "safetensors" else partial(torch.load, weights_only=True)
    after.load_state_dict(load(f"c.{suffix}"))
    with torch.no_grad():
        np.testing.assert_allclose(before(x), after(x), rtol=1e-3, atol=1e-4)


def test_barrier(folder: Path) -> None:
    options = ["--model", "models.py:factory", "--data", "models.py:loader", "--points", "3"]
    found = json.loads(run("barrier", "a.safetensors", "b.pt", *options, "--json"))
    assert len(found["t"]) == 3
    assert found["alignment"]["cost"] <= found["alignment"]["cost_before"]


def test_studies_take_modules(folder: Path) -> None:
    config = ob.studies.config.StudyConfig.model_construct(
        model="models.py:factory", data="models.py:parts", train_size=None, test_size=None
    )
    setting = mlp_setting(config, [4])
    assert setting.net.apply(setting.params(), setting.train[0]).shape == (20, 10)
    assert setting.symmetry.factors
