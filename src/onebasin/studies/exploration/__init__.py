"""The study of populations: which posterior approximate methods explore.

After laurent2024symmetry: samples of every method against a population of trained networks, in
weight space modulo symmetry and in what they predict.
"""

import importlib

from onebasin.studies.exploration.base import ExplorationConfig, setting, study

# Stages join the study in the order in which they run.
for _name in ("populations", "distance", "mass", "chains", "uncertainty", "quality"):
    importlib.import_module(f"onebasin.studies.exploration.{_name}")

__all__ = ["ExplorationConfig", "setting", "study"]
