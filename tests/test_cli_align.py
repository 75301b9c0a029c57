"""`onebasin align` and `onebasin barrier`: from files to files, and what each mistake says."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner, Result

import onebasin as ob
from onebasin import cli
from onebasin.store import load_params, save_params

ROOT = Path(__file__).parents[1]

MODELS = """
import jax, jax.numpy as jnp, numpy as np

def apply(params, x, activation=jnp.tanh):
    for layer in (params["first"], params["second"]):
        x = activation(x @ layer["kernel"] + layer["bias"])
    return x @ params["head"]

def rectified(params, x):
    return apply(params, x, jax.nn.relu)

def init(seed, hidden=6):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    return {
        "first": {"kernel": draw(5, hidden), "bias": draw(hidden)},
        "second": {"kernel": draw(hidden, 4), "bias": draw(4)},
        "head": draw(4, 3),
    }

INPUTS = jnp.asarray(np.random.default_rng(9).normal(size=(40, 5)), jnp.float32)
LABELS = apply(init(1), INPUTS).argmax(-1)

def factory():
    print("a factory that talks")
    return apply, init(0), INPUTS

def relu():
    return rectified, init(0), INPUTS

def shapes():
    return apply, init(0), jax.ShapeDtypeStruct((2, 5), jnp.float32)

def wide():
    return apply, init(0, hidden=7), INPUTS

def scalar():
    return lambda params, x: apply(params, x).sum(-1), init(0), INPUTS

def fixed():
    def every_weight(params, x):
        return jnp.concatenate([w.ravel() for w in jax.tree.leaves(params)])
    return every_weight, init(0), INPUTS

def inputs():
    return INPUTS

def labelled():
    return INPUTS, LABELS

def splits():
    return (INPUTS, LABELS), (INPUTS[:7], LABELS[:7])

def number():
    return 3

def narrow():
    return INPUTS[:, :4], LABELS

def none():
    return INPUTS[:0], LABELS[:0]

def one_hot():
    return INPUTS, jax.nn.one_hot(LABELS, 3)

def many_classes():
    return INPUTS, jnp.arange(40)

def fails():
    raise OSError("no such data set")
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, list(arguments))


def close(a: Any, b: Any) -> bool:
    return all(
        np.allclose(x, y, atol=1e-5)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def parts(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with files: b, a = g.b, and draws that are all g.b for other elements g."""
    folder = tmp_path_factory.mktemp("networks")
    (folder / "user.py").write_text(MODELS)
    space: dict[str, Any] = {}
    exec(MODELS, space)
    b = space["init"](1)
    symmetry = ob.discover(space["apply"], b, space["INPUTS"])
    keys = jax.random.split(jax.random.key(0), 5)
    planted = [symmetry.act(symmetry.random(key), b) for key in keys[:4]]
    save_params(folder / "a.safetensors", planted[0])
    scaled = ob.discover(space["rectified"], b, space["INPUTS"])
    save_params(folder / "scaled.safetensors", scaled.act(scaled.random(keys[4]), b))
    save_params(folder / "b.safetensors", b)
    save_params(folder / "other.safetensors", space["init"](2))
    save_params(folder / "draws.safetensors", ob.Draws.stack(planted))
    bad = b | {"second": b["second"] | {"bias": b["second"]["bias"].at[1].set(jnp.nan)}}
    save_params(folder / "nan.safetensors", bad)
    save_params(folder / "nans.safetensors", ob.Draws.stack([b, bad]))
    empty = jax.tree.map(lambda x: np.zeros((0, *x.shape), np.float32), b)
    save_params(folder / "empty.safetensors", empty)
    (folder / "text.safetensors").write_text("not a checkpoint")
    (folder / "folder").mkdir()
    return folder, b


@pytest.fixture(autouse=True)
def b(made: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The reference network; the test runs in the folder of the files."""
    monkeypatch.chdir(made[0])
    monkeypatch.delitem(sys.modules, "user", raising=False)
    return made[1]


@pytest.mark.parametrize("command", ["align", "barrier"])
def test_help_has_an_example(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    plain = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", result.stdout).split())
    assert f"Example: onebasin {command} onebasin-demo/a.safetensors" in plain


def test_a_planted_element_is_undone(b: Any) -> None:
    command = "align a.safetensors b.safetensors --model user:factory --out c.safetensors"
    result = invoke(*command.split())
    assert result.exit_code == 0, result.stderr
    assert close(load_params("c.safetensors", b), b)
    assert "weights: " in result.stdout
    assert "least margin" in result.stdout
    assert result.stdout.endswith("Wrote c.safetensors.\n")

    found = parts(invoke(*command.split(), "--json", "--restarts", "2", "--seed", "1"))
    assert found["cost"] < 1e-6 * found["cost_before"]
    assert found["num_transpositions"] == sum(found["transpositions"].values()) > 0
    assert [len(margin) for margin in found["margin"].values()] == [6, 4]
    assert (found["moved"], found["reference"]) == ("a.safetensors", "b.safetensors")


@pytest.mark.parametrize("moved", ["a.safetensors", "draws.safetensors"])
def test_without_a_file_for_it_nothing_is_written(moved: str) -> None:
    command = f"align {moved} b.safetensors --model user:factory"
    before = sorted(Path().rglob("*"))
    result = invoke(*command.split())
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[-1] == (
        "Nothing was written: --out FILE keeps what was moved."
    )
    found = parts(invoke(*command.split(), "--json"))
    assert found["out"] is None
    assert found["cost_name"] == "weights"
    assert [path for path in sorted(Path().rglob("*")) if path.suffix != ".pyc"] == [
        path for path in before if path.suffix != ".pyc"
    ]


def test_planted_scales_are_undone(b: Any) -> None:
    command = "align scaled.safetensors b.safetensors --model user:relu --out c.safetensors"
    assert invoke(*command.split()).exit_code == 0
    assert close(load_params("c.safetensors", b), b)


@pytest.mark.parametrize("loader", ["inputs", "splits"])
def test_a_cost_on_data(b: Any, loader: str) -> None:
    command = "align a.safetensors b.safetensors --model user.py:shapes --out c.safetensors"
    options = f"--cost contributions --data user.py:{loader} --json"
    found = parts(invoke(*command.split(), *options.split()))
    assert found["cost_name"] == "contributions"
    assert close(load_params("c.safetensors", b), b)


def test_inputs_of_the_factory_come_with_a_warning(b: Any) -> None:
    command = "align a.safetensors b.safetensors --model user:factory --out c.safetensors"
    result = invoke(*command.split(), "--cost", "activations")
    assert result.exit_code == 0, result.stderr
    assert "warning: the cost 'activations' looks at the 40 inputs" in result.stderr
    assert close(load_params("c.safetensors", b), b)


def test_scalings_can_be_left(b: Any) -> None:
    command = "align other.safetensors b.safetensors --model user:relu --out c.safetensors"
    result = invoke(*command.split(), "--scaling", "none", "--data", "user:inputs")
    assert result.exit_code == 0, result.stderr
    assert "warning: the cost 'weights' does not look at --data" in result.stderr
    before, after = (load_params(f"{name}.safetensors", b)["head"] for name in ("other", "c"))
    assert jnp.array_equal(jnp.sort(before, axis=0), jnp.sort(after, axis=0))


def test_a_population_is_aligned_to_a_network(b: Any) -> None:
    command = "align draws.safetensors b.safetensors --model user:factory --out c.safetensors"
    result = invoke(*command.split())
    assert result.exit_code == 0, result.stderr
    assert "4 draws aligned by weights" in result.stdout
    draws = load_params("c.safetensors", b)
    assert len(draws) == 4
    assert all(close(draw, b) for draw in draws)


def test_a_population_is_aligned_in_tasks(b: Any) -> None:
    folder = Path("in-tasks")
    folder.mkdir()
    command = f"align draws.safetensors b.safetensors --model user:factory --out {folder}/c --json"
    plain = parts(invoke(*command.split()))
    expected = load_params(folder / "c", b)
    found = parts(invoke(*command.split(), "--engine", "local"))
    assert found["moved_in_round"] == plain["moved_in_round"]
    draws = load_params(folder / "c", b)
    assert all(close(*pair) for pair in zip(draws, expected, strict=True))
    assert invoke(*f"{ALIGN} --engine local".split()).exit_code == 2
    assert [path.name for path in folder.iterdir()] == ["c"]
    assert not list(Path().glob(".*.tasks"))


def test_a_population_is_aligned_to_its_mean(b: Any) -> None:
    command = "align draws.safetensors --model user:factory --out c.safetensors --json"
    found = parts(invoke(*command.split()))
    assert (found["draws"], found["reference"]) == (4, "mean")
    assert found["history"][-1] < 1e-6
    draws = load_params("c.safetensors", b)
    assert all(close(draw, draws[0]) for draw in draws)


def test_half_precision_and_dots_are_read(b: Any) -> None:
    halved = {
        "first.kernel": b["first"]["kernel"],
        "first.bias": b["first"]["bias"],
        "second.kernel": b["second"]["kernel"],
        "second.bias": b["second"]["bias"],
        "head": b["head"],
    }
    save_params("half.safetensors", jax.tree.map(lambda x: x.astype(jnp.bfloat16), halved))
    command = "align half.safetensors b.safetensors --model user:factory --out c.safetensors"
    assert invoke(*command.split()).exit_code == 0
    assert load_params("c.safetensors", b)["head"].dtype == jnp.float32


def test_a_barrier_of_symmetry_alone_goes_away() -> None:
    command = "barrier a.safetensors b.safetensors --model user:factory --data user:splits"
    found = parts(invoke(*command.split(), "--json", "--points", "5"))
    names = {"train loss", "train error", "test loss", "test error"}
    assert found["t"] == [0, 0.25, 0.5, 0.75, 1]
    assert set(found["before"]["curve"]) == set(found["before"]["height"]) == names
    assert found["before"]["height"]["train loss"] > 0.01
    assert found["after"]["height"]["train loss"] < 1e-4
    ends = [found[when]["curve"]["test loss"] for when in ("before", "after")]
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-4)
    assert found["alignment"]["cost"] < 1e-6


def test_the_barrier_is_a_table() -> None:
    command = "barrier a.safetensors b.safetensors --model user:factory --points 3"
    result = invoke(*command.split(), "--data", "user:splits")
    assert result.exit_code == 0, result.stderr
    talk, when, where, what, *rows, heights, calibrated = result.stdout.splitlines()
    assert talk == "a factory that talks"
    assert when.split() == ["before", "alignment", "after", "alignment"]
    assert where.split() == ["train", "test"] * 2
    assert what.split() == ["t", *["loss", "error"] * 4]
    assert [row.split()[0] for row in rows] == ["0.00", "0.50", "1.00"]
    assert heights.split()[0] == "barrier"
    assert calibrated.split()[0] == "calib."
    assert len(calibrated.split()) == 5
    assert {len(row) for row in rows} == {len(what)}
    assert len(what) < 80

    result = invoke(*command.split(), "--data", "user:labelled", "--no-align")
    assert result.stdout.splitlines()[1].split() == ["t", "loss", "error"]


def test_no_alignment_leaves_no_certificate() -> None:
    command = "barrier a.safetensors b.safetensors --model user:factory --data user:labelled"
    found = parts(invoke(*command.split(), "--no-align", "--json"))
    assert found["alignment"] is None
    assert "after" not in found
    assert len(found["before"]["curve"]["loss"]) == 11


ALIGN = "align a.safetensors b.safetensors --model user:factory --out c.safetensors"
BARRIER = "barrier a.safetensors b.safetensors --model user:factory --data user:labelled"
MISTAKES = [
    (ALIGN.replace("a.s", "absent.s"), "there is no file absent.safetensors: check the path."),
    (ALIGN.replace("b.s", "absent.s"), "there is no file absent.safetensors: check the path."),
    (ALIGN.replace("a.s", "text.s"), "the file text.safetensors (16 bytes) is not a safetensors"),
    (
        ALIGN.replace("factory", "wide"),
        "the file a.safetensors has the tensor 'first/bias' of shap",
    ),
    (ALIGN.replace("user:factory", "own:factory"), "got the module 'own', and there is none in"),
    (ALIGN.replace("factory", "factoy"), "the nearest is 'factory'"),
    (ALIGN.replace("factory", "number"), "returned an int, expected (apply_fn, params, inputs)"),
    (ALIGN.replace("factory", "fixed"), "no weight change leaves the function of user:fixed alone"),
    (ALIGN.replace("a.s", "nan.s"), "file nan.safetensors holds 1 NaN or infinite values in 'seco"),
    (ALIGN.replace("b.s", "nan.s"), "file nan.safetensors holds 1 NaN or infinite values in 'seco"),
    (ALIGN.replace("a.s", "nans.s"), "file nans.safetensors holds 1 NaN or infinite values in 'se"),
    (ALIGN.replace("a.s", "empty.s"), "the file empty.safetensors holds an empty population"),
    (ALIGN.replace("b.s", "draws.s"), "holds 4 stacked draws, and the reference is one network"),
    (ALIGN.replace(" b.safetensors", ""), "holds one network and there is no reference"),
    (ALIGN.replace("c.s", "absent/c.s"), "got --out absent/c.safetensors, and there is no folder"),
    (ALIGN.replace("c.safetensors", "folder"), "got --out folder, which is a folder"),
    (ALIGN.replace("c.s", "./a.s"), "got --out a.safetensors, which is the file that is read"),
    (ALIGN.replace("c.s", "folder/../b.s"), "which is the file that is read"),
    (f"{ALIGN} --cost weigths", "did you mean 'weights'?"),
    (f"{ALIGN} --cost wasserstein", "compares distributions, and files hold networks"),
    (f"{ALIGN} --scaling unit_norm", "did you mean 'unit-norm'?"),
    (f"{ALIGN} --engine local", "got --engine local, and a.safetensors holds one network"),
    (f"{ALIGN} --address auto", "got --address auto, expected it with --engine ray"),
    (
        "align draws.safetensors --model user:factory --engine local",
        "got --engine local without --out, and its tasks keep their files beside that",
    ),
    (f"{ALIGN} --engine slurm", "got the engine 'slurm', expected one of local, ray"),
    (f"{ALIGN.replace('a.s', 'draws.s')} --restarts 3", "got --restarts 3, and draws.safetensors"),
    (f"{ALIGN.replace('factory', 'shapes')} --cost activations", "pass --data MODULE:LOADER"),
    (f"{ALIGN} --cost activations --data user", "expected MODULE:LOADER"),
    (f"{ALIGN} --cost activations --data user:imputs", "the nearest is 'inputs'"),
    (f"{ALIGN} --cost activations --data user:INPUTS", "expected a function without arguments"),
    (f"{ALIGN} --cost activations --data absent.py:f", "check the path"),
    (f"{ALIGN} --cost activations --data user:fails", "user:fails raised OSError: no such data s"),
    (f"{ALIGN} --cost activations --data user:number", "user:number returned an int, expected inp"),
    (f"{ALIGN} --cost activations --data user:none", "of shape (at least 1, 5)"),
    (BARRIER.replace("b.s", "absent.s"), "there is no file absent.safetensors"),
    (BARRIER.replace("a.s", "draws.s"), "holds 4 stacked draws, and an end is one network"),
    (BARRIER.replace("a.s", "nan.s"), "holds 1 NaN or infinite values in 'second/bias'"),
    (BARRIER.replace("factory", "wide"), "the file a.safetensors has the tensor 'first/bias'"),
    (BARRIER.replace("factory", "scalar"), "expected logits (example, class)"),
    (BARRIER.replace("labelled", "inputs"), "an array of shape (40, 5), expected (inputs, labels)"),
    (BARRIER.replace("labelled", "narrow"), "with inputs as those of the model, of shape (at lea"),
    (BARRIER.replace("labelled", "one_hot"), "labels of shape (40, 3) and type float32"),
    (BARRIER.replace("labelled", "many_classes"), "labels from 0 to 39, and the model tells the"),
    (BARRIER.replace("labelled", "fails"), "user:fails raised OSError"),
]


@pytest.mark.parametrize(("command", "said"), MISTAKES, ids=[said[:40] for _, said in MISTAKES])
def test_a_mistake_exits_with_2_and_one_sentence(command: str, said: str) -> None:
    Path("c.safetensors").unlink(missing_ok=True)
    result = invoke(*command.split(), "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    *talk, sentence = result.stderr.splitlines()
    assert set(talk) <= {"a factory that talks"}
    assert sentence.startswith("onebasin: ")
    assert said in sentence
    assert not Path("c.safetensors").exists()


@pytest.mark.parametrize("option", ["--points 1", "--points many", "--seed -1"])
def test_a_number_out_of_range_exits_with_2(option: str) -> None:
    result = invoke(*BARRIER.split(), *option.split())
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_a_fault_of_ours_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(ob, "align", broken)
    result = invoke(*ALIGN.split())
    assert result.exit_code == 1
    assert "Aligning a.safetensors stopped with KeyError: 'a bug'" in result.stderr


@pytest.mark.slow
def test_documented_commands_can_be_typed_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "commands.md").read_text(), re.S)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert [line[0] for line in lines].count("onebasin") >= 4
    for program, *arguments in lines:
        if program == "python":
            monkeypatch.syspath_prepend(Path(arguments[0]).parent)
            __import__(Path(arguments[0]).stem).main(Path("onebasin-demo"), steps=20)
            continue
        result = invoke(*arguments)
        assert result.exit_code == 0, result.stderr
