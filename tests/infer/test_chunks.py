"""Populations on an engine: chunks as tasks, files as the only truth."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from zoo import THOROUGH

import onebasin as ob
from onebasin._core.files import sha256_of
from onebasin.engine import LocalEngine, TaskError, open_engine
from onebasin.infer.chunks import chunk_size

from .problems import small_network
from .test_methods import QUICK, leaves

PROBLEM = small_network()


def same(a, b) -> bool:
    """Bit for bit; a trajectory that diverged has no energy."""
    pairs = zip(leaves(a), leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs)


def files(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in sorted(folder.rglob("*.safetensors"))}


def run(name: str, engine: LocalEngine | None, count: int = 2, key: int = 0, **more):
    counted = "num_chains" if "num_chains" in QUICK[name] else "num_networks"
    arguments = {**QUICK[name], counted: count, **more}
    return getattr(ob.infer, name)(jax.random.key(key), PROBLEM, engine=engine, **arguments)


# All of them go through one decorator; of each kind one is run by default.
@pytest.mark.parametrize("name", QUICK if THOROUGH else ("ensemble", "sghmc", "laplace"))
def test_every_method_runs_in_chunks(name: str, tmp_path: Path) -> None:
    with open_engine("local", directory=tmp_path / "a", networks_per_task=1) as engine:
        found = run(name, engine)
        first = files(engine.directory)
        assert len(first) == 2
        # The same call reads what is there.
        assert same(found, run(name, engine))
    with open_engine("local", directory=tmp_path / "b", networks_per_task=1) as engine:
        assert same(found, run(name, engine))
        assert files(engine.directory) == first
    modes = found.modes if isinstance(found, ob.Draws) else range(len(found.components))
    assert tuple(modes) == (0, 1)
    assert found.info["seconds"] > 0
    plain = run(name, None)
    assert [x.shape for x in leaves(found)] == [x.shape for x in leaves(plain)]
    assert jax.tree.structure(found) == jax.tree.structure(plain)
    for curve in ("loss", "training_loss"):
        assert np.shape(found.info.get(curve)) == np.shape(plain.info.get(curve))


def test_chunks_of_several_fits_keep_what_each_learned(tmp_path: Path) -> None:
    problem = small_network(learned_noise=True)
    with open_engine("local", directory=tmp_path, networks_per_task=2) as engine:
        found = ob.infer.mean_field(
            jax.random.key(0), problem, num_networks=3, epochs=3, engine=engine
        )
    assert np.shape(found.info["loss"]) == (3, 3)
    noises = [component.info["noise"] for component in found.components]
    assert len(set(noises)) == 3
    np.testing.assert_allclose(found.weights, 1 / 3, rtol=1e-6)


def test_one_chunk_is_the_ordinary_call(tmp_path: Path) -> None:
    with open_engine("local", directory=tmp_path) as engine:
        assert same(run("ensemble", engine), run("ensemble", None))


def test_chunks_start_where_all_are_told_to(tmp_path: Path) -> None:
    start = run("ensemble", None)
    with open_engine("local", directory=tmp_path, networks_per_task=1) as engine:
        found = run("ensemble", engine, init=ob.Draws(start.params), optimizer=optax.sgd(0.0))
    for x, y in zip(jax.tree.leaves(found.params), jax.tree.leaves(start.params), strict=True):
        np.testing.assert_array_equal(x, y)


def test_other_inputs_are_other_files(tmp_path: Path) -> None:
    with open_engine("local", directory=tmp_path, networks_per_task=4) as engine:
        run("ensemble", engine)
        counts = [len(files(tmp_path))]
        relu = ob.nets.mlp(hidden=(4,), outputs=1, activation="relu")
        other = ob.Problem(
            relu, (PROBLEM.inputs, PROBLEM.targets[:, 0]), likelihood="gaussian", noise=0.2
        )
        calls = (
            lambda: run("ensemble", engine, key=1),
            lambda: run("ensemble", engine, optimizer=optax.sgd(0.01)),
            lambda: run("ensemble", engine, optimizer=optax.sgd(0.02)),
            lambda: ob.infer.ensemble(
                jax.random.key(0), other, engine=engine, **{**QUICK["ensemble"], "num_networks": 3}
            ),
        )
        for call in calls:
            call()
            counts.append(len(files(tmp_path)))
    assert counts == [1, 2, 3, 4, 5]


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    with open_engine("local", directory=tmp_path, networks_per_task=2) as engine:
        run("ensemble", engine, count=3)
        before = files(tmp_path)
        (victim, other) = sorted(tmp_path.rglob("*.safetensors"))
        content = bytearray(victim.read_bytes())
        content[-3] ^= 1
        victim.write_bytes(bytes(content))
        untouched = other.stat().st_mtime_ns
        run("ensemble", engine, count=3)
        assert files(tmp_path) == before
        assert other.stat().st_mtime_ns == untouched


def test_a_worker_that_was_given_up_is_in_nobodys_way(tmp_path: Path) -> None:
    """Another process holds the folder in which the chunk was begun."""
    import fcntl

    with open_engine("local", directory=tmp_path / "a", networks_per_task=4) as engine:
        run("ensemble", engine)
        expected = files(tmp_path / "a")
    with open_engine("local", directory=tmp_path / "b", networks_per_task=4) as engine:
        (name,) = expected
        work = tmp_path / "b" / "infer" / "work" / Path(name).stem
        work.mkdir(parents=True)
        with open(work / ".lock", "w") as late:
            fcntl.flock(late, fcntl.LOCK_EX)
            run("ensemble", engine)
        assert files(tmp_path / "b") == expected


class Stopped(BaseException):
    """What a signal makes of a run, wherever it is."""


@contextlib.contextmanager
def stopped_after(folder: Path, steps: int) -> Iterator[None]:
    """Stops what runs in the block when so many steps are saved in the folder's only run."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped

    def watch() -> None:
        while not ended.wait(0.001):
            if saved(folder).get("training done", 0) >= steps:
                os.kill(os.getpid(), signal.SIGUSR1)
                return

    ended = threading.Event()
    before = signal.signal(signal.SIGUSR1, stop)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with pytest.raises(Stopped):
            yield
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def saved(folder: Path) -> dict[str, Any]:
    """When the folder's only run was begun, and what it has noted."""
    for path in folder.glob("*/manifest.json"):
        content = json.loads(path.read_text())
        return {"created": content["created"], **content["notes"]}
    return {}


def test_a_chunk_goes_on_from_its_last_save(tmp_path: Path) -> None:
    work = tmp_path / "infer" / "work"
    more = {"chunk": 1, "epochs": 200}
    with open_engine("local", directory=tmp_path, networks_per_task=4) as engine:
        with stopped_after(work, 2):
            run("ensemble", engine, **more)
        first = saved(work)
        assert 2 <= first["training done"] < 200
        with stopped_after(work, first["training done"] + 1):
            run("ensemble", engine, **more)
        second = saved(work)
        assert second["created"] == first["created"]
        assert first["training done"] < second["training done"] < 200
        found = run("ensemble", engine, epochs=200)
    assert same(found, run("ensemble", None, epochs=200))
    assert not list(work.iterdir())


def test_a_method_of_ones_own_runs_once_for_each_mode(tmp_path: Path) -> None:
    def own(key, problem, scale: float = 1.0):
        return ob.Draws({"w": scale * jax.random.normal(key, (4, 2))})

    many = ob.infer.multi_mode(own, 3)
    with open_engine("local", directory=tmp_path) as engine:
        found = many(jax.random.key(0), NoShapes(), scale=2.0, engine=engine)
        assert len(files(tmp_path)) == 3
    assert same(found, many(jax.random.key(0), NoShapes(), scale=2.0))


class NoShapes:
    """The least that a method of one's own may ask for."""

    def shapes(self):
        return {"w": jnp.zeros(2)}


def test_failures_name_the_chunk(tmp_path: Path) -> None:
    with (
        open_engine("local", directory=tmp_path, networks_per_task=2, retries=0) as engine,
        pytest.raises(
            TaskError, match=r"'ensemble/0' .* expected at least one .*ensemble-0\.1\.log"
        ),
    ):
        run("ensemble", engine, epochs=-1)


def test_small_networks_come_in_crowds() -> None:
    assert chunk_size(PROBLEM, "num_networks") == 256
    assert chunk_size(PROBLEM, "num_chains") == 4
    x = np.zeros((4, 784), np.float32)
    wide = ob.Problem(ob.nets.mlp(hidden=(2048, 2048), outputs=10), (x, np.zeros(4, int)))
    assert chunk_size(wide, "num_networks") == 1
