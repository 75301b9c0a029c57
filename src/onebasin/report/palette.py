"""Colours, dashes and markers: readable in light, in dark, and printed in grey."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from onebasin.studies import Figure, Series

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
DASHES = ("solid", "9px,3px", "12px,3px,3px,3px", "5px,2px", "16px,4px")
DOTS = ("2px,3px", "2px,3px,7px,3px", "2px,6px", "2px,3px,2px,8px", "4px,6px")
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


def all_series(figure: Figure) -> Iterator[Series]:
    """Every series of a figure, in panels and in frames."""
    for part in (*figure.panels, *figure.frames):
        yield from part.series


def slots(figures: Iterable[Figure]) -> dict[str, int]:
    """A number for each group, so that a method looks alike in all figures of a page."""
    groups = dict.fromkeys(s.group for f in figures for s in all_series(f) if s.group)
    return {group: number for number, group in enumerate(groups)}


def looks(figure: Figure, known: dict[str, int] | None = None) -> dict[tuple[str, str], Look]:
    """The look of each series of a figure, by its group and name.

    Args:
        figure: The figure.
        known: Numbers of groups, from `slots`.
    """
    names = list(dict.fromkeys((s.group, s.name) for s in all_series(figure)))
    dashed = {(s.group, s.name) for s in all_series(figure) if s.dash}
    numbers = _numbers(names, known or {})
    seen: dict[str | int, int] = {}
    found = {}
    for group, name in names:
        number = numbers[group, name]
        # A variant is what shares its group, and so its colour, with a series before it.
        variant = seen.get(group, 0) if group else 0
        seen[group] = variant + ((group, name) not in dashed)
        dotted = (group, name) in dashed
        found[group, name] = Look(
            colour=number % len(SERIES_LIGHT),
            dash=(DOTS if dotted else DASHES)[(number + variant) % len(DASHES)],
            symbol=SYMBOLS[(number + variant) % len(SYMBOLS)],
            open=dotted or variant > 0,
            pattern=PATTERNS[(number + variant) % len(PATTERNS)],
        )
    return found


def _numbers(
    names: list[tuple[str, str]], known: dict[str, int]
) -> dict[tuple[str, str], int]:
    groups = list(dict.fromkeys(group for group, _ in names if group))
    numbers = {group: known.get(group, i) for i, group in enumerate(groups)}
    colours = {number % len(SERIES_LIGHT) for number in numbers.values()}
    if len(colours) < len(groups):
        numbers = {group: i for i, group in enumerate(groups)}
    taken = set(numbers.values())
    free = (i for i in range(len(names) + len(taken)) if i not in taken)
    return {(group, name): numbers[group] if group else next(free) for group, name in names}
