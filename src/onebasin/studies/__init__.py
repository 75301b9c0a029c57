"""The three published comparisons, as runs with a configuration, stages and results."""

from onebasin.studies.config import PRESETS, StudyConfig, load_config
from onebasin.studies.errors import StudyError
from onebasin.studies.pipeline import Step, Study, read_run, sections
from onebasin.studies.results import (
    Axis,
    Cell,
    Column,
    Figure,
    Frame,
    Headline,
    Map,
    Panel,
    Row,
    Section,
    Series,
    Table,
    interval,
)

__all__ = [
    "PRESETS",
    "Axis",
    "Cell",
    "Column",
    "Figure",
    "Frame",
    "Headline",
    "Map",
    "Panel",
    "Row",
    "Section",
    "Series",
    "Step",
    "Study",
    "StudyConfig",
    "StudyError",
    "Table",
    "interval",
    "load_config",
    "read_run",
    "sections",
]
