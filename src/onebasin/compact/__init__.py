"""One posterior in one basin: scaling removed, aligned, fitted, distilled."""

from onebasin.compact.distilling import Distilled, distil
from onebasin.compact.fitting import fit_gaussian, fit_mixture
from onebasin.compact.inputs import mixtures, shifts, together
from onebasin.compact.pipeline import compact
from onebasin.compact.result import Compact

__all__ = [
    "Compact",
    "Distilled",
    "compact",
    "distil",
    "fit_gaussian",
    "fit_mixture",
    "mixtures",
    "shifts",
    "together",
]
