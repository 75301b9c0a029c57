"""What a run found, as one page that opens anywhere, and single figures for print."""

from onebasin.report.building import build
from onebasin.report.picture import picture

__all__ = ["build", "picture"]
