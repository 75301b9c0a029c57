"""Work that is small, is kept in a folder, and can be compared bit for bit."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import onebasin as ob


@functools.cache
def problem() -> ob.Problem:
    """Twenty noisy points of a sine, a network of thirteen weights."""
    x = np.linspace(-1, 1, 20, dtype=np.float32)[:, None]
    y = np.sin(3 * x[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=20).astype(np.float32)
    net = ob.nets.mlp(hidden=(4,), outputs=1, activation="tanh")
    return ob.Problem(net, (x, y), likelihood="gaussian", noise=0.2)


def hmc(folder: Path) -> list[np.ndarray]:
    found = ob.infer.hmc(
        jax.random.key(0),
        problem(),
        num_chains=2,
        num_samples=12,
        num_warmup=8,
        init="random",
        run=folder,
        chunk=1,
    )
    return _leaves(found)


def sghmc(folder: Path) -> list[np.ndarray]:
    found = ob.infer.sghmc(
        jax.random.key(1),
        problem(),
        num_chains=2,
        num_samples=12,
        num_warmup=10,
        thin=5,
        init="prior",
        run=folder,
        chunk=1,
    )
    return _leaves(found)


def ensemble(folder: Path) -> list[np.ndarray]:
    found = ob.infer.ensemble(
        jax.random.key(2), problem(), num_networks=2, epochs=20, run=folder, chunk=1
    )
    return _leaves(found)


def mean_field(folder: Path) -> list[np.ndarray]:
    found = ob.infer.mean_field(jax.random.key(3), problem(), epochs=20, run=folder, chunk=1)
    return _leaves(found)


def _leaves(found: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(found)]


METHODS: dict[str, Callable[[Path], list[np.ndarray]]] = {
    "hmc": hmc,
    "sghmc": sghmc,
    "ensemble": ensemble,
    "mean_field": mean_field,
}
TINY = {
    "train_size": 60,
    "test_size": 40,
    "hidden": [4],
    "hmc": {"num_chains": 2, "num_samples": 6, "num_warmup": 6, "max_leapfrogs": 10},
    "ensemble": {"num_networks": 2, "epochs": 5, "batch_size": 20},
    "vi": {"epochs": 5, "batch_size": 20},
    "dynamics": {"epochs": 2, "points": 3},
}
STAGES = ("ensemble", "variational")


def study(folder: Path) -> dict[str, str]:
    """The first stages of a published comparison; what they left on the disk, without times."""
    chosen = ob.studies.get("compact")
    config = ob.studies.load_config(chosen.config, "compact", "demo", overrides=TINY)
    known = [stage.name for stage in chosen.stages]
    chosen.run(config, folder, stages=[name for name in STAGES if name in known])
    files = [
        p for kind in ("*.safetensors", "section.json") for p in folder.glob(f"stages/*/{kind}")
    ]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
    }


KINDS: dict[str, Callable[[Path], Any]] = {**METHODS, "study": study}
