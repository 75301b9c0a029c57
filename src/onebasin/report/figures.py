"""Figures as the page's script draws them: the record, with looks and ranges worked out."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Any

from onebasin._core.text import readable
from onebasin.report import palette
from onebasin.studies import Axis, Figure, Map, Panel, Series

# Names under more bars than this are hard to read side by side: panels take the whole width.
MANY_BARS = 8


@dataclasses.dataclass
class LegendEntry:
    """A name in the legend, and how it is drawn."""

    name: str
    look: palette.Look
    style: str
    on_map: bool = False


@dataclasses.dataclass
class LegendView:
    """What one switch of a figure shows and hides."""

    key: str
    group: str
    entries: list[LegendEntry]


@dataclasses.dataclass
class FigureView:
    """A figure, ready for the page."""

    id: str
    title: str
    text: str
    panels: list[str]
    legend: list[LegendView]
    slider: str
    frames: list[str]
    spec: dict[str, Any]
    square: bool = False
    wide: bool = False
    kind: str = "figure"
    run: str = ""

    @property
    def alt(self) -> str:
        """What it shows, for those who do not see it."""
        return f"{self.title}. {self.text}" if self.text else self.title


def view(figure: Figure, id: str, known: dict[str, int], run: str = "") -> FigureView:
    """A figure for the page.

    Args:
        figure: The record.
        id: Its name on the page.
        known: Numbers of groups, from `palette.slots`.
        run: The run that it is of, where a page shows several.
    """
    looks = palette.looks(figure, known)
    panels = [_panel(panel, looks) for panel in figure.panels]
    frames = [_content(frame.series, frame.map, looks) for frame in figure.frames]
    for frame, record in zip(frames, figure.frames, strict=True):
        frame["label"] = record.label
    if figure.frames and panels:
        first = figure.panels[0]
        maps = [frame.map for frame in figure.frames if frame.map]
        series = [s for frame in figure.frames for s in frame.series]
        panels[0]["range"] = _ranges(first, series, maps)
        panels[0]["level"] = _level(maps)
    spec = {"name": id, "panels": panels, "frames": frames}
    return FigureView(
        id=id,
        title=figure.title,
        text=figure.text,
        panels=[panel.title for panel in figure.panels],
        legend=legend(figure, looks),
        slider=figure.slider or "Step",
        frames=[frame.label for frame in figure.frames],
        spec=spec,
        square=any(part.map for part in palette.contents(figure)),
        wide=any(
            series.style == "bars" and len(series.labels or ()) > MANY_BARS
            for part in palette.contents(figure)
            for series in part.series
        ),
        run=run,
    )


def legend(figure: Figure, looks: dict[tuple[str, str], palette.Look]) -> list[LegendView]:
    """One entry per group or lone series; none where there is nothing to tell apart."""
    found: dict[str, LegendView] = {}
    for part in palette.contents(figure):
        for series in part.series:
            key = f"g:{series.group}" if series.group else f"s:{series.name}"
            entry = found.setdefault(key, LegendView(key, series.group, []))
            if all(known.name != series.name for known in entry.entries):
                look = looks[series.group, series.name]
                on_map = part.map is not None
                entry.entries.append(LegendEntry(series.name, look, series.style, on_map))
    for entry in found.values():
        others = [known for known in entry.entries if known.name != entry.group]
        entry.entries = others if len(others) > 1 else entry.entries[:1]
    return list(found.values()) if _tells(found.values()) else []


def _tells(entries: Iterable[LegendView]) -> bool:
    return sum(len(entry.entries) for entry in entries) > 1


def safe_json(content: Any) -> str:
    """JSON that may stand inside a script element, whatever its texts hold."""
    text = json.dumps(
        _readable(content), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _readable(content: Any) -> Any:
    """The same with texts as they can be read; long lists are of numbers."""
    if isinstance(content, str):
        return readable(content)
    if isinstance(content, dict):
        return {key: _readable(value) for key, value in content.items()}
    if isinstance(content, list) and not (content and isinstance(content[0], float | None)):
        return [_readable(value) for value in content]
    return content


def _panel(panel: Panel, looks: dict[tuple[str, str], palette.Look]) -> dict[str, Any]:
    content = _content(panel.series, panel.map, looks)
    content |= {"title": panel.title, "x": panel.x.model_dump(), "y": panel.y.model_dump()}
    if panel.map:
        content["range"] = _ranges(panel, [], [panel.map])
        content["level"] = _level([panel.map])
    return content


def _content(
    series: Iterable[Series], grid: Map | None, looks: dict[tuple[str, str], palette.Look]
) -> dict[str, Any]:
    content: dict[str, Any] = {"series": [_series(s, looks[s.group, s.name]) for s in series]}
    if grid:
        rows = [_short(row) for row in grid.z]
        content["map"] = {
            **{"x": _short(grid.x), "y": _short(grid.y), "z": rows},
            **{"label": grid.label, "log": grid.log},
        }
    return content


def _series(series: Series, look: palette.Look) -> dict[str, Any]:
    content: dict[str, Any] = {
        "key": f"g:{series.group}" if series.group else f"s:{series.name}",
        "name": series.name,
        "group": series.group,
        "style": series.style,
        "look": dataclasses.asdict(look),
        "x": _short(series.x),
        "y": _short(series.y),
    }
    if series.low is not None and series.high is not None:
        content |= {"low": _short(series.low), "high": _short(series.high)}
    if series.labels:
        content["labels"] = series.labels
    return content


def _short(values: Iterable[float | None]) -> list[float | None]:
    """Seven digits, which is what float32 holds: the page is half as large."""
    return [None if value is None else float(f"{value:.7g}") for value in values]


def _ranges(panel: Panel, series: Iterable[Series], maps: list[Map]) -> dict[str, list[float]]:
    """Axes that hold all frames, so that nothing jumps when the slider moves."""
    series = list(series)
    found = {}
    for name, axis in (("x", panel.x), ("y", panel.y)):
        if maps:
            edges = [edge for grid in maps for edge in _edges(getattr(grid, name))]
            if edges and not axis.log:
                found[name] = [min(edges), max(edges)]
            continue
        values = [v for s in series for v in _values(s, name)]
        if bounds := _bounds(values, axis):
            found[name] = bounds
    return found


def _values(series: Series, name: str) -> list[float]:
    lists = [series.x] if name == "x" else [series.y, series.low or [], series.high or []]
    if name == "y" and series.style == "bars":
        lists.append([0.0])
    return [value for values in lists for value in values if value is not None]


def _bounds(values: list[float], axis: Axis) -> list[float] | None:
    """The ends of an axis with room around them; exponents where it is logarithmic."""
    if axis.log:
        values = [math.log10(value) for value in values if value > 0]
    if not values:
        return None
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.5
    return [low - room, high + room]


def _edges(values: list[float | None]) -> list[float]:
    """Where the cells of a grid begin and end."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return known
    return [known[0] - (known[1] - known[0]) / 2, known[-1] + (known[-1] - known[-2]) / 2]


def _level(maps: list[Map]) -> list[float] | None:
    """The least and the largest value over all frames."""
    values = [v for grid in maps for row in grid.z for v in row if v is not None]
    if maps and maps[0].log:
        values = [math.log10(value) for value in values if value > 0]
    return [min(values), max(values)] if values else None
