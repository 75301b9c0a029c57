"""A symmetry group as a table that a person reads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onebasin.symmetry.factors import Factor
    from onebasin.symmetry.group import Symmetry

_KINDS = ("permutation", "scaling", "sign")
NOT_LOOKED_FOR = (
    "not looked for: maps that mix units (attention, linear bottlenecks), swaps of halves or layers"
)
_ORIGIN = (
    "read off the program and tried on random parameters; check_symmetry measures what outputs see"
)


def render(sym: Symmetry, width: int = 100) -> str:
    """Factor, size, kinds and sites, one line each; then the sizes of the whole group."""
    if not sym.factors:
        lines = ["no symmetry found: no permutation, scaling or sign flip of units"]
    else:
        common = _common_folder([leaf.path for leaf in sym.leaves])
        rows = [("factor", "size", "kinds", "acts on"), *(_row(f, common) for f in sym.factors)]
        spans = [max(len(row[i]) for row in rows) for i in range(3)]
        room = max(width - sum(spans) - 6, 40)
        lines = []
        for number, row in enumerate(rows):
            head = "  ".join(
                cell.rjust(span) if i == 1 else cell.ljust(span)
                for i, (cell, span) in enumerate(zip(row[:3], spans, strict=True))
            )
            lines.append(f"{head}  {_fit(row[3], room)}".rstrip())
            if number == 0:
                lines.append("  ".join("-" * n for n in (*spans, min(room, 40))))
    copies = sym.log_copies() / math.log(10)
    amount = f"{round(10**copies):,}" if copies < 6 else f"10^{copies:,.1f}"
    dimensions = sym.scaling_dimension()
    lines.append(
        f"{amount} discrete {'copy' if amount == '1' else 'copies'} of every mode "
        f"(log {sym.log_copies():,.1f}), "
        f"{dimensions:,} scaling dimension{'' if dimensions == 1 else 's'}"
    )
    if sym.factors:
        lines.append(_ORIGIN)
    if sym.unused:
        lines.append("unused parameters: " + _fit(" ".join(sym.unused), width - 20))
    lines.append(NOT_LOOKED_FOR)
    return "\n".join(lines)


def _common_folder(paths: list[str]) -> str:
    """The folder that every path begins with; leaving it out loses nothing."""
    folders = [path.split("/")[:-1] for path in paths]
    shared: list[str] = []
    for level in zip(*folders, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "".join(f"{name}/" for name in shared)


def _row(factor: Factor, common: str) -> tuple[str, str, str, str]:
    size = f"{factor.size}" if factor.copies == 1 else f"{factor.copies} x {factor.size}"
    counts = {"permutation": 1, "scaling": factor.scalings, "sign": factor.signs}
    kinds = [
        kind if counts[kind] == 1 else f"{counts[kind]} {kind}s"
        for kind in _KINDS
        if kind in factor.kinds
    ]
    sites = [str(site).removeprefix(common) for site in factor.sites]
    return factor.name, size, ", ".join(kinds), " ".join(sites)


def _fit(text: str, room: int) -> str:
    """As many whole words as there is room for, and how many were left out."""
    if len(text) <= room:
        return text
    words = text.split(" ")
    kept = 1
    while kept < len(words) and len(" ".join(words[: kept + 1])) <= room - 9:
        kept += 1
    left = len(words) - kept
    return " ".join(words[:kept]) + (f" +{left} more" if left else "")
