"""What a study finds: tables and figures as plain data, which a report draws and a script reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from onebasin.studies.sheets import to_text


def _plain(value: Any) -> Any:
    """NumPy and JAX numbers and arrays as Python's own; what is not finite as None."""
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _plain(np.asarray(value).tolist())


if TYPE_CHECKING:
    # Arrays are welcome: they are turned into lists on the way in.
    Number: TypeAlias = Any
    Numbers: TypeAlias = Any
    Grid: TypeAlias = Any
else:
    Number = Annotated[float | None, BeforeValidator(_plain)]
    Numbers = Annotated[list[float | None], BeforeValidator(_plain)]
    Grid = Annotated[list[list[float | None]], BeforeValidator(_plain)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cell(_Record):
    """One number, how sure it is, and what was published for it."""

    value: Number
    low: Number = None
    high: Number = None
    published: Number = None
    note: str = ""


class Column(_Record):
    """What a column holds."""

    key: str
    label: str
    digits: int = Field(4, ge=0, le=20)
    better: Literal["higher", "lower"] | None = None
    note: str = ""


class Row(_Record):
    """One method, pair or layer; rows of one group stand together."""

    label: str
    group: str = ""
    cells: dict[str, Cell]
    emphasis: bool = False


class Table(_Record):
    """A table: a title that says what one sees, a sentence or two beside it."""

    kind: Literal["table"] = "table"
    name: str = Field(pattern=r"^[a-z0-9-]+$")
    title: str
    text: str = ""
    columns: list[Column]
    rows: list[Row]

    def cell(self, label: str, key: str) -> Cell:
        """The cell of a row and a column.

        Raises:
            KeyError: If there is none, naming what there is.
        """
        for row in self.rows:
            if row.label == label and key in row.cells:
                return row.cells[key]
        raise KeyError(
            f"table {self.name!r} has no cell ({label!r}, {key!r}); rows: "
            f"{[row.label for row in self.rows]}, columns: {[c.key for c in self.columns]}"
        )

    def to_csv(self) -> str:
        """The table as text; an interval and a published number are columns of their own."""
        parts = ("value", "low", "high", "published")
        used = [
            (column.key, part)
            for column in self.columns
            for part in parts
            if part == "value"
            or any(
                getattr(row.cells[column.key], part) is not None
                for row in self.rows
                if column.key in row.cells
            )
        ]
        rows: list[list[Any]] = [
            ["group", "row", *(k if p == "value" else f"{k} {p}" for k, p in used)]
        ]
        for row in self.rows:
            cells = [getattr(row.cells[k], p) if k in row.cells else None for k, p in used]
            rows.append([row.group, row.label, *cells])
        return to_text(rows)


class Axis(_Record):
    """A label, with its unit, and whether it counts in powers of ten."""

    label: str
    log: bool = False


class Series(_Record):
    """One line or cloud of points, with a band where there is one.

    `group` names what can be switched on and off together, such as a method.
    """

    name: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    labels: list[str] | None = None
    group: str = ""
    style: Literal["line", "points", "line+points", "step", "bars"] = "line"
    dash: bool = False


class Map(_Record):
    """Values on a grid: z[i][j] at (x[j], y[i]), with named points on top."""

    x: Numbers
    y: Numbers
    z: Grid
    label: str
    log: bool = False


class Frame(_Record):
    """What one position of a slider shows."""

    label: str
    series: list[Series] = []
    map: Map | None = None


class Panel(_Record):
    """Axes with what is drawn in them."""

    title: str = ""
    x: Axis
    y: Axis
    series: list[Series] = []
    map: Map | None = None


class Figure(_Record):
    """A picture of one or more panels side by side, or one panel with a slider.

    With `frames`, what the first panel shows is replaced by the frame that the slider stands at;
    `slider` is the slider's label.
    """

    kind: Literal["figure"] = "figure"
    name: str = Field(pattern=r"^[a-z0-9-]+$")
    title: str
    text: str = ""
    panels: list[Panel]
    frames: list[Frame] = []
    slider: str = ""


class Headline(_Record):
    """One of the few numbers that matter, for the top of the page."""

    label: str
    value: str
    text: str = ""


class Section(_Record):
    """What one stage found: tables and figures under one title, in the order of reading."""

    title: str
    text: str = ""
    items: list[Annotated[Table | Figure, Field(discriminator="kind")]] = []
    headlines: list[Headline] = []

    def table(self, name: str) -> Table:
        """The table of a name."""
        for item in self.items:
            if isinstance(item, Table) and item.name == name:
                return item
        tables = [item.name for item in self.items if isinstance(item, Table)]
        raise KeyError(f"no table {name!r} in {self.title!r}; there are {tables}")


def middle(values: np.ndarray, share: float = 0.9) -> Cell:
    """The median of many values, with the range of the middle ones; NaN is left out."""
    edges = [(1 - share) / 2, 0.5, (1 + share) / 2]
    # Between two infinite values there is nothing to interpolate.
    method: Any = "nearest" if np.isinf(values).any() else "linear"
    low, median, high = np.nanquantile(values, edges, method=method)
    return Cell(value=median, low=low, high=high)


def interval(
    values: Sequence[float] | np.ndarray, level: float = 0.95, *, log: bool = False
) -> Cell:
    """The mean of a few runs, with Student's interval for it; one run has none.

    Args:
        values: One number for each run.
        level: How sure the interval is.
        log: Whether mean and interval are those of the logarithms, taken back: for seconds and
            other positive numbers, which lie far apart upwards and never below zero.
    """
    from scipy import stats

    values = np.asarray(values, float)
    if log:
        found = interval(np.log(values), level)
        ends = {k: float(np.exp(v)) for k, v in found if isinstance(v, float)}
        return found.model_copy(update=ends)
    mean = float(values.mean())
    if len(values) < 2:
        return Cell(value=mean)
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    return Cell(value=mean, low=mean - half, high=mean + half)
