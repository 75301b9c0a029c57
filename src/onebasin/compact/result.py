"""What `compact` gives: one posterior in one basin, and what each step towards it gained."""

from __future__ import annotations

import dataclasses

from onebasin.align import ManyAlignment
from onebasin.align.certificate import Outcome
from onebasin.compact import selecting
from onebasin.compact.distilling import Distilled
from onebasin.posterior import Gaussian, Mixture


@dataclasses.dataclass(frozen=True)
class Row:
    """One step on the way: how near its predictive is to that of the draws on the inputs."""

    step: str
    agreement: float
    total_variation: float
    nats: float


@dataclasses.dataclass(frozen=True, eq=False)
class Compact(Outcome):
    """One posterior in one basin.

    Attributes:
        posterior: The result: a Gaussian, or a mixture where one was asked for.
        flavour: "moments" (mean and covariance of the aligned draws, with the temperature and the
            stretch of `choice`) or "distilled" (its predictive fitted to theirs); the two are
            different quantities.
        moments: The fit of the first kind, whatever the flavour.
        alignment: How the draws were brought together.
        rows: What each step gained; empty without a model and inputs.
        choice: What the fit was made with, as chosen on held-out draws, if there were enough; None
            without a model and inputs.
        distilled: Scores of the starts, if the fit was distilled.
        unchosen: What was asked to be chosen and was not, since two draws leave none to hold out.
    """

    made_by = "compact"
    holds = "posterior"

    posterior: Gaussian | Mixture
    flavour: str
    moments: Gaussian | Mixture
    alignment: ManyAlignment
    rows: tuple[Row, ...] = ()
    choice: selecting.Choice | None = None
    distilled: Distilled | None = None
    unchosen: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Compact({self.posterior!r}, {self.flavour})"

    def __str__(self) -> str:
        lines = [f"{self.posterior!r}, {self.flavour}"]
        if self.rows:
            wide = max(len(row.step) for row in self.rows)
            lines.append(f"{'step':{wide}}  agreement      TV    nats")
            lines += [
                f"{r.step:{wide}}  {r.agreement:9.4f}  {r.total_variation:6.4f}  {r.nats:6.4f}"
                for r in self.rows
            ]
            lines.append("against the predictive of all draws on the inputs given")
            if self.unchosen:
                lines.append(
                    f"two draws leave none to hold out: {', '.join(self.unchosen)} as without the "
                    "model"
                )
        else:
            lines.append(str(self.alignment))
        return "\n".join(lines)
