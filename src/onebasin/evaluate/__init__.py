"""How good a posterior is: predictions, metrics, distances and diagnostics."""

from onebasin.evaluate import metrics
from onebasin.evaluate.mmd import MMD, mmd
from onebasin.evaluate.predict import predict

__all__ = ["MMD", "metrics", "mmd", "predict"]
