"""The study of variational posteriors: pairs of mean-field solutions, aligned and joined.

After rossi2023permutation: which cost finds the permutation between two distributions, and what
barrier is left on which path.
"""

import importlib

from onebasin.studies.variational.base import VariationalConfig, setting, study

# Stages join the study in the order in which they run.
for _name in ("aligning", "joining", "ladder", "varying"):
    importlib.import_module(f"onebasin.studies.variational.{_name}")

__all__ = ["VariationalConfig", "setting", "study"]
