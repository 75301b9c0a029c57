"""What the forms of a posterior share: registration as pytrees, and checks that name the leaf."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry import host
from onebasin.symmetry.group import path_name

Class = TypeVar("Class", bound=type)
# Marks a field that tells of the computation that made an object.
RECORD = {"record": True}


def pytree(cls: Class) -> Class:
    """Registers a dataclass as a pytree whose fields are its children.

    Fields marked as `record` stay behind: they tell of a computation and take part in none.
    Unflattening skips `__init__`: JAX rebuilds trees around things that are not arrays (axes,
    shapes, placeholders), and the checks of a constructor would refuse them.
    """
    fields = dataclasses.fields(cls)
    names = [field.name for field in fields if not field.metadata.get("record")]
    records = [field.name for field in fields if field.metadata.get("record")]

    def flatten(node: Any) -> tuple[list[tuple[Any, Any]], None]:
        return [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in names], None

    def unflatten(_: None, children: Any) -> Any:
        node: Any = object.__new__(cls)
        for name, child in zip(names, children, strict=True):
            object.__setattr__(node, name, child)
        for name in records:
            object.__setattr__(node, name, None)
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls


def is_float(leaf: Any) -> bool:
    """Whether a leaf takes part in arithmetic: counters and keys do not."""
    return bool(jax.dtypes.issubdtype(jnp.result_type(leaf), np.inexact))


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a tree, each with its path as people write it."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return [(path_name(path) or "params", leaf) for path, leaf in found]


def with_arrays(tree: Any, what: str) -> Any:
    """A tree of data whose lists of numbers, however deep, are arrays; others stay containers.

    Args:
        tree: The data.
        what: What to call them in an error.
    """

    def convert(node: Any) -> Any:
        if not _is_numbers(node):
            return node
        try:
            return np.asarray(node)
        except ValueError as error:
            raise ValueError(
                f"got lists of numbers of different lengths in {what}, expected rows equally long; "
                "pad them, or pass an array"
            ) from error

    return jax.tree.map(convert, tree, is_leaf=_is_numbers)


def _is_numbers(node: Any) -> bool:
    """Whether this is a list of numbers, or of such lists."""
    if not isinstance(node, list | tuple) or not node:
        return False
    number = (bool, int, float, np.number, np.bool_)
    return all(isinstance(each, number) or _is_numbers(each) for each in node)


def num_weights(tree: Any) -> int:
    """Number of entries of all leaves."""
    return sum(int(np.prod(np.shape(leaf))) for leaf in jax.tree.leaves(tree))


def check_same(a: Any, b: Any, name_a: str, name_b: str, lead: tuple[int, ...] = ()) -> None:
    """Raises unless two trees have the same structure and shapes, naming the first odd leaf.

    Args:
        a: The tree that sets the standard.
        b: The tree that is checked.
        name_a: What to call the first.
        name_b: What to call the second.
        lead: Axes that every leaf of the second has in front of its own.
    """
    leaves_a, leaves_b = named_leaves(a), named_leaves(b)
    paths_a, paths_b = dict(leaves_a), dict(leaves_b)
    for path in paths_a:
        if path not in paths_b:
            raise ValueError(
                f"{name_b} has no leaf {path!r}, which {name_a} has; both must be trees of the "
                "same model"
            )
    for path in paths_b:
        if path not in paths_a:
            raise ValueError(
                f"{name_b} has a leaf {path!r}, which {name_a} has not; both must be trees of the "
                "same model"
            )
    structures: list[Any] = [jax.tree.structure(a), jax.tree.structure(b)]
    if structures[0] != structures[1]:
        raise ValueError(
            f"{name_a} and {name_b} have the same leaves in different containers: "
            f"{structures[0]} and {structures[1]}; make them alike, and what comes from a file by "
            "reading it with like=PARAMS, the parameters of one network"
        )
    for (path, x), (_, y) in zip(leaves_a, leaves_b, strict=True):
        expected = (*lead, *np.shape(x))
        if np.shape(y) != expected:
            raise ValueError(
                f"leaf {path!r} of {name_b} has shape {np.shape(y)}, expected {expected} as "
                f"{name_a} has {np.shape(x)}; both must be trees of the same model"
            )


def check_floats(tree: Any, what: str) -> None:
    """Raises if a leaf is not floating point, naming it."""
    for path, leaf in named_leaves(tree):
        if not is_float(leaf):
            raise ValueError(
                f"leaf {path!r} of {what} is {jnp.result_type(leaf)}, expected floating point; "
                "keep counters and keys out of the tree"
            )


@jax.jit
def _not_finite(leaf: jax.Array) -> jax.Array:
    """How many; compiled, so that no mask as large as the leaf is made."""
    return jnp.sum(~jnp.isfinite(leaf))


def check_finite(tree: Any, what: str) -> None:
    """Raises if a leaf holds NaN or infinity, naming it."""
    for path, leaf in named_leaves(tree):
        if is_float(leaf):
            bad = int(_not_finite(leaf))
            if bad:
                raise ValueError(
                    f"leaf {path!r} of {what} holds {bad:,} NaN or infinite values among "
                    f"{np.size(leaf):,}; leave out the networks that diverged"
                )


def widened(tree: Any) -> Any:
    """Floating-point leaves in single precision at least."""
    return jax.tree.map(host.widened, tree)
