"""What the commands on checkpoints share: options, the networks in files, the certificate."""

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from safetensors import SafetensorError, safe_open

import onebasin
from onebasin._factory import EXPECTED, Model, TorchModel
from onebasin.align.checks import check_finite
from onebasin.store import load_params, save_params

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
    found = _read(path, model)
    params = found.params if isinstance(found, onebasin.Draws) else found
    check_finite(f"the file {path}", params)
    return found


def _read(path: Path, model: Model) -> Any:
    """A file of ours, or the state dict of a PyTorch module."""
    if not isinstance(model, TorchModel) or _holds_draws(path):
        return load_params(path, model.params)
    params = onebasin.torch.load_checkpoint(path, model.module)
    return {name: params[name] for name in model.params}


def _holds_draws(path: Path) -> bool:
    try:
        with safe_open(path, framework="np") as file:
            return "draws" in (file.metadata() or {})
    except (OSError, SafetensorError):
        return False


def save_network(path: Path, params: Any, model: Model) -> None:
    """Writes one network; that of a PyTorch module as its whole state dict, for its endings too."""
    if isinstance(model, TorchModel):
        from onebasin.torch.checkpoints import PICKLES, save_pickle
        from onebasin.torch.tensors import to_numpy

        state = onebasin.torch.state_dict(params, model.module)
        if path.suffix in PICKLES:
            save_pickle(path, state)
            return
        params = {name: to_numpy(x) for name, x in state.items()}
    save_params(path, params)


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
        "gaps": alignment.gaps,
        "exact": alignment.exact,
        "sweeps": alignment.sweeps,
        "solver": alignment.solver,
        "fallbacks": alignment.fallbacks,
        "transpositions": alignment.transpositions,
        "num_transpositions": alignment.num_transpositions,
        "margin": {name: np.asarray(margin) for name, margin in alignment.margin.items()},
    }
