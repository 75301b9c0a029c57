"""Which symmetry brings two networks, or two posteriors, together; and what lies between them."""

from onebasin.align.barrier import Barrier, barrier
from onebasin.align.batch_norm import reset_batch_norm
from onebasin.align.bend import Bend, bend
from onebasin.align.canonical import CanonicalReport, canonical_element, canonicalize
from onebasin.align.certificate import Alignment
from onebasin.align.many import ManyAlignment, align_many
from onebasin.align.matching import align
from onebasin.align.paths import interpolate
from onebasin.align.plane import Plane, plane
from onebasin.align.predictive import losses, marginal_loss
from onebasin.align.repair import Repaired, repair

__all__ = [
    "Alignment",
    "Barrier",
    "Bend",
    "CanonicalReport",
    "ManyAlignment",
    "Plane",
    "Repaired",
    "align",
    "align_many",
    "barrier",
    "bend",
    "canonical_element",
    "canonicalize",
    "interpolate",
    "losses",
    "marginal_loss",
    "plane",
    "repair",
    "reset_batch_norm",
]
