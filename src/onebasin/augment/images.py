"""What augmentations of images share."""

from __future__ import annotations

import jax


def check_images(inputs: jax.Array, what: str) -> None:
    """Refuses what is no batch of images, in words."""
    shape = getattr(inputs, "shape", None)
    if shape is None or len(shape) != 4:
        got = f"inputs of shape {shape}" if shape is not None else type(inputs).__name__
        raise ValueError(
            f"{what} got {got}, expected images of shape (batch, height, width, channels): give "
            "grey images their channel axis."
        )
