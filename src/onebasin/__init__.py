"""Bayesian neural network posteriors, modulo symmetry."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from onebasin.align import (
    Alignment,
    Barrier,
    Bend,
    CanonicalReport,
    ManyAlignment,
    Plane,
    Repaired,
    align,
    align_many,
    barrier,
    bend,
    canonical_element,
    canonicalize,
    interpolate,
    losses,
    marginal_loss,
    plane,
    repair,
    reset_batch_norm,
)
from onebasin.compact import Compact, Distilled, compact, distil, fit_gaussian
from onebasin.posterior import Draws, Gaussian, Mixture, moments, push_forward
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

# Rooms that bring heavy libraries along are opened on first use.
_ROOMS = ("data", "engine", "infer", "nets", "report", "store", "studies", "torch")
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
        return importlib.import_module(f"onebasin.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(f"onebasin.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'onebasin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
