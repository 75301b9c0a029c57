"""A user's own network with data that do not fit it: what was got, and what to do."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from onebasin.cli import app

MODELS = """
import jax, jax.numpy as jnp, numpy as np
from onebasin.nets import Net, mlp

def flat(outputs, inputs=64):
    net = mlp((4,), outputs)

    def apply(params, x):
        return net.apply(params, x.reshape(len(x), inputs))

    return Net(lambda key, x: net.init(key, jnp.zeros((1, inputs))), apply)

def fits():
    return flat(10)

def of_four():
    return flat(10, 4), np.zeros((1, 4))

def few():
    return flat(3)

def sums():
    return Net(lambda key, x: {}, lambda params, x: x.sum())

def pairs():
    return Net(lambda key, x: {}, lambda params, x: (x, x))

def data():
    x = np.linspace(0, 1, 160).reshape(40, 4).astype("float32")
    y = np.arange(40) % 3
    return (x, y), (x, y)

def negative():
    (x, y), _ = data()
    return (x, y - 1), (x, y)

def one_hot():
    (x, y), _ = data()
    return (x, np.eye(3, dtype=int)[y]), (x, y)

def words():
    (x, y), _ = data()
    return (np.array(["a"] * 40), y), (x, y)

def ragged():
    (x, y), _ = data()
    return ([[1], [1, 2]], y), (x, y)

def none():
    (x, y), _ = data()
    return (x[:0], y[:0]), (x, y)

def numbers():
    return (1, 2), (3, 4)
"""

MISFITS = [
    ("of_four", None, r"made for \(n, 4\), does not take the inputs of digits, .*\(n, 8, 8, 1\)"),
    ("few", None, "digits has labels from 0 to 9, and .* tells the classes 0 to 2 apart"),
    ("sums", None, r"returned \(\) for 2 inputs, expected logits"),
    ("pairs", None, "returned a tuple of 2 .* expected logits"),
    ("fits", "data", r"does not take the inputs of own.py:data, of shape \(n, 4\)"),
    ("of_four", "negative", "labels from -1 to 1"),
    ("of_four", "one_hot", r"labels of shape \(40, 3\)"),
    ("of_four", "words", "inputs of shape .* type <U1, expected numbers"),
    ("of_four", "ragged", "expected arrays"),
    ("of_four", "none", "one example or more"),
    ("of_four", "numbers", "one example or more"),
]


@pytest.mark.parametrize("name", ["compact", "exploration", "variational"])
@pytest.mark.parametrize(("model", "data", "said"), MISFITS[:2])
def test_every_study_says_what_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, model: str, data: None, said: str
) -> None:
    refused(tmp_path, monkeypatch, name, model, data, said)


@pytest.mark.parametrize(("model", "data", "said"), MISFITS[2:])
def test_what_does_not_fit_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, data: str | None, said: str
) -> None:
    refused(tmp_path, monkeypatch, "compact", model, data, said)


def refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    model: str,
    data: str | None,
    said: str,
) -> None:
    monkeypatch.chdir(folder)
    (folder / "own.py").write_text(MODELS)
    own = ["--model", f"own.py:{model}", *(["--data", f"own.py:{data}"] if data else [])]
    stages = {"compact": "ensemble", "exploration": "target", "variational": "solutions"}
    arguments = ["study", name, "--out", "run", "--stages", stages[name], *own]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.search(said, last), last
    assert "fault of onebasin" not in done.stderr
