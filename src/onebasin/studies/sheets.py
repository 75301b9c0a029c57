"""Tables as CSV that a spreadsheet shows as it is, and takes for no formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

# Full-width forms too, which some spreadsheets read alike.
BEGINS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def to_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows of texts, numbers and None as CSV.

    Example:
        >>> from onebasin.studies.sheets import to_text
        >>> print(to_text([["=1+1", -1.5, None]]), end="")
        '=1+1,-1.5,
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and _is_formula(value) else value


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet would compute it; a number is what it is."""
    if not text.lstrip().startswith(BEGINS):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False
