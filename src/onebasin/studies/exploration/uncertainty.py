"""How good the predictions of every method are, and how far networks compute the same."""

from __future__ import annotations

import jax
import numpy as np

from onebasin.evaluate import metrics, predict
from onebasin.posterior import Draws
from onebasin.studies.exploration.base import (
    World,
    samples,
    stage_needs,
    study,
    target_parts,
    targets,
    world,
)
from onebasin.studies.exploration.published import beside, published_setting
from onebasin.studies.results import (
    Axis,
    Cell,
    Column,
    Figure,
    Panel,
    Row,
    Series,
    Table,
    interval,
)
from onebasin.studies.step import Step

PUBLISHED = (
    " Published: ResNet-18, as many networks of every method; columns that are defined otherwise "
    "there have none."
)
SCORE = "Score: the largest probability of the predictive."
COLUMNS = (
    Column(key="accuracy", label="accuracy (%)", digits=2, better="higher"),
    Column(key="nll", label="NLL (nats)", better="lower"),
    Column(key="brier", label="Brier (x 100)", digits=2, better="lower"),
    Column(key="ece", label="ECE (%)", digits=2, better="lower", note="15 bins of equal width."),
    Column(
        key="ace",
        label="adaptive ECE (%)",
        digits=2,
        better="lower",
        note="15 bins of equally many examples, of the most probable class.",
    ),
    Column(
        key="aupr",
        label="AUPR (%)",
        digits=2,
        better="higher",
        note=f"Positive: inputs of the training distribution. {SCORE}",
    ),
    Column(
        key="fpr95",
        label="FPR95 (%)",
        digits=2,
        better="lower",
        note=f"Share of outside inputs that pass where 95 % of the inside ones do. {SCORE}",
    ),
    Column(key="auroc", label="AUROC (%)", digits=2, better="higher", note=SCORE),
    Column(
        key="inside",
        label="MI inside (nats x 100)",
        digits=2,
        note="Mutual information of label and network on test inputs.",
    ),
    Column(
        key="outside",
        label="MI outside (nats x 100)",
        digits=2,
        better="higher",
        note="The same on inputs out of distribution.",
    ),
)


@study.stage(
    "Accuracy, calibration and detection",
    needs=stage_needs(),
    reads=("outside", "num_samples", "modes", "repeats", "methods"),
    version=2,
)
def uncertainty(step: Step) -> None:
    """All metrics of all methods and of both targets."""
    config = step.config
    here = world(config)
    found: dict[str, list[dict[str, float]]] = {}
    groups: dict[str, tuple[str, str]] = {}
    for sample in samples(step):
        found.setdefault(sample.label, []).append(_metrics(here, sample.draws))
        groups[sample.label] = (sample.method, sample.group)
    for name, title in targets(config).items():
        own = target_parts(step, name)
        found[title] = [_metrics(here, draws) for draws in own]
        groups[title] = (title, "targets")
    keys = [column.key for column in COLUMNS]
    step.save_arrays(
        "metrics",
        means=np.array([[np.mean([m[k] for m in own]) for k in keys] for own in found.values()]),
    )
    step.save_notes("labels", labels=list(found), keys=keys)
    rows = [
        Row(
            label=groups[label][0],
            group=groups[label][1],
            cells={
                key: interval([m[key] for m in metrics]).model_copy(
                    update={"published": beside(config, label, key)}
                )
                for key in keys
            },
        )
        for label, metrics in found.items()
    ]
    step.show(
        Table(
            name="uncertainty",
            title="What the predictive of every method is worth",
            text=f"{here.label}: {len(here.setting.test[1]):,} test inputs, "
            f"{len(here.outside):,} out of distribution ({config.outside}); predictive of "
            f"{config.num_samples} networks; means over {config.repeats} independent repeats with "
            "95 % intervals." + (PUBLISHED if published_setting(config) else ""),
            columns=list(COLUMNS),
            rows=rows,
        )
    )
    best = min(found, key=lambda label: np.mean([m["nll"] for m in found[label]]))
    least = np.mean([m["nll"] for m in found[best]])
    step.headline("Best predictive", f"{least:.3f} nats", f"NLL on test inputs: {best}")


def _metrics(here: World, draws: Draws) -> dict[str, float]:
    inputs, labels = here.setting.test
    inside, outside = (predict(here.setting.net.apply, draws, x) for x in (inputs, here.outside))
    return {name: float(value) for name, value in _measured(labels, inside, outside).items()}


@jax.jit
def _measured(labels: jax.Array, inside: jax.Array, outside: jax.Array) -> dict[str, jax.Array]:
    sides = metrics.sides(inside, outside)
    return {
        "accuracy": 100 * metrics.accuracy(labels, inside),
        "nll": metrics.nll(labels, inside),
        "brier": 100 * metrics.brier(labels, inside),
        "ece": 100 * metrics.ece(labels, inside),
        "ace": 100 * metrics.adaptive_ece(labels, inside),
        "aupr": 100 * metrics.aupr(*sides),
        "fpr95": 100 * metrics.fpr95(*sides),
        "auroc": 100 * metrics.auroc(*sides),
        "inside": 100 * metrics.mutual_information(inside),
        "outside": 100 * metrics.mutual_information(outside),
    }


@study.stage(
    "Functional collapse: do networks that were trained apart compute the same?",
    needs=stage_needs(),
    reads=("outside", "num_samples", "repeats"),
)
def collapse(step: Step) -> None:
    """Mutual information of every pair of networks."""
    config = step.config
    here = world(config)
    apply_fn = here.setting.net.apply
    pairs = np.triu_indices(config.num_samples, 1)
    rows, series, saved = [], [], {}
    populations = {title: target_parts(step, name)[0] for name, title in targets(config).items()}
    for name, draws in populations.items():
        cells = {}
        for place, inputs in (("inside", here.setting.test[0]), ("outside", here.outside)):
            probs = predict(apply_fn, draws, inputs)
            shared = np.asarray(metrics.functional_collapse(probs))[pairs]
            saved[f"{name} {place}"] = shared
            low, median, high = np.quantile(shared, [0.05, 0.5, 0.95])
            cells[place] = Cell(value=median, low=low, high=high)
            cells[f"{place} least"] = Cell(value=shared.min())
            edges = np.histogram_bin_edges(shared, bins=30)
            series.append(
                Series(
                    name=f"{name}, {place}",
                    x=(edges[1:] + edges[:-1]) / 2,
                    y=np.histogram(shared, edges)[0] / len(shared),
                    group=name,
                    style="step",
                    dash=place == "outside",
                )
            )
        rows.append(Row(label=name, cells=cells))
    step.save_arrays("pairs", **saved)
    step.show(
        Figure(
            name="collapse",
            title="Mutual information of pairs of networks",
            text=f"All {len(pairs[0]):,} pairs of {config.num_samples} networks; 0 would be two "
            "networks that compute the same function.",
            panels=[
                Panel(
                    x=Axis(label="mutual information of a pair (nats)"),
                    y=Axis(label="share of pairs"),
                    series=series,
                )
            ],
        ),
        Table(
            name="collapse",
            title="How different the functions of two networks are",
            text=f"Median over {len(pairs[0]):,} pairs of {config.num_samples} networks; the "
            "interval holds 90 % of pairs.",
            columns=[
                Column(key="inside", label="median inside (nats)"),
                Column(key="inside least", label="least inside (nats)"),
                Column(key="outside", label="median outside (nats)"),
                Column(key="outside least", label="least outside (nats)"),
            ],
            rows=rows,
        ),
    )
