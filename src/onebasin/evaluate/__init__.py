"""How good a posterior is: predictions, metrics, distances and diagnostics."""

from onebasin.evaluate import metrics
from onebasin.evaluate.compare import Comparison, Distances, compare
from onebasin.evaluate.convergence import ess, functional_rhat, rhat
from onebasin.evaluate.diagnostic import Diagnostic
from onebasin.evaluate.gaussians import kl, wasserstein
from onebasin.evaluate.mmd import MMD, mmd
from onebasin.evaluate.predict import predict
from onebasin.evaluate.prune import PruneCurve, Pruned, prune, prune_curve
from onebasin.evaluate.unit_index import IndexTest, index_test
from onebasin.evaluate.unit_order import PathTranspositions, order_tau, path_transpositions

__all__ = [
    "MMD",
    "Comparison",
    "Diagnostic",
    "Distances",
    "IndexTest",
    "PathTranspositions",
    "PruneCurve",
    "Pruned",
    "compare",
    "ess",
    "functional_rhat",
    "index_test",
    "kl",
    "metrics",
    "mmd",
    "order_tau",
    "path_transpositions",
    "predict",
    "prune",
    "prune_curve",
    "rhat",
    "wasserstein",
]
