"""Symmetries as JSON, and configurations as YAML."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import jax
import numpy as np

import onebasin as ob
from abuse import problems, seals
from abuse.readers.reader import Reader, always


def make_symmetry(folder: Path) -> None:
    net = ob.nets.mlp(hidden=(5, 4), outputs=3, activation="relu")
    x = np.ones((2, 3), np.float32)
    ob.discover(net.apply, net.init(jax.random.key(0), x), x).save(folder / "symmetry.json")


def read_symmetry(folder: Path) -> Any:
    """A group, which must be able to make an element as well."""
    symmetry = ob.Symmetry.load(folder / "symmetry.json")
    return [symmetry.to_json(), symmetry.random(jax.random.key(2))]


def reseal_symmetry(_: Path, path: Path, chance: random.Random) -> bool:
    edited = seals.edit_json(path.read_bytes(), chance)
    return edited is not None and bool(path.write_bytes(edited))


def make_yaml(folder: Path) -> None:
    import yaml

    (folder / "config.yaml").write_text(yaml.safe_dump({"seed": 3, **problems.TINY}))


def read_yaml(folder: Path) -> Any:
    """A configuration of a study."""
    kind = ob.studies.get("compact").config
    file = folder / "config.yaml"
    return ob.studies.load_config(kind, "compact", "demo", file).model_dump(mode="json")


READERS = (
    Reader("symmetry", make_symmetry, read_symmetry, always, reseal=reseal_symmetry, weight=2),
    Reader("configuration", make_yaml, read_yaml, weight=2),
)
