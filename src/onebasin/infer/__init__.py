"""Where posteriors come from: one problem, many methods."""

from onebasin.infer.dropout import dropout
from onebasin.infer.ensemble import ensemble
from onebasin.infer.hmc import hmc
from onebasin.infer.laplace import laplace
from onebasin.infer.loop import DivergenceError
from onebasin.infer.mclmc import mclmc
from onebasin.infer.mean_field import mean_field
from onebasin.infer.multi_mode import multi_mode
from onebasin.infer.nuts import nuts
from onebasin.infer.optimizers import adam, sgd
from onebasin.infer.priors import Laplace, Normal, Prior, StudentT
from onebasin.infer.problem import Problem
from onebasin.infer.sghmc import sghmc
from onebasin.infer.sgld import sgld
from onebasin.infer.swag import swag
from onebasin.infer.trouble import SamplingWarning

__all__ = [
    "DivergenceError",
    "Laplace",
    "Normal",
    "Prior",
    "Problem",
    "SamplingWarning",
    "StudentT",
    "adam",
    "dropout",
    "ensemble",
    "hmc",
    "laplace",
    "mclmc",
    "mean_field",
    "multi_mode",
    "nuts",
    "sgd",
    "sghmc",
    "sgld",
    "swag",
]
