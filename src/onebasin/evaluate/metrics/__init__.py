"""Predictive metrics: pure functions, in scikit-learn's order of arguments, that can be jitted.

Probabilities are (example, class), or those of samples (sample, example, class): metrics of the
predictive average them first, metrics of the spread ask for them. Every metric takes
`sample_weight=`, and `bootstrap` puts an interval around any of them.
"""

from onebasin.evaluate.metrics.bootstrap import Interval, bootstrap
from onebasin.evaluate.metrics.calibration import adaptive_ece, ece
from onebasin.evaluate.metrics.closeness import agreement, total_variation
from onebasin.evaluate.metrics.detection import aupr, auroc, fpr95, sides
from onebasin.evaluate.metrics.floor import (
    ChainFloor,
    Judgement,
    LeftOut,
    chain_floor,
    left_out,
)
from onebasin.evaluate.metrics.regression import gaussian_nll, rmse
from onebasin.evaluate.metrics.scores import accuracy, brier, nll
from onebasin.evaluate.metrics.spread import (
    disagreement,
    diversity,
    entropy,
    functional_collapse,
    mutual_information,
)

__all__ = [
    "ChainFloor",
    "Interval",
    "Judgement",
    "LeftOut",
    "accuracy",
    "adaptive_ece",
    "agreement",
    "aupr",
    "auroc",
    "bootstrap",
    "brier",
    "chain_floor",
    "disagreement",
    "diversity",
    "ece",
    "entropy",
    "fpr95",
    "functional_collapse",
    "gaussian_nll",
    "left_out",
    "mutual_information",
    "nll",
    "rmse",
    "sides",
    "total_variation",
]
