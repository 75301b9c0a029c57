"""Images with a square left out (devries2017improved)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from onebasin.augment.compose import Augment
from onebasin.augment.images import check_images


@dataclasses.dataclass(frozen=True)
class _Cutout:
    size: int
    fill: float

    def __call__(self, key: jax.Array, inputs: jax.Array) -> jax.Array:
        check_images(inputs, "cutout")
        down, across = jax.random.split(key)
        rows = self._hidden(down, inputs.shape[0], inputs.shape[1])
        columns = self._hidden(across, inputs.shape[0], inputs.shape[2])
        hidden = rows[:, :, None, None] & columns[:, None, :, None]
        return jnp.where(hidden, jnp.asarray(self.fill, inputs.dtype), inputs)

    def _hidden(self, key: jax.Array, count: int, length: int) -> jax.Array:
        """Which rows of each image the square covers; its middle may be any of them."""
        first = jax.random.randint(key, (count, 1), 0, length) - self.size // 2
        place = jnp.arange(length)
        return (place >= first) & (place < first + self.size)


def cutout(size: int = 8, fill: float = 0.0) -> Augment:
    """Hides a square of each image, whose middle may be any pixel (devries2017improved).

    Args:
        size: Pixels on a side of the square; at an edge of the image less of it is seen.
        fill: The value in the square.

    Returns:
        A function `(key, images) -> images` for images (batch, height, width, channels).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> hidden = ob.augment.cutout(4)(jax.random.key(0), jnp.ones((3, 16, 16, 1)))
        >>> bool((hidden.sum((1, 2, 3)) >= 256 - 16).all())
        True
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"got size={size!r}, expected a number of pixels, 1 or more")
    return _Cutout(size, float(fill))
