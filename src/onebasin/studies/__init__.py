"""The three published comparisons, as runs with a configuration, stages and results."""

from onebasin.studies.config import PRESETS, StudyConfig, load_config, presets, validated
from onebasin.studies.errors import StudyError
from onebasin.studies.folder import read_run
from onebasin.studies.joining import help_run
from onebasin.studies.keeping import copy_results, sections
from onebasin.studies.pipeline import Study
from onebasin.studies.registry import STUDIES, get
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
from onebasin.studies.step import Step

__all__ = [
    "PRESETS",
    "STUDIES",
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
    "copy_results",
    "get",
    "help_run",
    "interval",
    "load_config",
    "presets",
    "read_run",
    "sections",
    "validated",
]
