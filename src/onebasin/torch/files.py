"""Tensors by name in files that a stranger may have made: safetensors, and what torch.save wrote.

Nothing here takes more memory than the file has bytes: tensors that repeat their entries, as
`torch.zeros(1).expand(2**31)` does, are looked at as they lie.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onebasin._core.files import FileError, open_regular
from onebasin.torch.errors import ConversionError
from onebasin.torch.tensors import numpy_dtype, pytorch, to_numpy

PICKLES = (".pt", ".pth", ".bin", ".ckpt")
# What training scripts wrap around a state dict.
WRAPPERS = ("state_dict", "model_state_dict", "model")


def read_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The tensors of a state dict in a file, as they are.

    Args:
        path: A safetensors file, or one that `torch.save` wrote (.pt, .pth, .bin, .ckpt), which
            is opened with `weights_only=True`: a file that would run code is refused.

    Returns:
        Arrays by name, to be read only: entries that the file repeats are in memory once.

    Raises:
        ConversionError: If it cannot be read, is damaged, or holds something else.
    """
    return {name: to_numpy(x, repr(name), copy=False) for name, x in tensors_in(path).items()}


def tensors_in(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The same as tensors, each of a kind that has entries on the CPU."""
    path = Path(path)
    if not path.is_file():
        raise ConversionError(f"there is no file {path}: check the path")
    found = _state(path, _unpickled(path) if path.suffix in PICKLES else _safetensors(path))
    for name, x in found.items():
        _check_kind(path, name, x)
    return found


def _state(path: Path, found: Any) -> dict[str, Any]:
    """The state dict in what a file holds, which a training script may have wrapped."""
    torch = pytorch()
    # Once for each, as a dictionary may hold itself.
    for _ in WRAPPERS:
        if not isinstance(found, Mapping):
            break
        inside = [name for name in WRAPPERS if isinstance(found.get(name), Mapping)]
        if len(inside) > 1:
            raise ConversionError(
                f"the file {path} holds both {inside[0]!r} and {inside[1]!r}: save the one that is "
                "meant alone"
            )
        if not inside:
            break
        found = found[inside[0]]
    if not isinstance(found, Mapping) or not all(
        isinstance(x, torch.Tensor) for x in found.values()
    ):
        raise ConversionError(
            f"the file {path} holds something else than tensors by name: save "
            "module.state_dict() alone"
        )
    for name in found:
        if not isinstance(name, str):
            raise ConversionError(
                f"the file {path} holds a tensor by the key {name!r:.80}, expected a name: save "
                "module.state_dict() alone"
            )
    return dict(found)


def _check_kind(path: Path, name: str, tensor: Any) -> None:
    kind = _kind(tensor)
    if kind:
        raise ConversionError(
            f"the file {path} has {name!r} as a {kind} tensor, which has no rules: save it with "
            "plain floating-point entries"
        )
    numpy_dtype(tensor.dtype, f"{name!r} in {path}")


def _kind(tensor: Any) -> str:
    """What is not plain about a tensor, if anything."""
    kinds = {
        "nested": tensor.is_nested,
        "quantised": tensor.is_quantized,
        "sparse": tensor.layout != pytorch().strided,
        "meta": tensor.is_meta,
        "lazily negated": tensor.is_neg(),
        "lazily conjugated": tensor.is_conj(),
    }
    return next((name for name, is_so in kinds.items() if is_so), "")


def _unpickled(path: Path) -> Any:
    torch = pytorch()
    _check_archive(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ConversionError(
            f"the file {path} cannot be opened with weights_only=True, so that it holds more than "
            "tensors or is damaged: save module.state_dict() alone, best as safetensors"
        ) from error


def _check_archive(path: Path) -> None:
    """Refuses an archive that is damaged, which torch.load does not see, or that unpacks to more.

    Files of the time before archives are for torch.load to judge.
    """
    try:
        with open_regular(path, follow=True) as file:
            if not zipfile.is_zipfile(file):
                return
            size = file.seek(0, os.SEEK_END)
            with zipfile.ZipFile(file) as archive:
                total = sum(entry.file_size for entry in archive.infolist())
                bad = None if total > size else archive.testzip()
    except (OSError, FileError) as error:
        raise ConversionError(f"the file {path} cannot be read ({error}): check it") from error
    except Exception as error:
        raise ConversionError(f"the file {path} is damaged: copy or save it again") from error
    if total > size:
        raise ConversionError(
            f"the file {path} has {size:,} bytes and unpacks to {total:,}, which torch.save never "
            "does: save module.state_dict() again"
        )
    if bad is not None:
        raise ConversionError(
            f"the file {path} is damaged, as the checksum of its part {bad!r} says: copy or save "
            "it again"
        )


def _safetensors(path: Path) -> Any:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:
        raise ConversionError(
            f"the file {path} ({path.stat().st_size:,} bytes) is not a safetensors file: files of "
            f"torch.save are known by the endings {', '.join(PICKLES)}"
        ) from error
