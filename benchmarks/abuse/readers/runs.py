"""Run folders, sealed files and posteriors."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import onebasin as ob
from abuse import changes, problems, seals
from abuse.readers.reader import Reader, always
from onebasin.store import Run
from onebasin.store.sealed import seal, unseal

STATE = {"step": 0, "total": np.zeros((3, 4), np.float32), "key": jax.random.key(0)}
CONFIG = {"steps": 4}


def make_run(folder: Path) -> None:
    """A run of four transactions, with draws, a state, a key and notes."""
    rng = np.random.default_rng(0)
    with Run.continue_or_create(folder / "run", CONFIG, {"key": 1}) as run:
        for step in range(4):
            draws = {"params": {"w": rng.normal(size=(2, 3, 4)), "b": rng.normal(size=(2, 3))}}
            total = rng.normal(size=(3, 4)).astype(np.float32)
            state = {"step": step, "total": total, "key": jax.random.key(step)}
            with run.transaction() as t:
                t.append("draws", draws)
                t.put("state", state)
                t.note(done=step + 1, text="so far")


def _content(run: Run) -> Any:
    draws = {name: run.stream(name)[:] for name in run.streams()}
    states = {name: run.get(name, like=STATE) for name in run.states()}
    states = {name: {**x, "key": jax.random.key_data(x["key"])} for name, x in states.items()}
    return [run.config, run.seeds, run.notes, draws, states]


def read_checked(folder: Path) -> Any:
    """All of a run, after a check."""
    run = Run.open(folder / "run")
    run.check()
    return _content(run)


def read_opened(folder: Path) -> Any:
    """All of a run, as it is opened."""
    return _content(Run.open(folder / "run"))


def read_on(folder: Path) -> Any:
    """A run that goes on, and all of it afterwards."""
    with Run.continue_or_create(folder / "run", CONFIG, {"key": 1}) as run:
        state = run.get("state", like=STATE)
        with run.transaction() as t:
            t.put("state", {**state, "step": 9})
            t.append("draws", {"params": {"w": np.ones((1, 3, 4)), "b": np.ones((1, 3))}})
        return _content(run)


def reseal_run(folder: Path, path: Path, chance: random.Random) -> bool:
    """An edit of the manifest, or of a shard whose hash the manifest has."""
    manifest = folder / "run" / "manifest.json"
    before = manifest.read_bytes()
    if path == manifest:
        edited = seals.edit_json(before, chance)
        return edited is not None and bool(manifest.write_bytes(edited))
    old = path.read_bytes()
    new = chance.choice((changes.flip, changes.cut, changes.header, changes.token))(old, chance)
    path.write_bytes(new)
    was, now = (hashlib.sha256(x).hexdigest() for x in (old, new))
    text = before.decode().replace(was, now).replace(f'"bytes": {len(old)}', f'"bytes": {len(new)}')
    edited = seals.reseal_json(before, text.encode())
    return edited is not None and bool(manifest.write_bytes(edited))


def make_method(folder: Path) -> None:
    problems.METHODS["hmc"](folder / "run")


def read_method(folder: Path) -> Any:
    """The draws of a run that is asked for again."""
    return problems.METHODS["hmc"](folder / "run")


def _posteriors() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    gaussian = ob.Gaussian({"w": jnp.ones((2, 3))}, 0.5, {"w": jnp.ones((2, 2, 3))})
    return {
        "Draws": ob.Draws({"w": rng.normal(size=(5, 2, 3)), "b": rng.normal(size=(5, 2))}),
        "Gaussian": gaussian,
        "Mixture": ob.Mixture([gaussian, gaussian], np.array([0.25, 0.75])),
    }


def make_posteriors(folder: Path) -> None:
    for name, posterior in _posteriors().items():
        ob.store.save(folder / f"{name}.safetensors", posterior)


def read_posteriors(folder: Path) -> Any:
    """Posteriors that were saved."""
    return [ob.store.load(folder / f"{name}.safetensors") for name in _posteriors()]


def make_sealed(folder: Path) -> None:
    seal(folder / "a.safetensors", "question", {"x": np.arange(6.0)}, {"note": json.dumps([1])})


def read_sealed(folder: Path) -> Any:
    """A file of a cache."""
    return unseal(folder / "a.safetensors", "question")


def reseal_tensors(_: Path, path: Path, chance: random.Random) -> bool:
    """An edit of a file that carries its own checksum."""
    edited = seals.edit_tensors(path, chance)
    return edited is not None and bool(path.write_bytes(edited))


READERS = (
    Reader("run, checked", make_run, read_checked, always, reseal=reseal_run, weight=2),
    Reader("run, as opened", make_run, read_opened, always, reseal=reseal_run, weight=2),
    Reader("run, continued", make_run, read_on, always, reseal=reseal_run, weight=2),
    Reader("hmc, asked for again", make_method, read_method, always, weight=0.5),
    Reader("posteriors", make_posteriors, read_posteriors, always, reseal=reseal_tensors, weight=2),
    Reader("sealed file", make_sealed, read_sealed, always, reseal=reseal_tensors),
)
