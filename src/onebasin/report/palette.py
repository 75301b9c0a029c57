"""Colours, dashes and markers: readable in light, in dark, and printed in grey."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from onebasin.studies import Figure, Frame, Panel, Series

SERIES_LIGHT = (
    "#1b5ea6",
    "#c8590c",
    "#12806a",
    "#8b3fa8",
    "#8c6d00",
    "#c0357a",
    "#56606e",
    "#16191f",
)
SERIES_DARK = (
    "#7db6f7",
    "#f3a661",
    "#62d0b4",
    "#cf9dea",
    "#e5c64f",
    "#f48fbb",
    "#b3bcc9",
    "#f4f5f7",
)
LIGHT = {
    "page": "#ffffff",
    "surface": "#f6f7f9",
    "raised": "#ffffff",
    "text": "#1a1d23",
    "muted": "#5c6470",
    "line": "#dde1e7",
    "strong-line": "#b6bdc8",
    "accent": "#1b5ea6",
    "tint": "#edf3fb",
    "grid": "#e8ebef",
    "warn": "#8a5a00",
    "warn-tint": "#fff6e0",
}
DARK = {
    "page": "#14171c",
    "surface": "#1b1f26",
    "raised": "#1f242c",
    "text": "#e6e9ee",
    "muted": "#a1aab8",
    "line": "#2f3641",
    "strong-line": "#4c5564",
    "accent": "#8bbcf7",
    "tint": "#1d2a3b",
    "grid": "#2a303a",
    "warn": "#f0c674",
    "warn-tint": "#332a15",
}
DASHES = (
    "solid",
    "9px,3px",
    "12px,3px,3px,3px",
    "5px,2px",
    "18px,4px",
    "12px,3px,3px,3px,3px,3px",
    "9px,3px,9px,3px,3px,3px",
    "3px,2px,9px,2px",
)
DOTS = (
    "2px,3px",
    "2px,3px,7px,3px",
    "2px,6px",
    "2px,3px,2px,8px",
    "4px,6px",
    "2px,3px,2px,3px,7px,3px",
    "2px,9px",
    "4px,3px,2px,3px",
)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
PATTERNS = ("", "/", "x", "-", "\\", "|", "+", ".")


@dataclasses.dataclass(frozen=True)
class Look:
    """How a series is drawn: places in the lists above, and open markers for a variant."""

    colour: int
    dash: str
    symbol: str
    open: bool
    pattern: str


def theme(dark: bool) -> dict[str, str]:
    """All colours of a theme by the name of their CSS variable."""
    series = SERIES_DARK if dark else SERIES_LIGHT
    return {**(DARK if dark else LIGHT), **{f"series-{i}": c for i, c in enumerate(series)}}


def contents(figure: Figure) -> list[Panel | Frame]:
    """All that a figure may show: its panels, and what its slider puts in the first."""
    return [*figure.panels, *figure.frames]


def all_series(figure: Figure) -> Iterator[Series]:
    """Every series of a figure."""
    for part in contents(figure):
        yield from part.series


def slots(figures: Iterable[Figure]) -> dict[str, int]:
    """A number for each group, so that a method looks alike in all figures of a page.

    Groups that no figure shows together may have the same number, so that few are needed.
    """
    together: dict[str, set[str]] = {}
    for figure in figures:
        groups = dict.fromkeys(s.group for s in all_series(figure) if s.group)
        for group in groups:
            together.setdefault(group, set()).update(groups)
    numbers: dict[str, int] = {}
    for group, others in together.items():
        taken = {numbers[other] for other in others if other in numbers}
        numbers[group] = min(set(range(len(taken) + 1)) - taken)
    return numbers


def looks(figure: Figure, known: dict[str, int] | None = None) -> dict[tuple[str, str], Look]:
    """The look of each series of a figure, by its group and name.

    Args:
        figure: The figure.
        known: Numbers of groups, from `slots`.
    """
    numbers = _numbers(figure, slots([figure]) if known is None else known)
    variants = _variants(figure)
    dashed = {(s.group, s.name) for s in all_series(figure) if s.dash}
    found = {}
    for name, number in numbers.items():
        variant = variants[name]
        found[name] = Look(
            colour=number % len(SERIES_LIGHT),
            dash=(DOTS if name in dashed else DASHES)[(number + variant) % len(DASHES)],
            symbol=SYMBOLS[(number + variant) % len(SYMBOLS)],
            open=name in dashed or variant > 0,
            pattern=PATTERNS[(number + variant) % len(PATTERNS)],
        )
    return found


def _numbers(figure: Figure, known: dict[str, int]) -> dict[tuple[str, str], int]:
    names = dict.fromkeys((s.group, s.name) for s in all_series(figure))
    taken = {known[group] for group, _ in names if group}
    free = (i for i in range(len(names) + len(taken)) if i not in taken)
    return {(group, name): known[group] if group else next(free) for group, name in names}


def _variants(figure: Figure) -> dict[tuple[str, str], int]:
    """How many series of the same group, and so of the same colour, come before in a panel."""
    found: dict[tuple[str, str], int] = {}
    for part in contents(figure):
        seen: dict[str, int] = {}
        for series in part.series:
            before = seen.get(series.group, 0) if series.group else 0
            name = (series.group, series.name)
            found[name] = max(found.get(name, 0), before)
            if not series.dash:
                seen[series.group] = before + 1
    return found
