"""Which studies there are; each is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from onebasin.studies.config import nearest
from onebasin.studies.errors import StudyError
from onebasin.studies.pipeline import Study

STUDIES = ("compact", "variational", "exploration")


def get(name: str) -> Study[Any]:
    """The study of a name.

    Raises:
        StudyError: If there is none, naming the nearest.
    """
    if name not in STUDIES:
        guess = nearest(name, STUDIES)
        hint = f" (did you mean {guess!r}?)" if guess else ""
        raise StudyError(f"got the study {name!r}, expected one of {', '.join(STUDIES)}{hint}")
    study: Study[Any] = importlib.import_module(f"onebasin.studies.{name}").study
    return study
