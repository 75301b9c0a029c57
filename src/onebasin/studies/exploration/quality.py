"""Whether distance in weight space tells how good uncertainty is, and the published distances."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from onebasin.studies.exploration.base import GROUPS, study, targets
from onebasin.studies.exploration.distance import FORMS, OWN
from onebasin.studies.exploration.published import published, published_data
from onebasin.studies.results import Axis, Cell, Column, Figure, Panel, Row, Series, Table
from onebasin.studies.step import Step

QUALITIES = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "ace": "adaptive ECE",
    "aupr": "AUPR",
    "fpr95": "FPR95",
    "outside": "MI outside",
}
PUBLISHED_FORMS = {"raw": "mmd", "sorted": "ns"}
"""The published distances, by the form of ours that is like them."""
THEIRS = {"raw": "published MMD of ResNet-18", "sorted": "the same without symmetries"}


@study.stage(
    "Does distance in weight space tell how good uncertainty is?",
    needs=("discrepancy", "uncertainty"),
    reads=("resamples",),
    version=3,
)
def quality(step: Step) -> None:
    """Rank correlations of distance and quality over methods, for both targets."""
    config = step.config
    labels = step.load_notes("discrepancy", "labels")["labels"]
    distance = step.load_arrays("discrepancy", "mmd")["values"].mean(axis=-1)
    notes = step.load_notes("uncertainty", "labels")
    order = [notes["labels"].index(label) for label in labels]
    scores = step.load_arrays("uncertainty", "metrics")["means"][order]
    keys = notes["keys"]
    rows, panels = [], []
    rng = np.random.default_rng(config.seed)
    for number, (target, title) in enumerate(targets(config).items()):
        # A method that made the target is near it by construction, and would prove nothing.
        others = [i for i, label in enumerate(labels) if not label.startswith(OWN[target])]
        for key, name in QUALITIES.items():
            cells = {
                form: correlation(
                    distance[number, place, others],
                    scores[others, keys.index(key)],
                    config.resamples,
                    rng,
                )
                for place, form in enumerate(FORMS)
            }
            rows.append(Row(label=name, group=title, cells=cells))
        panels.append(
            Panel(
                title=title,
                x=Axis(label="MMD^2 to the target"),
                y=Axis(label="NLL on test inputs (nats)"),
                series=[
                    Series(
                        name=label,
                        x=distance[number, place],
                        y=scores[:, keys.index("nll")],
                        labels=labels,
                        group=label,
                        style="points",
                    )
                    for place, label in enumerate(FORMS.values())
                ],
            )
        )
    step.show(
        Figure(
            name="quality",
            title="Posterior quality against uncertainty quality",
            text=f"Every point is one of {len(labels)} methods, the mean over {config.repeats} "
            "repeats.",
            panels=panels,
        ),
        Table(
            name="quality",
            title="Rank correlation of distance to the target with the metrics",
            text="Spearman's over the methods that did not make the target, with 95 % percentile "
            f"intervals of {config.resamples} bootstrap resamples of the methods. Where lower is "
            "better for a metric, a positive correlation says that closer is better.",
            columns=[
                Column(key=form, label=f"with MMD^2, {label}", digits=2)
                for form, label in FORMS.items()
            ],
            rows=rows,
        ),
    )
    if published_data(config):
        # The target of trained networks is the first, and the only one that was published.
        step.show(*beside_published(labels, distance[0], config.resamples, rng))


def beside_published(
    labels: list[str], distance: np.ndarray, resamples: int, rng: Any
) -> list[Table]:
    """Distances beside the published ones of other units, and whether both order methods alike."""
    forms = list(FORMS)
    rows, ranks = [], {}
    known = [i for i, label in enumerate(labels) if published(label, "mmd") is not None]
    for i in known:
        cells = {}
        for form, key in PUBLISHED_FORMS.items():
            cells[form] = Cell(value=distance[forms.index(form), i])
            cells[f"{form} published"] = Cell(value=published(labels[i], key))
        rows.append(Row(label=labels[i], cells=cells))
    others = [i for i in known if not labels[i].startswith(OWN["sgd"])]
    for name, group in {"methods but ensembles": "", "methods of one mode": GROUPS[0]}.items():
        chosen = [i for i in others if labels[i].endswith(group)]
        if len(chosen) < 3:
            continue
        ranks[name] = {
            form: correlation(
                distance[forms.index(form), chosen],
                np.array([published(labels[i], key) for i in chosen]),
                resamples,
                rng,
            )
            for form, key in PUBLISHED_FORMS.items()
        }
    columns = {form: f"MMD^2, {FORMS[form]}" for form in PUBLISHED_FORMS}
    return [
        Table(
            name="published",
            title="Distances to the trained target beside the published ones",
            text="Published: MMD of ResNet-18, as it is and without symmetries, in units of its "
            "own, so that only the order of methods can be compared.",
            columns=[
                column
                for form, label in columns.items()
                for column in (
                    Column(key=form, label=label, digits=3),
                    Column(key=f"{form} published", label=THEIRS[form], digits=1),
                )
            ],
            rows=rows,
        ),
        Table(
            name="published-order",
            title="Are methods in the published order?",
            text="Spearman's rank correlation of our distances with the published ones, over the "
            "methods that did not make the target, with 95 % "
            f"percentile intervals of {resamples} bootstrap resamples of the methods.",
            columns=[Column(key=form, label=label, digits=2) for form, label in columns.items()],
            rows=[Row(label=name, cells=cells) for name, cells in ranks.items()],
        ),
    ]


def correlation(x: np.ndarray, y: np.ndarray, resamples: int, rng: Any) -> Cell:
    """Spearman's rank correlation, with a percentile bootstrap interval over the points."""
    value = float(_spearman(x, y))
    chosen = rng.integers(0, len(x), (resamples, len(x)))
    found = _spearman(x[chosen], y[chosen])
    found = found[np.isfinite(found)]
    if not len(found):
        return Cell(value=value)
    low, high = np.quantile(found, [0.025, 0.975])
    return Cell(value=value, low=low, high=high)


def _spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the last axis; NaN where one side is all the same."""
    a, b = (stats.rankdata(values, axis=-1) for values in (x, y))
    a, b = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (a, b))
    norm = np.sqrt(np.sum(a**2, axis=-1) * np.sum(b**2, axis=-1))
    return np.asarray(np.where(norm > 0, np.sum(a * b, axis=-1) / np.maximum(norm, 1e-12), np.nan))
