"""Checkpoints in torch layout: other names, and other orders of the axes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin._core.files import FileError
from onebasin.posterior import Draws
from onebasin.store.checkpoint import is_sealed
from onebasin.store.errors import CheckpointError, StoreError, checked_path
from onebasin.store.leaves import arranged, named
from onebasin.store.reading import TensorFile, why
from onebasin.store.tensors import NAMES
from onebasin.store.torch_mappings import LAYOUTS, TorchMapping, TorchTensor, torch_mapping
from onebasin.store.values import as_parameter, check_type, warn_unless_finite

BY_AXES = {2: "linear", 4: "conv"}
IGNORED = "num_batches_tracked"
PREFIXES = ("module.", "model.", "net.")
PICKLES = (".pt", ".pth", ".bin", ".ckpt")


def open_torch(
    path: str | os.PathLike[str],
    mapping: str | TorchMapping,
    like: Any,
    *,
    draws: slice | None = None,
) -> Any:
    """Reads a network, or a population, that torch users saved: safetensors, or .pt files.

    Files of `torch.save` need PyTorch, and may hold nothing but tensors. Half precision is read as
    float32. Prefixes that wrappers add (`module.`, `model.`, `net.`) and counts of batches are
    passed over. Values that are NaN or infinite come with a warning.

    Args:
        path: A file with one network or with stacked networks, where every tensor has a leading
            axis; or a folder of files with one network each, in the order of the numbers in their
            names.
        mapping: "optunet", "resnet18", or for each leaf of `like` its torch name, with a layout
            (`TorchTensor`) where it is not plain: of a name alone, leaves with four axes are
            convolutions, those with two linear.
        like: Parameters of one network of ours, or their shapes; the values do not matter.
        draws: Which networks of a population to read; all by default.

    Returns:
        Parameters in the structure of `like`, or `Draws` of them, each of a mode of its own.

    Raises:
        CheckpointError: If a file cannot be read, or is not of this model; it names the tensor.

    Example:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from onebasin.store import open_torch
        >>> from safetensors.numpy import save_file
        >>> path = os.path.join(tempfile.mkdtemp(), "linear.safetensors")
        >>> save_file({"fc.weight": np.arange(6, dtype=np.float16).reshape(2, 3)}, path)
        >>> open_torch(path, {"kernel": "fc.weight"}, {"kernel": np.zeros((3, 2))})
        {'kernel': Array([[0., 3.],
               [1., 4.],
               [2., 5.]], dtype=float32)}
    """
    path = checked_path(path, CheckpointError)
    try:
        leaves = named(like, "the parameters")
    except StoreError as error:
        raise CheckpointError(str(error)) from None
    where = _complete(torch_mapping(mapping) if isinstance(mapping, str) else mapping, leaves)
    if not os.path.isdir(path):
        found, stacked = _network(path, where, leaves, draws)
        tree = arranged(found, like, f"the file {path}")
        return _population(tree) if stacked else tree
    known = [file for file in path.glob("*") if file.suffix in (".safetensors", *PICKLES)]
    files = sorted(known, key=_by_number)[draws or slice(None)]
    if not files:
        raise CheckpointError(
            f"the folder {path} has no safetensors files{' in this range' if draws else ''}, "
            "expected one for each network."
        )
    networks = [_network(file, where, leaves, None)[0] for file in files]
    stacked_leaves = {name: jnp.stack([x[name] for x in networks]) for name in leaves}
    return _population(arranged(stacked_leaves, like, f"the folder {path}"))


def _complete(mapping: TorchMapping, leaves: Mapping[str, Any]) -> dict[str, TorchTensor]:
    for name in [*leaves, *mapping]:
        if (name in leaves) != (name in mapping):
            which = "no entry for the leaf" if name in leaves else "an entry for"
            but = "the model has" if name in leaves else "the model has not"
            raise CheckpointError(
                f"the mapping has {which} {name!r}, which {but}: name a torch tensor for each leaf."
            )
    return {
        name: entry
        if isinstance(entry, TorchTensor)
        else TorchTensor(entry, BY_AXES.get(np.ndim(leaves[name]), "same"))
        for name, entry in mapping.items()
    }


def _network(
    path: Path, where: Mapping[str, TorchTensor], leaves: Mapping[str, Any], draws: slice | None
) -> tuple[dict[str, jax.Array], bool]:
    """The leaves of one file, and whether it holds stacked networks."""
    try:
        if path.suffix in PICKLES:
            return _arranged(path, _Pickled(_unpickled(path)), where, leaves, draws)
        with TensorFile(path, follow=True) as file:
            if is_sealed(file.header.metadata) and not file.is_whole():
                raise StoreError(f"the file {path} has changed since it was written, says its hash")
            return _arranged(path, file, where, leaves, draws)
    except (OSError, FileError) as error:
        raise CheckpointError(f"the file {path} {why(error)}.") from error
    except CheckpointError:
        raise
    except StoreError as error:
        raise CheckpointError(f"{error}.") from error


class _Pickled:
    """Tensors in memory, to be asked for as those in a file are."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.shapes = {name: x.shape for name, x in arrays.items()}
        self.dtypes = {name: NAMES.get(x.dtype, str(x.dtype)) for name, x in arrays.items()}

    @property
    def header(self) -> _Pickled:
        return self

    def tensor(self, name: str, first: int = 0, last: int | None = None) -> np.ndarray:
        return self.arrays[name] if last is None else self.arrays[name][first:last]


def _arranged(
    path: Path,
    file: TensorFile | _Pickled,
    where: Mapping[str, TorchTensor],
    leaves: Mapping[str, Any],
    draws: slice | None,
) -> tuple[dict[str, jax.Array], bool]:
    names = _bare_names(path, file.header.shapes)
    shapes = {bare: file.header.shapes[name] for bare, name in names.items()}
    keys = {name: _found(path, name, entry, shapes) for name, entry in where.items()}
    left = next((key for key in shapes if key not in keys.values()), None)
    if left is not None:
        raise CheckpointError(
            f"the file {path} has a tensor {left!r}, which the mapping does not name: it is the "
            "file of another model, or the mapping is not complete."
        )
    stacked = all(len(shapes[keys[name]]) == np.ndim(leaf) + 1 for name, leaf in leaves.items())
    counts = {shapes[key][0] for key in keys.values()} if stacked else {1}
    if len(counts) > 1:
        said = ", ".join(f"{key!r} has {shapes[key][0]}" for key in list(keys.values())[:4])
        raise CheckpointError(
            f"the tensors in the file {path} are of different numbers of networks: {said}."
        )
    found = {}
    for name, leaf in leaves.items():
        key = names[keys[name]]
        check_type(path, key, file.header.dtypes[key], leaf)
        tensor = _picked(file, key, draws) if stacked else file.tensor(key)
        found[name] = _ours(path, keys[name], tensor, where[name].layout, leaf, stacked)
    warn_unless_finite(path, found)
    return found, stacked


def _bare_names(path: Path, names: Iterable[str]) -> dict[str, str]:
    """The tensors by their names without what wrappers add."""
    found: dict[str, str] = {}
    for name in names:
        bare = _bare(name)
        if bare.endswith(IGNORED):
            continue
        if bare in found:
            raise CheckpointError(
                f"the file {path} has the tensors {found[bare]!r} and {name!r}, which are both "
                f"{bare!r} without what wrappers add: remove one."
            )
        found[bare] = name
    return found


def _picked(file: TensorFile | _Pickled, key: str, draws: slice | None) -> np.ndarray:
    """The rows of a tensor that were asked for, of which a file is read no further than needed."""
    start, stop, step = (draws or slice(None)).indices(file.header.shapes[key][0])
    if step == 1:
        return file.tensor(key, start, max(start, stop))
    return file.tensor(key)[draws]


def _unpickled(path: Path) -> dict[str, np.ndarray]:
    from onebasin.torch import ConversionError
    from onebasin.torch.checkpoints import read_tensors

    try:
        return read_tensors(path)
    except ConversionError as error:
        raise StoreError(str(error)) from error


def _bare(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _found(path: Path, name: str, entry: TorchTensor, tensors: Mapping[str, Any]) -> str:
    found = [key for key in entry.names if key in tensors]
    if len(found) != 1:
        wanted = " or ".join(map(repr, entry.names))
        raise CheckpointError(
            f"the file {path} has {'several tensors' if found else 'no tensor'} {wanted} for the "
            f"leaf {name!r}; it has {', '.join(list(tensors)[:6])}, ...: name the right one in "
            "the mapping."
        )
    return found[0]


def _ours(
    path: Path, key: str, tensor: np.ndarray, layout: str, leaf: Any, stacked: bool
) -> jax.Array:
    axes = LAYOUTS[layout]
    if axes is not None and len(axes) == tensor.ndim - stacked:
        tensor = tensor.transpose((0, *(axis + 1 for axis in axes)) if stacked else axes)
    if tensor.shape[int(stacked) :] != np.shape(leaf):
        raise CheckpointError(
            f"the file {path} has the tensor {key!r} of shape {tensor.shape} in our layout, and "
            f"the model expects {np.shape(leaf)}: it is the file of another model."
        )
    return as_parameter(path, key, tensor)


def _population(tree: Any) -> Draws:
    count = len(jax.tree.leaves(tree)[0])
    return Draws(tree, jnp.arange(count, dtype=jnp.int32))


def _by_number(path: Path) -> list[tuple[int, str]]:
    """The parts of a name, so that network 10 comes after network 9."""
    return [(int(part or 0), rest) for part, rest in re.findall(r"(\d*)(\D*)", path.name)]
