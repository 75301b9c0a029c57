"""Flax, brought in so that Python's random state stays as it was."""

from onebasin._core.imports import side_effects_undone

with side_effects_undone():
    import flax.linen as nn

__all__ = ["nn"]
