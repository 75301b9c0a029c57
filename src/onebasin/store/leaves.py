"""Trees as named arrays, and back: structure by `like` or by the names, types bit for bit."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin._core.files import parse_json
from onebasin.posterior.trees import named_leaves
from onebasin.store.errors import StoreError
from onebasin.store.tensors import NAMES

KEYS = "keys"
SHORT = (np.dtype(np.float16), np.dtype(jnp.bfloat16))


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a typed random key, or an array of them."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def named(tree: Any, what: str) -> dict[str, Any]:
    """The leaves of a tree by name.

    Args:
        tree: Any pytree.
        what: What to call it, in an error.

    Raises:
        StoreError: If there are no leaves, or two have the same name.
    """
    leaves = named_leaves(tree)
    found = dict(leaves)
    if not found:
        raise StoreError(f"{what} have no leaves, expected a pytree of arrays.")
    if len(found) < len(leaves):
        names = [name for name, _ in leaves]
        twice = next(name for name in names if names.count(name) > 1)
        raise StoreError(
            f"two leaves of {what} are both called {twice!r}, and a file needs a name for each: "
            "rename one."
        )
    return found


def encode(leaves: Mapping[str, Any], where: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays as a file holds them, and the metadata that say which of them are random keys.

    Args:
        leaves: Arrays, numbers and typed random keys by name.
        where: The file or the state they are for, in an error.

    Raises:
        StoreError: If a leaf is of a type that safetensors has not.
    """
    keys = {name: str(jax.random.key_impl(x)) for name, x in leaves.items() if is_key(x)}
    arrays = {}
    for name, leaf in leaves.items():
        array = np.asarray(jax.random.key_data(leaf) if name in keys else leaf)
        if array.dtype not in NAMES:
            raise StoreError(
                f"{where} cannot hold the leaf {name!r}, which is of type {array.dtype}: keep "
                "everything but numbers and random keys out of it."
            )
        arrays[name] = array
    return arrays, {KEYS: json.dumps(keys)} if keys else {}


def key_names(metadata: Mapping[str, str], names: Collection[str], where: str) -> dict[str, str]:
    """Which tensors are random keys, and of which kind.

    Args:
        metadata: Those of the file.
        names: The tensors in it.
        where: The file, in an error.

    Raises:
        StoreError: If the metadata say something else.
    """
    try:
        found = parse_json(metadata.get(KEYS, "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not set(found) <= set(names):
        raise StoreError(f"{where} names random keys that it does not hold: it was edited.")
    return found


def decode(array: np.ndarray, impl: str | None) -> Any:
    """An array as it was before `encode`; random keys are wrapped again.

    Raises:
        StoreError: If it cannot hold keys of that kind.
    """
    if impl is None:
        return array
    try:
        return jax.random.wrap_key_data(jnp.array(array), impl=impl)
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"an array of type {array.dtype} and shape {array.shape} is said to hold random keys "
            f"of the kind {impl!r:.60}, and cannot: the file that it is from was edited."
        ) from error


def restore(
    arrays: Mapping[str, np.ndarray], keys: Mapping[str, str], like: Any, where: str
) -> Any:
    """A tree in the structure of another, each leaf of the same kind as the one it stands for.

    Args:
        arrays: What `encode` made.
        keys: Which of them are random keys.
        like: A tree of JAX arrays, NumPy arrays, numbers, or shapes; the values do not matter.
        where: What is restored, in an error.

    Raises:
        StoreError: If the names, shapes or types are not those of `like`.
    """
    leaves = {
        name: _as_was(arrays[name], keys.get(name), leaf, name, where)
        for name, leaf in _matched(arrays, like, where).items()
    }
    return arranged(leaves, like, where)


def arranged(leaves: Mapping[str, Any], like: Any, where: str) -> Any:
    """Leaves as they are, in the structure of another tree.

    Raises:
        StoreError: If the names are not those of `like`.
    """
    expected = _matched(leaves, like, where)
    return jax.tree.unflatten(jax.tree.structure(like), [leaves[name] for name in expected])


def nested(leaves: Mapping[str, Any]) -> Any:
    """A nested dictionary by the parts of the names; a leaf without a path stands alone.

    Example:
        >>> from onebasin.store.leaves import nested
        >>> nested({"Dense_0/kernel": 1, "Dense_0/bias": 2, "scale": 3})
        {'Dense_0': {'kernel': 1, 'bias': 2}, 'scale': 3}

    Raises:
        StoreError: If a leaf has the name of a part.
    """
    if set(leaves) == {"params"}:
        return leaves["params"]
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *folders, last = name.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
            _check_part(node, name)
        _check_part(node if last not in node else None, name)
        node[last] = leaf
    return tree


def widened(array: np.ndarray) -> jax.Array:
    """An array as parameters have it: half precision becomes float32. The memory is its own."""
    return jnp.array(array.astype(np.float32) if array.dtype in SHORT else array)


def _check_part(node: Any, name: str) -> None:
    if not isinstance(node, dict):
        raise StoreError(
            f"the leaf {name!r:.100} has the name of a part that holds others: the file that it "
            "is from was edited, or pass `like`."
        )


def _matched(leaves: Mapping[str, Any], like: Any, where: str) -> dict[str, Any]:
    expected = named(like, "the parts of `like`") if jax.tree.leaves(like) else {}
    for name in [*expected, *leaves]:
        if (name in expected) != (name in leaves):
            has, other = ("has no", "one") if name in expected else ("has a", "not")
            raise StoreError(
                f"{where} {has} leaf {name!r}, and `like` has {other}: it was kept by another "
                "model or method."
            )
    return expected


def _as_was(array: np.ndarray, impl: str | None, like: Any, name: str, where: str) -> Any:
    kept = decode(array, impl)
    wanted = getattr(like, "dtype", kept.dtype)
    if (kept.shape, str(kept.dtype)) != (np.shape(like), str(wanted)):
        raise StoreError(
            f"{where} has the leaf {name!r} of shape {kept.shape} and type {kept.dtype}, and "
            f"`like` expects {np.shape(like)} and {wanted}: it was kept by another model or method."
        )
    if impl:
        return kept
    if isinstance(like, bool | int | float | complex):
        return type(like)(array.item())
    if isinstance(like, np.ndarray | np.generic):
        return array.copy()
    # A copy: JAX on CPU would else share the memory of the file, which a donated buffer overwrites.
    restored = jnp.array(array)
    if restored.dtype != array.dtype:
        raise StoreError(
            f"{where} has the leaf {name!r} of type {array.dtype}, which JAX narrows to "
            f"{restored.dtype}: switch on jax_enable_x64, or pass NumPy arrays in `like`."
        )
    return restored
