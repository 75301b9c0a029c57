"""Counts as a table of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def show(rows: Mapping[str, Mapping[str, int]], columns: Sequence[str], first: str) -> str:
    """One line for each row, and sums over rows; columns without any count are left out."""
    sums = {name: sum(row.get(name, 0) for row in rows.values()) for name in columns}
    used = [name for name in columns if sums[name]]
    wide = max(len(name) for name in (*rows, first, "all"))
    lines = [" ".join([first.ljust(wide), *(f"{n:>{max(7, len(n))}}" for n in used)])]
    for name, row in [*rows.items(), ("all", sums)]:
        counts = [f"{row.get(n, 0):>{max(7, len(n))},}" for n in used]
        lines.append(" ".join([name.ljust(wide), *counts]))
    return "\n".join(lines)
