"""Bayesian neural network posteriors, modulo symmetry."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from onebasin.symmetry import (
    Element,
    Factor,
    Site,
    Symmetry,
    SymmetryError,
    UnknownPrimitiveWarning,
    check_symmetry,
    discover,
    random_permutation,
    transpositions,
)

if TYPE_CHECKING:
    from onebasin import nets as nets
    from onebasin.nets import Net as Net

__version__ = "0.1.0"

# Rooms that bring heavy libraries along are opened on first use.
_ROOMS = ("nets",)
_LAZY = {"Net": "nets"}

__all__ = [
    "Element",
    "Factor",
    "Net",
    "Site",
    "Symmetry",
    "SymmetryError",
    "UnknownPrimitiveWarning",
    "check_symmetry",
    "discover",
    "nets",
    "random_permutation",
    "transpositions",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"onebasin.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(f"onebasin.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'onebasin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
