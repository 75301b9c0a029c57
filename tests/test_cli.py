import json
import math
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import jax.numpy as jnp
import pytest
from typer.testing import CliRunner, Result

import onebasin as ob
from onebasin import _picture, cli

ROOT = Path(__file__).parents[1]
EXAMPLE = f"{ROOT / 'examples' / 'own_model.py'}:factory"

MODELS = """
import jax, jax.numpy as jnp

def fails():
    return (lambda p, x: x @ p["no_such"]), {"w": jnp.ones((3, 2))}, jnp.ones((1, 3))

def text():
    return (lambda p, x: x @ p["w"]), {"w": jnp.ones((3, 2)), "name": "net"}, jnp.ones((1, 3))

def undefined():
    return (lambda p, x: x @ p["w"] + jnp.nan), {"w": jnp.ones((3, 2))}, jnp.ones((1, 3))
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, list(arguments))


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout == f"onebasin {version('onebasin')}\n"


def test_python_runs_the_package_as_the_command() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "onebasin", "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout == f"onebasin {version('onebasin')}\n"


@pytest.mark.parametrize("command", ["symmetries", "demo", "study"])
def test_help_has_an_example(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    # Some environment variables make Rich colour its output even here.
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
    assert f"Example: onebasin {command}" in " ".join(plain.split())


@pytest.mark.parametrize(
    ("arguments", "example"), [((), "onebasin demo"), (("data",), "onebasin data get mnist")]
)
def test_help_on_several_commands_has_an_example(arguments: tuple[str, ...], example: str) -> None:
    result = invoke(*arguments, "--help")
    assert result.exit_code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
    assert f"Example: {example}" in " ".join(plain.split())


def test_symmetries_of_the_example() -> None:
    result = invoke("symmetries", EXAMPLE)
    assert result.exit_code == 0, result.stderr
    assert "permutation" in result.stdout
    assert "Verified" in result.stdout


def test_symmetries_as_json() -> None:
    result = invoke("symmetries", EXAMPLE, "--json", "--seed", "1")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)


MISTAKES = [
    ("no_such_module:factory", "no_such_module"),
    ("models.py:none", "none"),
    ("models.py:fails", "no_such"),
    ("models.py:text", "name"),
    ("models.py:undefined", "NaN"),
]


@pytest.mark.parametrize(("model", "mentioned"), MISTAKES, ids=[name for name, _ in MISTAKES])
def test_a_mistake_exits_with_2_and_one_sentence(
    model: str, mentioned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    result = invoke("symmetries", model)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("onebasin: ")
    assert mentioned in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_fault_of_ours_is_not_blamed_on_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(ob, "discover", broken)
    result = invoke("symmetries", EXAMPLE)
    assert result.exit_code == 1
    assert "KeyError: 'a bug'" in result.stderr
    assert "fault of onebasin" in result.stderr


def test_demo_refuses_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = invoke("demo", "--out", str(tmp_path / "file" / "inside"))
    assert result.exit_code == 2
    assert "name a folder that you may write to" in result.stderr


def test_the_picture_shows_every_copy() -> None:
    params = {
        "incoming": jnp.asarray([[2.5, 0.7]], jnp.float32),
        "outgoing": jnp.asarray([[1.5], [-1.2]], jnp.float32),
    }
    inputs = jnp.linspace(-1, 1, 5)[:, None]
    symmetry = ob.discover(_picture._tiny_apply, params, inputs)
    assert symmetry.log_copies() == pytest.approx(math.log(8))
    copies = _picture._all_copies(params, inputs)
    assert len(copies) == 8
    outputs = jnp.stack([_picture._tiny_apply(copy, inputs) for copy in copies])
    assert jnp.allclose(outputs, outputs[0], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--engine", "slurm"], "expected one of local, ray"),
        (["--address", "auto"], "for the engine 'local', expected it with 'ray'"),
    ],
)
def test_engines_that_cannot_be_are_refused(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    result = invoke("study", "exploration", "--out", str(tmp_path / "run"), *options)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
