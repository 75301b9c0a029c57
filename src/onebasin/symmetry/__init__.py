"""Which weight changes leave a model's function alone: discovery, elements, action, proof."""

from onebasin.symmetry.discover import discover
from onebasin.symmetry.elements import Element
from onebasin.symmetry.errors import SymmetryError, UnknownPrimitiveWarning
from onebasin.symmetry.factors import Factor, Site
from onebasin.symmetry.group import Symmetry
from onebasin.symmetry.transpositions import random_permutation, transpositions
from onebasin.symmetry.verify import check_symmetry

__all__ = [
    "Element",
    "Factor",
    "Site",
    "Symmetry",
    "SymmetryError",
    "UnknownPrimitiveWarning",
    "check_symmetry",
    "discover",
    "random_permutation",
    "transpositions",
]
