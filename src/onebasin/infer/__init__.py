"""Where posteriors come from: one problem, many methods."""

from onebasin.infer.ensemble import ensemble
from onebasin.infer.loop import DivergenceError
from onebasin.infer.priors import Laplace, Normal, Prior, StudentT
from onebasin.infer.problem import Problem
from onebasin.infer.swag import swag

__all__ = [
    "DivergenceError",
    "Laplace",
    "Normal",
    "Prior",
    "Problem",
    "StudentT",
    "ensemble",
    "swag",
]
