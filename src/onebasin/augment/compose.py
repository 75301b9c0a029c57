"""Several augmentations, one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

Augment = Callable[[jax.Array, Any], Any]


@dataclasses.dataclass(frozen=True)
class _Composed:
    parts: tuple[Augment, ...]

    def __call__(self, key: jax.Array, inputs: Any) -> Any:
        for own, part in zip(jax.random.split(key, len(self.parts)), self.parts, strict=True):
            inputs = part(own, inputs)
        return inputs


def compose(*augmentations: Augment) -> Augment:
    """Applies augmentations one after the other, each with a random key of its own.

    Args:
        *augmentations: Functions `(key, inputs) -> inputs`, the first to be applied first.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> both = ob.augment.compose(ob.augment.crop_and_flip(), ob.augment.cutout(8))
        >>> both(jax.random.key(0), jnp.ones((2, 32, 32, 3))).shape
        (2, 32, 32, 3)
    """
    if not augmentations or not all(callable(part) for part in augmentations):
        kinds = ", ".join(type(part).__name__ for part in augmentations) or "nothing"
        raise TypeError(f"got {kinds}, expected functions (key, inputs) -> inputs")
    return _Composed(tuple(augmentations))
