"""The study of variational posteriors: pairs of mean-field solutions, aligned and joined."""

from onebasin.studies.variational import aligning, joining, varying
from onebasin.studies.variational.base import VariationalConfig, setting, study

__all__ = ["VariationalConfig", "aligning", "joining", "setting", "study", "varying"]
