"""Posteriors as files: draws, a Gaussian or a mixture, each with all that belongs to it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin._core.files import FileError, parse_json, replacing
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.posterior.trees import named_leaves
from onebasin.store.errors import StoreError, checked_path
from onebasin.store.leaves import arranged, decode, encode, key_names, named, nested
from onebasin.store.manifest import plain
from onebasin.store.reading import TensorFile, is_whole, why
from onebasin.store.tensors import SEAL, write_sealed

FORMAT = "onebasin-posterior"
VERSION = "2"
# Files of the first version may be without a checksum.
UNSEALED = "1"
FORMS = {form.__name__: form for form in (Draws, Gaussian, Mixture)}
# The most bytes that are copied into memory without being asked for.
MEMORY = 2**33


def save(path: str | os.PathLike[str], posterior: Draws | Gaussian | Mixture) -> None:
    """Writes a posterior to one safetensors file, which appears when it is complete.

    The file carries the sha256 of what it holds, by which `load` notices damage.

    Args:
        path: The file. Its folder must exist.
        posterior: `Draws` with all that is known of each, a `Gaussian` with its low-rank part, or a
            `Mixture`. What is known of the run that made it is kept as JSON has it.

    Raises:
        StoreError: If it is none of these, or the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> import jax.numpy as jnp
        >>> from onebasin import Gaussian, store
        >>> path = os.path.join(tempfile.mkdtemp(), "posterior.safetensors")
        >>> store.save(path, Gaussian({"w": jnp.zeros(3)}, 1.0, {"w": jnp.ones((2, 3))}))
        >>> store.load(path)
        Gaussian(3 weights, rank 2)
    """
    path = checked_path(path)
    arrays, metadata = parts_of(posterior, f"the file {path}")
    try:
        with replacing(path) as file:
            write_sealed(file, arrays, metadata)
    except OSError as error:
        raise StoreError(
            f"the file {path} cannot be written ({error.strerror or error}): name another file."
        ) from error


def load(
    path: str | os.PathLike[str],
    like: Any = None,
    *,
    check: bool = True,
    mapped: bool = False,
    memory: int = MEMORY,
) -> Draws | Gaussian | Mixture:
    """Reads a posterior that `save` wrote, with every type as it was.

    Args:
        path: The file.
        like: Parameters of one network, for their structure; nested dictionaries without it.
        check: Whether to compare what is read with the checksum of the file.
        mapped: Leave draws in the file, which is then read when they are used: for draws that do
            not fit into memory. Whoever edits the file later changes them, and a file that is cut
            ends the process with a bus error: for files that nobody else writes to.
        memory: Refuse to copy a file of more bytes than this.

    Returns:
        What was saved. Draws are read-only NumPy arrays.

    Raises:
        StoreError: If the file cannot be read, has changed since it was written, holds no
            posterior of this model, or is larger than `memory`.
    """
    path = checked_path(path)
    try:
        with TensorFile(path, follow=True) as file:
            if not mapped:
                check_size(f"the file {path}", file.size, memory)
            arrays, said = file.arrays(mapped=mapped), file.header.metadata
    except (OSError, FileError) as error:
        raise StoreError(f"the file {path} {why(error)}.") from error
    sealed = SEAL in said or said.get("version") != UNSEALED
    if check and sealed and said.get("format") == FORMAT and not is_whole(arrays, said):
        raise StoreError(
            f"the file {path} has changed since it was written, its sha256 says: take another "
            "copy, or pass check=False to read it as it is."
        )
    return posterior_of(arrays, said, like, f"the file {path}")


def check_size(what: str, size: int, memory: int) -> None:
    """Refuses to copy more into memory than was allowed."""
    if size > memory:
        raise StoreError(
            f"{what} takes {size:,} bytes in memory, and memory={memory:,} allows no more: allow "
            "more, or leave it on disk with mapped=True."
        )


def parts_of(
    posterior: Draws | Gaussian | Mixture, where: str
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """A posterior as the arrays and the metadata of a file.

    Args:
        posterior: `Draws`, a `Gaussian` or a `Mixture`.
        where: What is to hold it, in an error.

    Raises:
        StoreError: If it is none of these.
    """
    form = type(posterior).__name__
    if not isinstance(posterior, tuple(FORMS.values())):
        raise StoreError(
            f"got {form}, expected one of {', '.join(FORMS)}: parameters of one network are "
            "written by save_params."
        )
    metadata = {"format": FORMAT, "version": VERSION, "form": form}
    if posterior.info is not None:
        metadata["info"] = json.dumps(plain(posterior.info, "info"))
    arrays, keys = encode(named(posterior, "the parts of the posterior"), where)
    return arrays, {**metadata, **keys}


def posterior_of(
    arrays: Mapping[str, np.ndarray], said: Mapping[str, str], like: Any, where: str
) -> Draws | Gaussian | Mixture:
    """The posterior that `parts_of` took apart.

    Raises:
        StoreError: If they are not the parts of one.
    """
    form = said.get("form", "")
    if said.get("format") != FORMAT or form not in FORMS:
        raise StoreError(
            f"{where} holds no posterior that onebasin saved: networks are read by load_params."
        )
    if said.get("version") not in (UNSEALED, VERSION):
        raise StoreError(
            f"{where} has version {said.get('version')} of its format, and this onebasin "
            f"reads {VERSION}: update onebasin."
        )
    keys = key_names(said, arrays, where)
    try:
        leaves = {name: decode(array, keys.get(name)) for name, array in arrays.items()}
        found = _form(form, leaves, like, where)
        return dataclasses.replace(found, info=parse_json(said.get("info", "null")))
    except StoreError as error:
        if where in str(error):
            raise
        raise StoreError(f"{where} cannot be read: {error}") from error
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        raise StoreError(f"{where} does not hold a {form}: {error}.") from error


def draws_of(leaves: Mapping[str, Any], like: Any, where: str) -> Draws:
    """Leaves under params, mode, log_density and statistics as `Draws`.

    Args:
        leaves: Stacked arrays by path.
        like: Parameters of one network, for their structure; nested dictionaries without it.
        where: What holds them, in an error.

    Raises:
        StoreError: If there are no leaves under params, or not those of `like`.
    """
    params = _part(leaves, "params", like, where, lead=1)
    if params is None:
        raise StoreError(
            f"{where} has no leaves under 'params', expected those of Draws; it has "
            f"{', '.join(leaves)}."
        )
    mode, density, statistics = (
        _part(leaves, name, None, where) for name in ("mode", "log_density", "statistics")
    )
    for name, part in (("mode", mode), ("log_density", density)):
        if isinstance(part, dict):
            raise StoreError(f"{where} has several leaves under {name!r}, expected one.")
    return Draws(params, mode, density, statistics)


def _form(
    form: str, leaves: Mapping[str, Any], like: Any, where: str
) -> Draws | Gaussian | Mixture:
    if form == "Draws":
        return draws_of(leaves, like, where)
    if form == "Gaussian":
        return _gaussian(leaves, like, where)
    found = {re.fullmatch(r"components/(\d{1,9})/.*|weights", name) for name in leaves}
    if None in found or "weights" not in leaves:
        raise StoreError(f"{where} does not hold the components and weights of a mixture.")
    numbers = sorted({int(x.group(1)) for x in found if x and x.group(1)})
    parts = [_gaussian(_inside(leaves, f"components/{k}"), like, where) for k in numbers]
    return Mixture(parts, leaves["weights"])


def _gaussian(leaves: Mapping[str, Any], like: Any, where: str) -> Gaussian:
    parts = [
        _part(leaves, name, like, where, lead=name == "factor")
        for name in ("mean", "std", "factor")
    ]
    return Gaussian(*jax.tree.map(_on_device, parts))


def _on_device(array: Any) -> Any:
    """As a JAX array where JAX has the type; a double stays a NumPy array where it has not."""
    return jnp.array(array) if jnp.result_type(array) == array.dtype else array.copy()


def _inside(leaves: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The leaves under a name, which is cut off; one that is there itself is called params."""
    inside = {"params": leaves[name]} if name in leaves else {}
    lead = f"{name}/"
    return inside | {p.removeprefix(lead): x for p, x in leaves.items() if p.startswith(lead)}


def _part(leaves: Mapping[str, Any], name: str, like: Any, where: str, lead: int = 0) -> Any:
    """The tree under a name; its leaves have `lead` axes in front of those of `like`."""
    inside = _inside(leaves, name)
    if not inside:
        return None
    if like is None:
        return nested(inside)
    found = arranged(inside, like, f"{name} of {where}")
    for (path, leaf), model in zip(named_leaves(found), jax.tree.leaves(like), strict=True):
        # A plain number stands for a leaf of any shape.
        own, wanted = leaf.shape[lead:], getattr(model, "shape", None)
        if wanted is not None and own != tuple(wanted):
            raise StoreError(
                f"{where} has the leaf {path!r} of shape {own}, and the model expects "
                f"{tuple(wanted)}: it is the file of another model."
            )
    return found
