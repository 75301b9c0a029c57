"""How good a posterior is: predictions, metrics, distances and diagnostics."""

from onebasin.evaluate import metrics
from onebasin.evaluate.compare import Comparison, Distances, compare
from onebasin.evaluate.gaussians import kl, wasserstein
from onebasin.evaluate.mmd import MMD, mmd
from onebasin.evaluate.predict import predict
from onebasin.evaluate.prune import PruneCurve, Pruned, prune, prune_curve

__all__ = [
    "MMD",
    "Comparison",
    "Distances",
    "PruneCurve",
    "Pruned",
    "compare",
    "kl",
    "metrics",
    "mmd",
    "predict",
    "prune",
    "prune_curve",
    "wasserstein",
]
