"""Two examples in place of a batch, where the other examples would prove nothing more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from onebasin.symmetry.program import Program, calls_host, trace

# One would be broadcast where the batch is not, and would hide examples that mix.
FEW = 2


def two_examples(
    program: Program, apply_fn: Callable[..., Any], params: Any, inputs: Any
) -> Any | None:
    """The inputs cut to two examples, if the model then runs the same program; else None.

    The model may still let its examples mix: then the outputs of one depend on the other.

    Args:
        program: The model on all of the inputs.
        apply_fn: The model.
        params: Its parameters, or their shapes.
        inputs: Inputs, arrays or shapes.
    """
    leaves, structure = jax.tree.flatten(inputs)
    counts = {np.shape(leaf)[:1] for leaf in leaves}
    if len(counts) != 1 or counts == {()} or min(counts)[0] <= FEW or calls_host(program):
        return None
    count = min(counts)[0]
    picked = np.array([0, _another(leaves, count)])
    few = jax.tree.unflatten(structure, [_picked(leaf, picked) for leaf in leaves])
    try:
        cut = trace(apply_fn, params, few)
    except Exception:
        return None
    return few if _alike(program, cut, count) else None


def doubled(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The second of two examples, twice; what has no two examples is left as it is."""
    return [np.repeat(x[1:], FEW, axis=0) if x.shape[:1] == (FEW,) else x for x in arrays]


def _another(leaves: Sequence[Any], count: int) -> int:
    """The first example that differs from example 0; where all are alike, any will do."""
    differs = np.zeros(count, bool)
    for leaf in leaves:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            return 1
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
            values = np.asarray(leaf).reshape(count, -1)
            differs |= (values != values[:1]).any(axis=1)
    return int(np.argmax(differs)) or 1


def _picked(leaf: Any, picked: np.ndarray) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct((FEW, *leaf.shape[1:]), leaf.dtype)
    return leaf[picked]


def _alike(whole: Program, cut: Program, count: int) -> bool:
    """Whether two programs do the same, to outputs that differ in the number of examples at most.

    A model may do one thing to few examples and another to many.
    """
    if [e.name for e in whole.equations] != [e.name for e in cut.equations]:
        return False
    return all(
        a.aval.dtype == b.aval.dtype
        and (a.shape == b.shape or (a.shape, b.shape[:1]) == ((count, *b.shape[1:]), (FEW,)))
        for a, b in zip(whole.outputs, cut.outputs, strict=True)
    )
