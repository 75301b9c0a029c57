"""The study of the compact posterior: what one Gaussian in one basin says of HMC.

After xiao2023compact: HMC, an ensemble and a variational fit, each as one Gaussian before and after
its draws were brought into one basin. Ours beside it: moments and distilled fits, the floor (how
well chains of HMC agree with each other), and the judgement of a chain that was left out.
"""

import importlib

from onebasin.studies.compact.config import CompactConfig
from onebasin.studies.compact.study import study

# Stages join the study in the order in which they run.
for _name in ("posteriors", "quality", "basin", "weights", "pruning", "landscape"):
    importlib.import_module(f"onebasin.studies.compact.{_name}")

__all__ = ["CompactConfig", "study"]
