"""A diagnostic of every weight, before and after draws were brought into one basin."""

from __future__ import annotations

import dataclasses

import numpy as np

from onebasin.align import ManyAlignment
from onebasin.evaluate import table


@dataclasses.dataclass(frozen=True, eq=False)
class Diagnostic:
    """A number for each weight that was looked at; weights that never change have none (NaN).

    Attributes:
        name: What it is.
        values: By leaf, (weight,).
        weights: By leaf, the places of these weights in the flattened leaf.
        worst: Which end is bad: "max" or "min".
        before: The same before alignment, if draws were aligned.
        alignment: The alignment, if draws were aligned.
        relabel: What was given an element of its own, "chain" or "draw", if draws were aligned.
    """

    name: str
    values: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    worst: str
    before: Diagnostic | None = None
    alignment: ManyAlignment | None = None
    relabel: str | None = None

    def __repr__(self) -> str:
        aligned = ""
        if self.before is not None:
            aligned = f", {self.before.median:.4g} before alignment by {self.relabel}"
        return (
            f"Diagnostic({self.name}: median {self.median:.4g}{aligned}, {self.worst} "
            f"{self.extreme:.4g} of {self._all.size:,} weights)"
        )

    @property
    def median(self) -> float:
        """The median over all weights that were looked at."""
        return _median(self._all)

    @property
    def extreme(self) -> float:
        """The worst value."""
        return _extreme(self._all, self.worst)

    @property
    def _all(self) -> np.ndarray:
        return np.concatenate(list(self.values.values()))

    def __str__(self) -> str:
        shown = {"": self} if self.before is None else {"before: ": self.before, "after: ": self}
        header = [self.name, "weights"]
        for title in shown:
            header += [f"{title}median", f"{title}{self.worst}"]
        rows = []
        for path in (*self.values, "all"):
            parts = [d._all if path == "all" else d.values[path] for d in shown.values()]
            row = [path, f"{len(parts[0]):,}"]
            for part in parts:
                row += [f"{_median(part):.4g}", f"{_extreme(part, self.worst):.4g}"]
            rows.append(row)
        rendered = table.render(header, rows)
        return rendered if self.relabel is None else f"{rendered}\none element per {self.relabel}"


def _median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else np.nan


def _extreme(values: np.ndarray, worst: str) -> float:
    known = values[~np.isnan(values)]
    return float(getattr(np, worst)(known)) if len(known) else np.nan
