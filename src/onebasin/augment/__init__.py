"""Changes of training inputs that leave their targets as they are, made anew for every batch.

An augmentation is a function `(key, inputs) -> inputs` that JAX can trace. Those made here are
values: two that are equal are the same augmentation.
"""

from onebasin.augment.compose import compose as compose
from onebasin.augment.crop_and_flip import crop_and_flip as crop_and_flip
from onebasin.augment.cutout import cutout as cutout

__all__ = ["compose", "crop_and_flip", "cutout"]
