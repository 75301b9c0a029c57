"""Numbers as a person reads them."""

from __future__ import annotations

import datetime

from onebasin.studies import Cell

NOTHING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def number(value: float | None, digits: int, sign: bool = False) -> str:
    """A number with so many decimals; in powers of ten where those would not show it."""
    if value is None:
        return NOTHING
    plus = "+" if sign else ""
    text = f"{value:{plus},.{digits}f}"
    zero = float(text.replace(",", "")) == 0
    if (zero and value != 0) or abs(value) >= 1e9:
        mantissa, exponent = f"{value:{plus}.2e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    elif zero:
        text = text.lstrip("-+")
    return text.replace("-", MINUS)


def interval(cell: Cell | None, digits: int) -> str:
    """The interval of a cell, with one decimal less than the value where that shows it."""
    if cell is None or cell.low is None or cell.high is None:
        return ""
    for places in ([digits - 1] if digits > 3 else []) + [digits, digits + 2]:
        low, high = number(cell.low, places), number(cell.high, places)
        if low != high or cell.low == cell.high:
            break
    return f"[{low}, {high}]"


def seconds(value: float | None) -> str:
    """A length of time."""
    if value is None:
        return NOTHING
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def day(moment: str) -> str:
    """A moment as manifests write it, for a person."""
    try:
        found = datetime.datetime.fromisoformat(moment)
    except ValueError:
        return moment
    return f"{found.day} {found:%B %Y, %H:%M} UTC"
