"""What the commands on checkpoints share: options, the networks in files, the certificate."""

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import onebasin
from onebasin._factory import EXPECTED, Model
from onebasin.align.checks import check_finite
from onebasin.store import load_params

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODULE:FACTORY",
        help="The model: a function without arguments, as my_models:factory or "
        f"path/to/file.py:factory, that returns {EXPECTED}.",
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="For all random choices of the search.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, for a script.")]


def check_file(path: Path) -> None:
    """Refuse a file that is not there, before any work is done."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}: check the path")


def check_out(out: Path, inputs: list[Path]) -> None:
    """Refuse a place to which nothing can be written, or nothing should."""
    if not out.parent.is_dir():
        raise ValueError(f"got --out {out}, and there is no folder {out.parent}: make it first")
    if out.is_dir():
        raise ValueError(f"got --out {out}, which is a folder: name a file in it")
    for path in inputs:
        if os.path.realpath(out) == os.path.realpath(path):
            raise ValueError(
                f"got --out {out}, which is the file that is read: name another, so that the "
                "network is not lost"
            )


def read_networks(path: Path, model: Model) -> Any:
    """The parameters, or `Draws`, in a file, after checking that they are finite."""
    found = load_params(path, model.params)
    params = found.params if isinstance(found, onebasin.Draws) else found
    check_finite(f"the file {path}", params)
    return found


def read_network(path: Path, model: Model, role: str) -> Any:
    """The parameters in a file that must hold one network."""
    found = read_networks(path, model)
    if isinstance(found, onebasin.Draws):
        raise ValueError(
            f"the file {path} holds {len(found)} stacked draws, and {role} is one network: name a "
            "file with one"
        )
    return found


def certificate(alignment: onebasin.Alignment) -> dict[str, Any]:
    """An alignment as JSON has it: everything but the parameters and the element."""
    return {
        "cost_name": alignment.cost_name,
        "cost": alignment.cost,
        "cost_before": alignment.cost_before,
        "bound": alignment.bound,
        "exact": alignment.exact,
        "sweeps": alignment.sweeps,
        "solver": alignment.solver,
        "transpositions": alignment.transpositions,
        "num_transpositions": alignment.num_transpositions,
        "margin": {name: np.asarray(margin) for name, margin in alignment.margin.items()},
    }
