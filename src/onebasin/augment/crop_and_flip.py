"""Images moved by a few pixels, and mirrored: what residual networks are trained with."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from onebasin.augment.compose import Augment
from onebasin.augment.images import check_images

MODES = ("reflect", "edge", "zeros")


@dataclasses.dataclass(frozen=True)
class _CropAndFlip:
    padding: int
    mode: str
    flip: bool

    def __call__(self, key: jax.Array, inputs: jax.Array) -> jax.Array:
        check_images(inputs, "crop_and_flip")
        count, height, width, _ = inputs.shape
        if self.mode == "reflect" and self.padding >= min(height, width):
            raise ValueError(
                f"crop_and_flip got padding={self.padding} and images of {height} x {width} "
                "pixels, expected fewer pixels to reflect than there are."
            )
        down, across, mirror = jax.random.split(key, 3)
        rows, inside_rows = self._places(down, count, height)
        columns, inside_columns = self._places(across, count, width)
        if self.flip:
            turned = jax.random.bernoulli(mirror, 0.5, (count, 1))
            columns = jnp.where(turned, columns[:, ::-1], columns)
            inside_columns = jnp.where(turned, inside_columns[:, ::-1], inside_columns)
        image = jnp.arange(count)[:, None, None]
        moved = inputs[image, rows[:, :, None], columns[:, None, :]]
        if self.mode != "zeros":
            return moved
        inside = inside_rows[:, :, None, None] & inside_columns[:, None, :, None]
        return jnp.where(inside, moved, jnp.zeros((), inputs.dtype))

    def _places(self, key: jax.Array, count: int, size: int) -> tuple[jax.Array, jax.Array]:
        """Where each row of each image comes from, and whether it was one of the image."""
        shift = jax.random.randint(key, (count, 1), -self.padding, self.padding + 1)
        place = shift + jnp.arange(size)
        inside = (place >= 0) & (place < size)
        if self.mode == "reflect":
            place = (size - 1) - jnp.abs((size - 1) - jnp.abs(place))
        return jnp.clip(place, 0, size - 1), inside


def crop_and_flip(padding: int = 4, mode: str = "reflect", flip: bool = True) -> Augment:
    """Moves each image by up to some pixels either way, and mirrors half of them.

    Args:
        padding: The most pixels, down and across.
        mode: What comes in at the edges: "reflect" (the image mirrored, its edge not twice),
            "edge" (its edge over and over) or "zeros".
        flip: Whether half of the images are mirrored left to right.

    Returns:
        A function `(key, images) -> images` for images (batch, height, width, channels) of any
        type of number.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> images = jnp.arange(2 * 32 * 32, dtype=jnp.uint8).reshape(2, 32, 32, 1)
        >>> moved = ob.augment.crop_and_flip(padding=4)(jax.random.key(0), images)
        >>> moved.shape, moved.dtype
        ((2, 32, 32, 1), dtype('uint8'))
    """
    if mode not in MODES:
        raise ValueError(f"got mode={mode!r}, expected one of {', '.join(map(repr, MODES))}")
    if not isinstance(padding, int) or isinstance(padding, bool) or padding < 0:
        raise ValueError(f"got padding={padding!r}, expected a number of pixels, 0 or more")
    return _CropAndFlip(padding, mode, flip)
