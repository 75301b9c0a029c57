"""Bayesian neural network posteriors, modulo symmetry."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any
from typing import cast as _cast

from onebasin import align as _align
from onebasin import compact as _compact
from onebasin import symmetry as _symmetry
from onebasin._core.imports import side_effects_undone as _side_effects_undone
from onebasin._modules import Check as _Check
from onebasin._modules import Discover as _Discover
from onebasin._modules import takes_modules as _takes_modules
from onebasin.align import (
    Alignment,
    Barrier,
    Bend,
    CanonicalReport,
    ManyAlignment,
    Plane,
    Repaired,
)
from onebasin.compact import Compact, Distilled, fit_gaussian
from onebasin.posterior import Draws, Gaussian, Mixture, moments, push_forward
from onebasin.symmetry import (
    Element,
    Factor,
    Site,
    Symmetry,
    SymmetryError,
    UnknownPrimitiveWarning,
    random_permutation,
    transpositions,
)

if TYPE_CHECKING:
    from onebasin import augment as augment
    from onebasin import data as data
    from onebasin import engine as engine
    from onebasin import infer as infer
    from onebasin import nets as nets
    from onebasin import report as report
    from onebasin import store as store
    from onebasin import studies as studies
    from onebasin import torch as torch
    from onebasin.evaluate import MMD as MMD
    from onebasin.evaluate import Comparison as Comparison
    from onebasin.evaluate import Diagnostic as Diagnostic
    from onebasin.evaluate import Distances as Distances
    from onebasin.evaluate import IndexTest as IndexTest
    from onebasin.evaluate import PathTranspositions as PathTranspositions
    from onebasin.evaluate import PruneCurve as PruneCurve
    from onebasin.evaluate import Pruned as Pruned
    from onebasin.evaluate import compare as compare
    from onebasin.evaluate import ess as ess
    from onebasin.evaluate import functional_rhat as functional_rhat
    from onebasin.evaluate import index_test as index_test
    from onebasin.evaluate import kl as kl
    from onebasin.evaluate import metrics as metrics
    from onebasin.evaluate import mmd as mmd
    from onebasin.evaluate import order_tau as order_tau
    from onebasin.evaluate import path_transpositions as path_transpositions
    from onebasin.evaluate import predict as predict
    from onebasin.evaluate import prune as prune
    from onebasin.evaluate import prune_curve as prune_curve
    from onebasin.evaluate import rhat as rhat
    from onebasin.evaluate import wasserstein as wasserstein
    from onebasin.infer import Laplace as Laplace
    from onebasin.infer import Normal as Normal
    from onebasin.infer import Problem as Problem
    from onebasin.infer import StudentT as StudentT
    from onebasin.nets import Net as Net
    from onebasin.torch import from_torch as from_torch
    from onebasin.torch import to_torch as to_torch

__version__ = "0.1.0"

# The functions that take PyTorch modules and tensors too.
align = _takes_modules(_align.align)
align_many = _takes_modules(_align.align_many)
barrier = _takes_modules(_align.barrier)
bend = _takes_modules(_align.bend)
canonical_element = _takes_modules(_align.canonical_element)
canonicalize = _takes_modules(_align.canonicalize)
check_symmetry = _cast(_Check, _takes_modules(_symmetry.check_symmetry, networks=True))
compact = _takes_modules(_compact.compact)
discover = _cast(_Discover, _takes_modules(_symmetry.discover, networks=True))
distil = _takes_modules(_compact.distil)
interpolate = _takes_modules(_align.interpolate)
losses = _takes_modules(_align.losses)
marginal_loss = _takes_modules(_align.marginal_loss)
plane = _takes_modules(_align.plane)
repair = _takes_modules(_align.repair)
reset_batch_norm = _takes_modules(_align.reset_batch_norm)

# Rooms that bring heavy libraries along are opened on first use.
_ROOMS = ("augment", "data", "engine", "infer", "nets", "report", "store", "studies", "torch")
_LAZY = {
    "compare": "evaluate",
    "Comparison": "evaluate",
    "Diagnostic": "evaluate",
    "Distances": "evaluate",
    "ess": "evaluate",
    "from_torch": "torch",
    "functional_rhat": "evaluate",
    "index_test": "evaluate",
    "IndexTest": "evaluate",
    "kl": "evaluate",
    "Laplace": "infer",
    "metrics": "evaluate",
    "MMD": "evaluate",
    "mmd": "evaluate",
    "Net": "nets",
    "Normal": "infer",
    "order_tau": "evaluate",
    "path_transpositions": "evaluate",
    "PathTranspositions": "evaluate",
    "predict": "evaluate",
    "Problem": "infer",
    "prune": "evaluate",
    "prune_curve": "evaluate",
    "PruneCurve": "evaluate",
    "Pruned": "evaluate",
    "rhat": "evaluate",
    "StudentT": "infer",
    "to_torch": "torch",
    "wasserstein": "evaluate",
}

__all__ = [
    "MMD",
    "Alignment",
    "Barrier",
    "Bend",
    "CanonicalReport",
    "Compact",
    "Comparison",
    "Diagnostic",
    "Distances",
    "Distilled",
    "Draws",
    "Element",
    "Factor",
    "Gaussian",
    "IndexTest",
    "Laplace",
    "ManyAlignment",
    "Mixture",
    "Net",
    "Normal",
    "PathTranspositions",
    "Plane",
    "Problem",
    "PruneCurve",
    "Pruned",
    "Repaired",
    "Site",
    "StudentT",
    "Symmetry",
    "SymmetryError",
    "UnknownPrimitiveWarning",
    "align",
    "align_many",
    "augment",
    "barrier",
    "bend",
    "canonical_element",
    "canonicalize",
    "check_symmetry",
    "compact",
    "compare",
    "data",
    "discover",
    "distil",
    "engine",
    "ess",
    "fit_gaussian",
    "from_torch",
    "functional_rhat",
    "index_test",
    "infer",
    "interpolate",
    "kl",
    "losses",
    "marginal_loss",
    "metrics",
    "mmd",
    "moments",
    "nets",
    "order_tau",
    "path_transpositions",
    "plane",
    "predict",
    "prune",
    "prune_curve",
    "push_forward",
    "random_permutation",
    "repair",
    "reset_batch_norm",
    "rhat",
    "store",
    "studies",
    "to_torch",
    "torch",
    "transpositions",
    "wasserstein",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return _room(name)
    if name in _LAZY:
        found = getattr(_room(_LAZY[name]), name)
        if name == "predict":
            found = globals()[name] = _takes_modules(found)
        return found
    raise AttributeError(f"module 'onebasin' has no attribute {name!r}")


def _room(name: str) -> Any:
    with _side_effects_undone():
        return importlib.import_module(f"onebasin.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
