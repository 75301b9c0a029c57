"""Files that were changed at random: what is read without an error is what was written.

`ONEBASIN_MUTATIONS=2000` changes as many files for each reader; the seed is printed on failure.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import onebasin as ob
from onebasin.store import Run, StoreError, load, load_params, open_torch, save, save_params

COUNT = int(os.environ.get("ONEBASIN_MUTATIONS", "60"))
SEED = int(os.environ.get("ONEBASIN_SEED", "0"))
PARAMS = {"a": {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, "b": np.ones(3, np.float32)}
PLAIN = {"a/w": ob.store.TorchTensor("a/w", "same"), "b": "b"}
STACKED = jax.tree.map(lambda x: np.stack([x, x + 1, x + 2]), PARAMS)


def make_run(path: Path) -> None:
    with Run.create(path, {"a": 1}) as run:
        for step in range(3):
            with run.transaction() as t:
                t.append("draws", {"params": jax.tree.map(lambda x, k=step: x + k, STACKED)})
                t.put("state", {"key": jax.random.key(step), "step": step})
                t.note(done=step)


def read_run(path: Path) -> Any:
    like = {"key": jax.random.key(0), "step": 0}
    run = Run.open(path)
    first = [run.draws().params, run.get("state", like), run.notes, run.config]
    Run.recovery(path)
    with Run.continue_or_create(path, {"a": 1}) as run:
        assert run.stream("draws")[-1] is not None
    return first


def save_gaussian(path: Path) -> None:
    save(path, ob.Gaussian(PARAMS, 0.5, STACKED, info={"loss": [1.0, 2.0]}))


def save_mixture(path: Path) -> None:
    save(path, ob.Mixture([ob.Gaussian(PARAMS, 1.0), ob.Gaussian(PARAMS, 2.0)], [0.5, 0.5]))


def with_info(path: Path) -> Any:
    found = load(path)
    return found, found.info


READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "run": (make_run, read_run),
    "draws": (lambda path: save(path, ob.Draws(STACKED)), with_info),
    "gaussian": (save_gaussian, with_info),
    "mixture": (save_mixture, with_info),
    "network": (lambda path: save_params(path, PARAMS), lambda path: load_params(path, PARAMS)),
    "population": (
        lambda path: save_params(path, ob.Draws(STACKED)),
        lambda path: load_params(path, PARAMS),
    ),
    "torch": (
        lambda path: save_params(path, PARAMS),
        lambda path: open_torch(path, PLAIN, PARAMS),
    ),
}


def mutated(content: bytes, chance: np.random.Generator) -> bytes:
    """Bits flipped, a part zeroed, cut out, doubled or cut off, or other bytes put in."""
    size = len(content)
    start, length = int(chance.integers(size)), int(chance.integers(1, 40))
    part = content[start : start + length]
    head, tail = content[:start], content[start + length :]
    kind = chance.integers(7)
    if kind < 2:
        found = bytearray(content)
        for place in chance.integers(size, size=kind + 1):
            found[place] ^= 1 << int(chance.integers(8))
        return bytes(found)
    ways = [
        head + bytes(len(part)) + tail,
        head + tail,
        head + part * 2 + tail,
        head,
        head + chance.bytes(length),
    ]
    return ways[kind - 2]


def leaves(found: Any) -> list[bytes]:
    arrays = [
        jax.random.key_data(x) if ob.store.leaves.is_key(x) else x for x in jax.tree.leaves(found)
    ]
    return [np.asarray(x).tobytes() for x in arrays]


@pytest.fixture(params=READERS)
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    READERS[request.param][0](tmp_path / "whole")
    return request.param, tmp_path / "whole"


def test_no_damage_is_read_silently(whole: tuple[str, Path]) -> None:
    kind, path = whole
    read = READERS[kind][1]
    expected = leaves(read(path))
    files = sorted(x for x in path.rglob("*") if x.is_file()) if path.is_dir() else [path]
    files = [x for x in files if x.stat().st_size]
    chance = np.random.default_rng(SEED)
    refused = 0
    for number in range(COUNT):
        copy = path.with_name("changed")
        if path.is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy)
        file = files[number % len(files)]
        target = copy / file.relative_to(path) if path.is_dir() else copy
        target.write_bytes(mutated(file.read_bytes(), chance))
        try:
            found = read(copy)
        except StoreError:
            refused += 1
            continue
        assert leaves(found) == expected, f"seed {SEED}, number {number}: {file.name}"
    assert refused > COUNT / 2
