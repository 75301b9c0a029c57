import pytest

from onebasin.report import palette
from onebasin.studies import Axis, Figure, Panel, Series


def figure(*names: tuple[str, str], dash: bool = False) -> Figure:
    series = [Series(group=g, name=n, x=[0, 1], y=[0, 1], dash=dash) for g, n in names]
    panel = Panel(x=Axis(label="x"), y=Axis(label="y"), series=series)
    return Figure(name="f", title="A figure", panels=[panel])


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_can_be_told_from_the_page(dark: bool) -> None:
    theme = palette.theme(dark)
    for name in ("text", "muted", "accent", "warn"):
        for ground in ("page", "surface", "raised", "tint"):
            assert contrast(theme[name], theme[ground]) >= 4.5
    assert contrast(theme["text"], theme["warn-tint"]) >= 4.5
    for number in range(8):
        assert contrast(theme[f"series-{number}"], theme["page"]) >= 4


@pytest.mark.parametrize("dash", [False, True])
def test_eight_series_differ_in_colour_dash_marker_and_pattern(dash: bool) -> None:
    found = palette.looks(figure(*((f"method {i}", "loss") for i in range(8)), dash=dash)).values()
    for part in ("colour", "dash", "symbol", "pattern"):
        assert len({getattr(look, part) for look in found}) == 8


def test_series_of_one_group_share_the_colour_and_nothing_else() -> None:
    first, second = palette.looks(figure(("a", "train"), ("a", "test"))).values()
    assert first.colour == second.colour
    assert first.dash != second.dash
    assert (first.open, second.open) == (False, True)


def test_groups_keep_their_colour_over_figures() -> None:
    figures = [figure(("a", "x"), ("b", "x")), figure(("c", "x"), ("b", "x"), ("", "lone"))]
    known = palette.slots(figures)
    assert known == {"a": 0, "b": 1, "c": 0}
    first, second = (palette.looks(one, known) for one in figures)
    assert first["b", "x"] == second["b", "x"]
    assert second["", "lone"].colour == 2
