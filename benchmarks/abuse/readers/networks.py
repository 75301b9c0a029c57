"""Files of networks, ours and those of others."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

import onebasin as ob
from abuse.readers.reader import Reader, always
from abuse.readers.runs import reseal_tensors

NAMES = {"Dense_0/kernel": "fc.weight", "Dense_0/bias": "fc.bias"}


def _params(*lead: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    kernel, bias = rng.normal(size=(*lead, 4, 3)), rng.normal(size=(*lead, 3))
    return {"Dense_0": {"kernel": kernel.astype(np.float32), "bias": bias.astype(np.float32)}}


def make_params(folder: Path) -> None:
    ob.store.save_params(folder / "a.safetensors", _params())
    ob.store.save_params(folder / "b.safetensors", ob.Draws(_params(5)))


def read_params(folder: Path) -> Any:
    """A network, and a population of it."""
    return [ob.store.load_params(folder / f"{name}.safetensors", like=_params()) for name in "ab"]


def make_others(folder: Path) -> None:
    from safetensors.numpy import save_file

    for name in "ab":
        weights = _params()["Dense_0"]
        tensors = {"fc.weight": weights["kernel"].T.copy(), "fc.bias": weights["bias"]}
        save_file(tensors, folder / f"{name}.safetensors")


def read_others(folder: Path) -> Any:
    """A folder of networks that torch users saved."""
    return ob.store.open_torch(folder, NAMES, _params())


def _module() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


def make_torch(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    torch.save(_module().state_dict(), folder / "a.pt")
    save_file(_module().state_dict(), folder / "b.safetensors")


def read_torch(folder: Path) -> Any:
    """A module's parameters in both formats."""
    return [
        ob.torch.load_checkpoint(folder / name, _module()) for name in ("a.pt", "b.safetensors")
    ]


def readers() -> list[Reader]:
    """Those of PyTorch only where it is installed."""
    found = [
        Reader("load_params", make_params, read_params, always, reseal=reseal_tensors, weight=2),
        Reader("open_torch", make_others, read_others),
    ]
    if importlib.util.find_spec("torch") is not None:
        found.append(Reader("load_checkpoint", make_torch, read_torch))
    return found
