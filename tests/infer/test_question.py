"""A run goes on with the question that it was asked, and with no other."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import onebasin as ob
from onebasin.infer.question import log_density_at_a_point
from onebasin.store import StoreError
from onebasin.store.manifest_file import read_manifest, write_manifest

from .test_methods import PROBLEM, QUICK, quick, same

X = np.asarray(PROBLEM.inputs)
Y = np.asarray(PROBLEM.targets)


def problem(activation: str = "tanh", likelihood: Any = "gaussian", prior: Any = None):
    noise = 0.2 if likelihood == "gaussian" else None
    net = ob.nets.mlp(hidden=(4,), outputs=1, activation=activation)
    return ob.Problem(net, (X, Y), prior or ob.Normal(1.0), likelihood, noise)


def cauchy(scale: float):
    def likelihood(outputs, targets):
        return -jnp.log1p(((outputs - targets) / scale) ** 2).sum(axis=-1)

    return likelihood


def bent(slope: float) -> ob.Net:
    """A network whose derivative is its own affair."""

    @jax.custom_jvp
    def straight(x):
        return jnp.sign(x)

    straight.defjvp(lambda x, t: (jnp.sign(x[0]), slope * t[0]))
    plain = ob.nets.mlp(hidden=(4,), outputs=1)
    return ob.Net(plain.init, lambda p, x: straight(plain.apply(p, x)))


def bending(slope: float):
    return ob.Problem(bent(slope), (X, Y), likelihood="gaussian", noise=0.2)


START = PROBLEM.init(jax.random.key(5))
OTHER = jax.tree.map(lambda x: x + 0.1, START)
CHANGES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "activation": ("hmc", {}, {"problem": problem("relu")}),
    "activation of nuts": ("nuts", {}, {"problem": problem("relu")}),
    "activation of an ensemble": ("ensemble", {}, {"problem": problem("relu")}),
    "activation of a fit": ("mean_field", {}, {"problem": problem("relu")}),
    "likelihood": (
        "hmc",
        {"problem": problem(likelihood=cauchy(1.0))},
        {"problem": problem(likelihood=cauchy(2.0))},
    ),
    "degrees of freedom": (
        "hmc",
        {"problem": problem(prior=ob.StudentT(1.0, df=3.0))},
        {"problem": problem(prior=ob.StudentT(1.0, df=5.0))},
    ),
    "derivative": (
        "hmc",
        {"problem": bending(1.0)},
        {"problem": bending(2.0)},
    ),
    "start": ("hmc", {"init": START, "step_size": 0.01}, {"init": OTHER}),
    "start of an ensemble": ("ensemble", {"init": START}, {"init": OTHER}),
    "rate": (
        "ensemble",
        {"optimizer": optax.sgd(0.01)},
        {"optimizer": optax.sgd(0.02)},
    ),
    "optimiser": (
        "ensemble",
        {"optimizer": optax.sgd(0.01)},
        {"optimizer": optax.adam(0.01)},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_is_not_taken_for_that_of_another_question(name: str, tmp_path: Path) -> None:
    method, first, changed = CHANGES[name]
    kept = quick(method, run=tmp_path / "run", **{"problem": problem(), **first})
    with pytest.raises(StoreError, match="asked to do something else"):
        quick(method, run=tmp_path / "run", **{"problem": problem(), **first, **changed})
    assert same(kept, quick(method, run=tmp_path / "run", **{"problem": problem(), **first}))


def test_a_network_written_anew_is_the_same_question(tmp_path: Path) -> None:
    """Other objects, functions and names of the same content."""
    found = quick("hmc", problem=problem(likelihood=cauchy(1.0)), run=tmp_path / "run", init=START)

    def of_my_own(a, b):
        return -jnp.log1p(((a - b) / 1.0) ** 2).sum(axis=-1)

    again = jax.tree.map(jnp.array, START)
    own = problem(likelihood=of_my_own)
    assert same(found, quick("hmc", problem=own, run=tmp_path / "run", init=again))


def test_starts_are_the_same_however_long_they_took(tmp_path: Path) -> None:
    first, second = quick("ensemble"), quick("ensemble")
    assert first.info["seconds"] != second.info["seconds"]
    found = quick("hmc", init=first, step_size=0.01, run=tmp_path / "run")
    assert same(found, quick("hmc", init=second, step_size=0.01, run=tmp_path / "run"))


def test_another_version_of_a_method_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick("hmc", run=tmp_path / "run")
    monkeypatch.setattr(ob.infer.hmc, "version", ob.infer.hmc.version + 1)
    with pytest.raises(StoreError, match=r"config.version is 1 there and 2 here"):
        quick("hmc", run=tmp_path / "run")


def rewritten(folder: Path, **changes: Any) -> None:
    """The manifest of a run with other content and a checksum that fits."""
    manifest = read_manifest(folder)
    for name, value in changes.items():
        getattr(manifest, name).clear()
        getattr(manifest, name).update(value)
    write_manifest(folder, manifest)


def test_a_run_of_an_older_identity_is_refused(tmp_path: Path) -> None:
    quick("hmc", run=tmp_path / "run")
    config = {k: v for k, v in read_manifest(tmp_path / "run").config.items() if k != "identity"}
    rewritten(tmp_path / "run", config=config)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.*")}
    with pytest.raises(StoreError, match="begun by another version of onebasin, which told") as e:
        quick("hmc", run=tmp_path / "run")
    assert str(tmp_path / "run") in str(e.value)
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.*")}


def measured(noise: float) -> ob.Problem:
    """A network that calls out: its program does not show what is done there."""
    plain = ob.nets.mlp(hidden=(4,), outputs=1)
    content = {"scale": noise}

    class Outside:
        def __call__(self, x):
            return np.asarray(x) * np.float32(content["scale"])

        def __fingerprint__(self):
            return "what cannot be seen"

    outside = Outside()

    def apply(params, x):
        out = plain.apply(params, x)
        return jax.pure_callback(outside, jax.ShapeDtypeStruct(out.shape, out.dtype), out)

    return ob.Problem(ob.Net(plain.init, apply), (X, Y), likelihood="gaussian", noise=0.2)


def test_what_no_program_shows_is_seen_in_the_density(tmp_path: Path) -> None:
    assert measured(1.0).fingerprint() == measured(2.0).fingerprint()
    options = {"epochs": 1, "num_networks": 1, "run": tmp_path / "run"}
    from onebasin.infer.ensemble import ensemble
    from onebasin.infer.loop import Journal

    def asked(of: ob.Problem) -> Journal:
        arguments = {"epochs": 1}
        return Journal.open(ensemble, jax.random.key(0), of, arguments, options["run"], False, None)

    asked(measured(1.0)).run.close()
    asked(measured(1.0)).run.close()
    with pytest.raises(StoreError, match=r"begun with a log density of .* at a point where it is"):
        asked(measured(2.0))


def test_a_run_that_does_not_say_what_it_was_asked_is_not_gone_on_with(tmp_path: Path) -> None:
    with ob.store.Run.create(tmp_path / "run", config={}) as run:
        with run.transaction() as t:
            t.put("sampling-state", {"x": np.zeros(3)})
        with pytest.raises(StoreError, match="without saying what was asked"):
            quick("hmc", run=run)


def test_a_run_that_a_user_opened_is_asked_one_thing(tmp_path: Path) -> None:
    with ob.store.Run.create(tmp_path / "run", config={"mine": True}) as run:
        found = quick("hmc", run=run)
        assert same(found, quick("hmc", run=run))
        with pytest.raises(StoreError, match=r"asked.method is 'hmc' there and 'nuts' here"):
            quick("nuts", run=run)
        with pytest.raises(StoreError, match=r"asked.problem"):
            quick("hmc", problem=problem("relu"), run=run)


PROGRAM = """
import json, sys
import jax, jax.numpy as jnp, numpy as np, optax, flax.linen as nn
import onebasin as ob
from onebasin.infer.question import question
names = {"wide", "deep", "odd", "even"}
class Own(nn.Module):
    names: frozenset
    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(len(self.names))(x))
        return nn.Dense(3)(x if "wide" in self.names else -x)
module = Own(frozenset(names))
net = ob.Net(lambda k, x: module.init(k, x), lambda p, x: module.apply(p, x))
x = np.linspace(0, 1, 24, dtype=np.float32).reshape(8, 3)
weight = jnp.arange(3.0)
def likelihood(outputs, targets):
    return (jax.nn.log_softmax(outputs) * weight).sum(-1)
problem = ob.Problem(net, (x, np.arange(8) % 3), ob.StudentT(0.5, 3.0), likelihood)
images = np.ones((4, 8, 8, 3), np.float32)
residual = ob.Problem(ob.nets.resnet20(width=4), (images, np.zeros(4, int)))
schedule = optax.cosine_decay_schedule(0.1, 20)
options = {"optimizer": optax.sgd(schedule), "init": problem.init(jax.random.key(0)), "epochs": 3}
print(json.dumps([question(ob.infer.ensemble, p, options) for p in (problem, residual)]))
"""


def test_questions_are_the_same_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    first, second = json.loads(found.pop())
    assert first["problem"]["network"] != second["problem"]["network"]


def test_the_density_at_a_point_is_that_of_the_problem() -> None:
    own, other = problem(), problem("relu")
    assert np.isfinite(log_density_at_a_point(own))
    assert log_density_at_a_point(own) == log_density_at_a_point(problem())
    assert log_density_at_a_point(own) != log_density_at_a_point(other)
    learned = ob.Problem(PROBLEM.net, (X, Y), likelihood="gaussian")
    assert np.isfinite(log_density_at_a_point(learned))


def test_every_method_has_a_version() -> None:
    assert all(getattr(ob.infer, name).version >= 1 for name in QUICK)
