"""Paths between aligned solutions, and the plane through three of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align import Bend, barrier, bend, interpolate
from onebasin.align import plane as plane_through
from onebasin.posterior import Gaussian
from onebasin.studies.results import (
    Axis,
    Cell,
    Column,
    Figure,
    Frame,
    Map,
    Panel,
    Row,
    Series,
    Table,
)
from onebasin.studies.step import Step
from onebasin.studies.variational.aligning import band
from onebasin.studies.variational.base import (
    BEND,
    PATHS,
    Case,
    aligned,
    bend_loss,
    case_of,
    numbers,
    over_pairs,
    paired,
    study,
)

ENDS = {"none": "as they are", "wasserstein": "W2-aligned"}
BINS = 20


@study.stage(
    "The paths side by side",
    needs=("solutions",),
    reads=("paths", "points", "num_samples", "loss_examples", "bend"),
)
def paths(step: Step) -> None:
    """Barriers on every path, raw and calibrated, between ends as they are and aligned."""
    config = step.config
    rows: list[Row] = []
    panels: list[Panel] = []
    frames: list[Frame] = []
    best: tuple[float, float, str] | None = None
    for number in numbers(config):
        if not config.nets[number].paths:
            continue
        case = case_of(config, number)
        pairs = paired(step.load("solutions", f"net-{number}"))
        moved = [(a, aligned(case, "wasserstein", a, b).params) for a, b in pairs]
        series = []
        for path in (*config.paths, *((BEND,) if config.bend.steps else ())):
            for how, ends in (("none", pairs), ("wasserstein", moved)):
                if path == "mixture" and how == "none":
                    continue
                found = [
                    barrier(
                        case.loss,
                        a,
                        b,
                        config.points,
                        _bent(step, case, a, b, place) if path == BEND else path,
                        calibrate=True,
                    )
                    for place, (a, b) in enumerate(ends)
                ]
                label = PATHS.get(path, path)
                cells = _cells(found)
                rows.append(Row(label=f"{label}, {ENDS[how]}", group=case.label, cells=cells))
                curves = np.array([np.asarray(f.curve["test loss"]) for f in found])
                slug = "bend" if path == BEND else path
                step.save_arrays(f"net-{number}-{slug}-{how}", t=found[0].t, test_loss=curves)
                if how == "wasserstein":
                    series.append(
                        band(label, np.asarray(found[0].t), curves, dash=path == "mixture")
                    )
                    heights = cells["train loss"].value, cells["test loss"].value
                    fixed = path not in (BEND, "mixture")
                    if len(panels) == 0 and fixed and None not in heights:
                        best = min(best or (np.inf, np.inf, ""), (*heights, label))
        panels.append(
            Panel(
                title=case.label,
                x=Axis(label="position t on the path"),
                y=Axis(label="test loss (nats)"),
                series=series,
            )
        )
        if not frames:
            frames = _confidence_frames(case, pairs[0], moved[0], config.points)
    step.say(
        "All paths join the same two ends. The geodesic takes mean and standard deviation linearly "
        "from one to the other; with independent coupling the noise of the two ends averages out; "
        "unit-norm means do not shrink where the ends differ. The mixture needs no alignment and "
        "is a control. The bend is trained on the training data for this very pair: the last "
        "resort, no property of the two posteriors."
    )
    if not rows:
        return
    step.show(
        Table(
            name="paths",
            title="How high the barrier is on every path, raw and temperature-calibrated",
            text=f"Height above the chord, {config.points} points, predictive averaged over "
            f"{config.num_samples} draws; means over {config.num_pairs} independent pairs with "
            "95 % intervals. Calibrated: after dividing the log of the predictive by the scalar "
            "that is best on the training data at each point; a barrier that vanishes with it is "
            "one of confidence.",
            columns=[
                Column(key="train loss", label="train loss (nats)", better="lower"),
                Column(key="test loss", label="test loss (nats)", better="lower"),
                Column(key="test error", label="test error", better="lower"),
                Column(key="train calibrated", label="train loss, calibrated", better="lower"),
                Column(key="test calibrated", label="test loss, calibrated", better="lower"),
                Column(key="temperature", label="temperature half way", digits=2),
            ],
            rows=rows,
        ),
        Figure(
            name="paths",
            title="The test loss on each path between aligned solutions",
            text="Mean over pairs; bands are one standard deviation.",
            panels=panels,
        ),
        Figure(
            name="confidence",
            title="How sure the predictive is along the way",
            text="Share of test examples by the probability of the most probable class, for the "
            "first pair of the first of the networks.",
            panels=[
                Panel(
                    x=Axis(label="probability of the most probable class"),
                    y=Axis(label="share of test examples"),
                    series=frames[0].series,
                )
            ],
            frames=frames,
            slider="position t on the path",
        ),
    )
    if best is not None:
        step.headline(
            "barrier of the best path without training",
            f"{best[1]:.3f} nats",
            f"test loss; {best[2]}, chosen by its training loss",
        )


def _bent(step: Step, case: Case, a: Gaussian, b: Gaussian, place: int) -> Bend:
    config = step.config.bend
    train = tuple(jnp.asarray(x) for x in case.setting.train)
    return bend(
        bend_loss(case.setting.net.apply),
        a,
        b,
        jax.random.fold_in(step.key, place),
        train,
        batch_size=config.batch_size,
        steps=config.steps,
        learning_rate=config.learning_rate,
    )


def _cells(found: list[Any]) -> dict[str, Cell]:
    raw = ("train loss", "test loss", "test error")
    cells = {name: over_pairs(found, lambda f, name=name: f.height[name]) for name in raw}
    for part in ("train", "test"):
        cells[f"{part} calibrated"] = over_pairs(
            found, lambda f, part=part: f.calibrated.height[f"{part} loss"]
        )
    cells["temperature"] = over_pairs(found, lambda f: f.temperature[len(f.temperature) // 2])
    return cells


def _confidence_frames(case: Case, raw: Any, moved: Any, points: int) -> list[Frame]:
    t = np.linspace(0, 1, points)
    kinds = {
        "as they are, geodesic": (raw, "geodesic"),
        "W2-aligned, geodesic": (moved, "geodesic"),
        "W2-aligned, independent coupling": (moved, "independent"),
    }
    edges = np.linspace(0, 1, BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    shares = {
        name: [
            np.histogram(_confidence(case.loss, interpolate(a, b, place, path)), edges)[0]
            / len(case.setting.test[1])
            for place in t
        ]
        for name, ((a, b), path) in kinds.items()
    }
    return [
        Frame(
            label=f"{place:.2f}",
            series=[
                Series(name=name, x=middle, y=rows[number], group=name, style="step")
                for name, rows in shares.items()
            ],
        )
        for number, place in enumerate(t)
    ]


@jax.jit
def _confidence(loss: Any, posterior: Any) -> jax.Array:
    return jnp.exp(loss.log_predictive(posterior)["test"]).max(axis=-1)


@study.stage(
    "The log posterior on the plane through three solutions", reads=("plane",), needs=("solutions",)
)
def plane(step: Step) -> None:
    """The negative log posterior around three means, as they are and aligned to the first."""
    config = step.config
    case = case_of(config)
    problem = case.problem()
    members = step.load("solutions", "net-0").components[:3]
    moved = [members[0], *(aligned(case, "wasserstein", members[0], q).params for q in members[1:])]

    def energy(params: Any) -> jax.Array:
        return -problem.evaluated_log_density(params) / problem.num_examples

    figures = []
    saved: dict[str, Any] = {}
    for how, three in (("none", members), ("wasserstein", moved)):
        a, b, c = (q.mean for q in three)
        found = plane_through(energy, a, b, c, config.plane)
        values = np.asarray(found.values)
        corners = np.asarray(found.corners)
        saved |= {f"{how} values": values, f"{how} x": found.x, f"{how} y": found.y}
        figures.append(
            Figure(
                name=f"plane-{'raw' if how == 'none' else 'aligned'}",
                title=f"The log posterior on the plane through three solutions {ENDS[how]}",
                text="Negative log posterior per training example at points of the plane through "
                f"the means of three solutions of {case.label}; distances are distances between "
                "weights.",
                panels=[
                    Panel(
                        x=Axis(label="along the way from solution 1 to 2 (weight units)"),
                        y=Axis(label="across it, towards solution 3 (weight units)"),
                        map=Map(
                            x=found.x,
                            y=found.y,
                            z=values,
                            label="negative log posterior (nats per example)",
                            log=bool(values.min() > 0),
                        ),
                        series=[
                            Series(
                                name="solutions",
                                x=corners[:, 0],
                                y=corners[:, 1],
                                labels=["1", "2", "3"],
                                style="points",
                            )
                        ],
                    )
                ],
            )
        )
    step.save_arrays("planes", **saved)
    step.show(*figures)
