"""A zoo of models, each with the symmetry group that it has: see `Case`."""

from . import activations, attention, conv, frameworks, mlp, recurrent, traps
from .case import THOROUGH as THOROUGH
from .case import Case as Case
from .case import as_float64 as as_float64

CASES: tuple[Case, ...] = (
    *mlp.CASES,
    *activations.CASES,
    *conv.CASES,
    *recurrent.CASES,
    *attention.CASES,
    *traps.CASES,
    *frameworks.CASES,
)
