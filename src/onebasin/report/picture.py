"""A figure for print, drawn from the same record as on the page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from onebasin.report import figures, palette
from onebasin.studies import Figure, Frame, Map, Panel, Series

if TYPE_CHECKING:
    import matplotlib.figure

MARKERS = dict(zip(palette.SYMBOLS, ("o", "s", "D", "^", "P", "X", "*", "v"), strict=True))
HATCHES = dict(zip(palette.PATTERNS, ("", "//", "xx", "--", "\\\\", "||", "++", ".."), strict=True))


def picture(figure: Figure, frame: int = 0) -> matplotlib.figure.Figure:
    """Draws a figure with matplotlib, so that it survives printing in grey.

    Args:
        figure: The record.
        frame: The position of the slider, where there is one.

    Returns:
        The drawing; its `savefig` writes PNG, PDF or SVG.

    Raises:
        ValueError: If the figure has no such frame.

    Example:
        >>> from onebasin.studies import Axis, Figure, Panel, Series
        >>> line = Series(name="loss", x=[0, 1, 2], y=[3.0, 1.0, 0.5])
        >>> panel = Panel(x=Axis(label="step"), y=Axis(label="loss"), series=[line])
        >>> drawn = picture(Figure(name="loss", title="The loss falls", panels=[panel]))
        >>> drawn.axes[0].get_xlabel()
        'step'
    """
    from matplotlib.figure import Figure as Canvas

    if figure.frames and not -len(figure.frames) <= frame < len(figure.frames):
        raise ValueError(f"got frame {frame}, but {figure.name!r} has {len(figure.frames)}")
    looks = palette.looks(figure)
    count = max(len(figure.panels), 1)
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    width = 6.4 if count == 1 else 4.1 * columns
    canvas = Canvas(figsize=(width, 3.9 * rows + 0.5), dpi=150, layout="constrained")
    for number, panel in enumerate(figure.panels):
        axes = canvas.add_subplot(rows, columns, number + 1)
        framed = figure.frames[frame] if figure.frames and number == 0 else None
        _panel(axes, panel, framed, looks)
        title = panel.title
        if framed is not None:
            title = ": ".join(text for text in (title, framed.label) if text)
        axes.set_title(_plain(title), fontsize=10)
    canvas.suptitle(_plain(figure.title), fontsize=11, fontweight="bold")
    _legend(canvas, figure, looks)
    return canvas


def _plain(text: str) -> str:
    """Text as it is written: a dollar sign opens no formula."""
    return text.replace("$", r"\$")


def _panel(
    axes: Any, panel: Panel, frame: Frame | None, looks: dict[tuple[str, str], palette.Look]
) -> None:
    content = frame if frame is not None else panel
    axes.set_xlabel(_plain(panel.x.label))
    axes.set_ylabel(_plain(panel.y.label))
    axes.set_xscale("log" if panel.x.log else "linear")
    axes.set_yscale("log" if panel.y.log else "linear")
    axes.spines[["top", "right"]].set_visible(False)
    if content.map:
        _heat(axes, content.map)
    else:
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    barred = [s for s in content.series if s.style == "bars"]
    for series in content.series:
        look = looks[series.group, series.name]
        if series.style == "bars":
            _bars(axes, series, look, barred)
        elif content.map:
            _on_map(axes, series, look)
        else:
            _line(axes, series, look)
    if barred and all(s.labels for s in barred):
        ticks = {x: label for s in barred for x, label in zip(s.x, s.labels or [], strict=False)}
        axes.set_xticks(list(ticks), [_plain(label) for label in ticks.values()])


def _array(values: Any) -> np.ndarray:
    return np.array([math.nan if value is None else value for value in values])


def _line(axes: Any, series: Series, look: palette.Look) -> None:
    colour = palette.SERIES_LIGHT[look.colour]
    x, y = _array(series.x), _array(series.y)
    band = series.low is not None and series.high is not None
    points = series.style == "points"
    step = "post" if series.style == "step" else None
    if band and points:
        spread = np.abs(np.stack([y - _array(series.low), _array(series.high) - y]))
        axes.errorbar(x, y, spread, fmt="none", ecolor=colour, elinewidth=1, capsize=2)
    elif band:
        axes.fill_between(
            x, _array(series.low), _array(series.high), step=step, color=colour, alpha=0.16, lw=0
        )
    axes.plot(
        x,
        y,
        color=colour,
        linestyle="none" if points else _dash(look.dash),
        linewidth=1.8,
        drawstyle="steps-post" if step else "default",
        **_marker(series, look, colour),
    )


def _marker(series: Series, look: palette.Look, colour: str) -> dict[str, Any]:
    if "points" not in series.style:
        return {}
    face = "white" if look.open else colour
    size = 3 if len(series.x) > 200 else 5.5
    return {"marker": MARKERS[look.symbol], "markersize": size, "markerfacecolor": face}


def _dash(dash: str) -> Any:
    if dash == "solid":
        return dash
    return (0, tuple(float(part.removesuffix("px")) / 1.8 for part in dash.split(",")))


def _bars(axes: Any, series: Series, look: palette.Look, barred: list[Series]) -> None:
    x, y = _array(series.x), _array(series.y)
    places = np.unique(np.concatenate([_array(s.x) for s in barred]))
    room = float(np.min(np.diff(places))) if len(places) > 1 else 1.0
    width = 0.75 * room / len(barred)
    shift = (barred.index(series) - (len(barred) - 1) / 2) * width
    colour = palette.SERIES_LIGHT[look.colour]
    face = colour if not look.pattern else "white"
    hatch = HATCHES[look.pattern]
    axes.bar(x + shift, y, width, color=face, edgecolor=colour, hatch=hatch)
    if series.low is not None and series.high is not None:
        spread = np.abs(np.stack([y - _array(series.low), _array(series.high) - y]))
        axes.errorbar(x + shift, y, spread, fmt="none", ecolor="0.1", elinewidth=1, capsize=2)


def _heat(axes: Any, grid: Map) -> None:
    from matplotlib.colors import LogNorm

    z = np.stack([_array(row) for row in grid.z])
    if grid.log:
        z = np.where(z > 0, z, math.nan)
    norm = LogNorm() if grid.log else None
    mesh = axes.pcolormesh(
        _array(grid.x), _array(grid.y), z, cmap="viridis", norm=norm, rasterized=True
    )
    axes.figure.colorbar(mesh, ax=axes, label=_plain(grid.label))


def _on_map(axes: Any, series: Series, look: palette.Look) -> None:
    """White with a dark edge, which shows on every colour of the map."""
    x, y = _array(series.x), _array(series.y)
    if series.style != "points":
        axes.plot(x, y, color="black", linewidth=3.2)
        axes.plot(x, y, color="white", linewidth=1.6, linestyle=_dash(look.dash))
    if "points" in series.style:
        marker = MARKERS[look.symbol]
        axes.plot(
            x, y, linestyle="none", marker=marker, color="white", markeredgecolor="black", ms=7
        )
    if series.style == "points" and series.labels and len(series.labels) <= 12:
        for place, label in zip(zip(x, y, strict=True), series.labels, strict=False):
            axes.annotate(
                _plain(label),
                place,
                (0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.85},
            )


def _legend(canvas: Any, figure: Figure, looks: dict[tuple[str, str], palette.Look]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    for view in figures.legend(figure, looks):
        for entry in view.entries:
            name = entry.name
            if view.group and view.group != entry.name:
                name = view.group if len(view.entries) == 1 else f"{view.group}: {entry.name}"
            look = entry.look
            colour = "black" if entry.on_map else palette.SERIES_LIGHT[look.colour]
            if entry.style == "bars":
                face = "white" if look.pattern else colour
                handles.append(
                    Patch(fc=face, ec=colour, hatch=HATCHES[look.pattern], label=_plain(name))
                )
                continue
            marker = MARKERS[look.symbol] if "points" in entry.style else None
            handles.append(
                Line2D(
                    [],
                    [],
                    color=colour,
                    linestyle="none" if entry.style == "points" else _dash(look.dash),
                    marker=marker,
                    markerfacecolor="white" if look.open or entry.on_map else colour,
                    label=_plain(name),
                )
            )
    if handles:
        columns = min(len(handles), 4 if len(figure.panels) < 2 else 6)
        canvas.legend(
            handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8.5
        )
