"""An augmentation is tried out before it is trained with."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from onebasin.posterior.trees import named_leaves

# Examples that it is tried on.
FEW = 4


def check_augmentation(augment: Any, inputs: Any) -> None:
    """Refuses what is no function of key and inputs that gives inputs of the same kind.

    Args:
        augment: `augment(key, inputs) -> inputs`.
        inputs: Training inputs, of which a few are tried.
    """
    if not callable(augment):
        raise TypeError(
            f"augment is {type(augment).__name__}, expected a function (key, inputs) -> inputs "
            "such as onebasin.augment.crop_and_flip()"
        )
    few = jax.tree.map(lambda x: x[:FEW], inputs)
    try:
        shapes = jax.eval_shape(augment, jax.random.key(0), few)
    except Exception as error:
        raise ValueError(
            f"augment cannot be compiled on the training inputs ({error}): expected a function "
            "(key, inputs) -> inputs of JAX operations"
        ) from error
    before = {name: (x.shape, str(x.dtype)) for name, x in named_leaves(few)}
    after = {name: (x.shape, str(x.dtype)) for name, x in named_leaves(shapes)}
    if before != after:
        raise ValueError(
            f"augment makes {_told(after)} of inputs of {_told(before)}, expected the same shape "
            "and type: cast and cut what it returns"
        )
    # Each traced anew: what is drawn elsewhere than from the key is another number then.
    first, second = (
        jax.jit(lambda key, x: augment(key, x))(jax.random.key(0), few) for _ in range(2)
    )
    if not jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), first, second)):
        raise ValueError(
            "augment gives different inputs for the same key: draw all of its random numbers from "
            "the key, so that training can be repeated and continued"
        )


def _told(kinds: dict[str, Any]) -> str:
    return ", ".join(f"shape {shape} and type {dtype}" for shape, dtype in kinds.values())
