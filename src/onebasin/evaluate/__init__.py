"""How good a posterior is: predictions, metrics, distances and diagnostics."""

from onebasin.evaluate import metrics
from onebasin.evaluate.predict import predict

__all__ = ["metrics", "predict"]
