"""What an alignment did, and how sure it is."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from onebasin.symmetry import Element

if TYPE_CHECKING:
    from onebasin.align.proof import Proof


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One outcome: how it came about, the objective of the task's cost, and the loss half way."""

    name: str
    objective: float
    loss: float


class Outcome:
    """What a call found: not it itself is passed on, but what it holds."""

    made_by: ClassVar[str]
    holds: ClassVar[str]


@dataclasses.dataclass(frozen=True, eq=False)
class Alignment(Outcome):
    """The outcome of `align`, with its certificate.

    Attributes:
        params: What was aligned, moved onto the reference (params, Gaussian, as it came in).
        element: The group element that moved it.
        cost: The cost after, in the units of the cost that was asked for: between `params` and the
            reference, unless scalings were removed from both, when it is counted there. Of
            low-rank Gaussians it is that of the diagonal ones with the same variances;
            `onebasin.wasserstein` and `onebasin.kl` count their covariances too.
        cost_before: The same before anything was moved.
        exact: Whether no other matching has a lower cost, because every factor stands alone; what
            scalings are left (of units without weights on one side) is no part of it.
        sweeps: Rounds of coordinate descent of the start that won.
        solver: How it was found: the search, its winning start and the assignment solver.
        transpositions: By factor, the least number of swaps that make its permutation (summed over
            copies); the total is `num_transpositions`.
        margin: By factor and unit, how much the unit's match gains over its best other partner. A
            small or negative margin says that the unit could as well have been relabelled.
        prove: Works out `bound` and `gaps`, which it does when one of them is first asked for.
        cost_name: Which cost was used.
        fallbacks: By factor, how it was compared where a cost on data does not see it: "where made"
            or "where read" (no product reads, or makes, its units), "with others summed" (it is
            seen only together with other units), "partly by weights" (the data do not tell some of
            its units apart).
        candidates: What search="thorough" tried, the least training loss half way first.
        skipped: Why that search did not try something.
    """

    made_by = "align"
    holds = "params"

    params: Any
    element: Element
    cost: float
    cost_before: float
    exact: bool
    sweeps: int
    solver: str
    transpositions: dict[str, int]
    margin: dict[str, np.ndarray]
    prove: Callable[[], Proof]
    cost_name: str = "weights"
    fallbacks: dict[str, str] = dataclasses.field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    skipped: tuple[str, ...] = ()

    @functools.cached_property
    def _proof(self) -> Proof:
        return self.prove()

    @property
    def bound(self) -> float | None:
        """A cost that no permutation and signs get below; None for costs on data.

        At the scales at which the two were matched: other scales may do better. With one hidden
        layer it is the cost that was reached; of deeper networks, whose layers each have the best
        of all orders of their neighbours here, it is well below what can be reached, so that a cost
        near to it is good and one far from it need not be bad. Of divergences it is often 0.
        """
        return self._proof.bound

    @property
    def gaps(self) -> dict[str, float]:
        """By factor, how much lower the cost were if it alone was assigned anew.

        All others held, and proved by the linear assignment: 0, up to rounding, where coordinate
        descent has come to rest. Factors along which the cost is not linear (two sides of one
        parameter, parents of others) have none.
        """
        return self._proof.gaps

    @property
    def num_transpositions(self) -> int:
        """Least number of swaps over all factors."""
        return sum(self.transpositions.values())

    def __str__(self) -> str:
        gone = f"{self.cost_before:.6g} -> {self.cost:.6g}"
        ending = " (the best matching)" if self.exact else ""
        rows = [("factor", "units", "swaps", "least margin", "in doubt", "gap")]
        for name, swaps in self.transpositions.items():
            margin, gap = self.margin.get(name), self.gaps.get(name)
            told = ("", "") if margin is None else (f"{margin.min():.3g}", str(np.sum(margin <= 0)))
            units = "" if margin is None else str(margin.size)
            rows.append((name, units, str(swaps), *told, "" if gap is None else f"{gap:.3g}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        sweeps = f"{self.sweeps} sweep{'' if self.sweeps == 1 else 's'}"
        lines = [f"{self.cost_name}: {gone}{ending}, {sweeps}, {self.solver}"]
        if self.bound is not None and not self.exact:
            lines[0] += f", no permutation and signs below {self.bound:.6g}"
        for row in rows:
            cells = [row[0].ljust(widths[0])]
            cells += [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
            lines.append("  ".join(cells).rstrip())
        if self.fallbacks:
            told = ", ".join(f"{name} {how}" for name, how in self.fallbacks.items())
            lines.append(f"not seen by {self.cost_name} alone: {told}")
        if self.candidates:
            lines += ["", self.candidate_table()]
        return "\n".join(lines)

    def candidate_table(self) -> str:
        """What search="thorough" tried, a line each, best first, and what it did not try."""
        width = max((len(c.name) for c in self.candidates), default=0)
        lines = [f"{'candidate':{width}}  {'midpoint loss':>13}  {'objective':>12}"]
        lines += [f"{c.name:{width}}  {c.loss:13.6g}  {c.objective:12.6g}" for c in self.candidates]
        return "\n".join([*lines, *self.skipped])

    def __repr__(self) -> str:
        return (
            f"Alignment({self.cost_name}: {self.cost_before:.6g} -> {self.cost:.6g}, "
            f"{self.num_transpositions} transpositions)"
        )
