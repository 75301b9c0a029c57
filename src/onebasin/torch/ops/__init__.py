"""Rules for PyTorch's operators, a file for each family."""

from onebasin.torch.ops import (
    activations,
    attention,
    casting,
    convolution,
    creation,
    elementwise,
    indexing,
    interpolation,
    linear,
    norms,
    padding,
    pooling,
    recurrent,
    reductions,
    scattering,
    shape,
)

__all__ = [
    "activations",
    "attention",
    "casting",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "interpolation",
    "linear",
    "norms",
    "padding",
    "pooling",
    "recurrent",
    "reductions",
    "scattering",
    "shape",
]
