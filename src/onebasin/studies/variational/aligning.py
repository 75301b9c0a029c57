"""Solutions, the costs that align them, and the barriers that are left."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align import align, barrier
from onebasin.evaluate import kl, wasserstein
from onebasin.posterior import Gaussian, Mixture
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
from onebasin.studies.variational.base import (
    COSTS,
    SCORES,
    aligned,
    case_of,
    fit_pairs,
    numbers,
    over_pairs,
    paired,
    study,
)
from onebasin.symmetry import discover

MIRRORED = ((0.3, 1.2), (1.2, 0.3))


def two_units(params: Any, x: jax.Array) -> jax.Array:
    """A layer of two units with one weight each."""
    return jnp.sum(jax.nn.relu(params["w"] * x), axis=-1, keepdims=True)


@study.stage("Two Gaussians mirrored about y = x: which costs see the swap?")
def toy(step: Step) -> None:
    """Aligns two posteriors that differ by a swap of their spreads."""
    reference, moving = (Gaussian({"w": jnp.ones(2)}, {"w": jnp.array(std)}) for std in MIRRORED)
    symmetry = discover(two_units, reference.mean, jnp.ones((3, 1)))
    rows, panels = [], []
    for cost in ("wasserstein", "kl-forward", "kl-reverse", "kl-mean"):
        found = align(symmetry, moving, to=reference, cost=cost)
        swapped = found.num_transpositions == 1
        rows.append(
            Row(
                label=COSTS[cost],
                cells={
                    "found": Cell(value=int(swapped)),
                    "before": Cell(value=found.cost_before),
                    "after": Cell(value=found.cost),
                    "distance": Cell(value=wasserstein(reference, found.params)),
                },
            )
        )
        ellipses = [("reference", reference), ("before", moving), ("aligned", found.params)]
        panels.append(
            Panel(
                title=f"{COSTS[cost]}: swap {'found' if swapped else 'missed'}",
                x=Axis(label="weight of unit 1"),
                y=Axis(label="weight of unit 2"),
                series=[_ellipse(name, q, dash=name != "reference") for name, q in ellipses],
            )
        )
    step.say(
        "Both posteriors have their mean at (1, 1); their standard deviations are (0.3, 1.2) and "
        "(1.2, 0.3). The mean term of the divergence is the same for both orders, the trace term "
        "is not: a divergence that leaves the trace term out cannot see the swap."
    )
    step.show(
        Table(
            name="toy",
            title="Which costs find the swap",
            text="Two units, one weight each; exact assignment, no sampling.",
            columns=[
                Column(key="found", label="swap found", digits=0, better="higher"),
                Column(key="before", label="cost before"),
                Column(key="after", label="cost after", better="lower"),
                Column(key="distance", label="W2 distance after", better="lower"),
            ],
            rows=rows,
        ),
        Figure(
            name="toy",
            title="One standard deviation around each mean, before and after alignment",
            panels=panels,
        ),
    )


def _ellipse(name: str, q: Gaussian, *, dash: bool) -> Series:
    angle = np.linspace(0, 2 * np.pi, 61)
    mean, std = np.asarray(q.mean["w"]), np.asarray(q.std["w"])
    x, y = mean[0] + std[0] * np.cos(angle), mean[1] + std[1] * np.sin(angle)
    return Series(name=name, x=x, y=y, group=name, dash=dash)


@study.stage("Mean-field solutions", reads=("nets", "num_pairs", "train_in"), tasks=True)
def solutions(step: Step) -> None:
    """Fits all solutions of all networks."""
    config = step.config
    places = {f"net-{number}": number for number in numbers(config)}
    curves = {}
    for name in step.in_turn(places):
        case = case_of(config, places[name])
        key = jax.random.fold_in(step.key, places[name])
        pairs = fit_pairs(step, key, case, name, config.num_pairs)
        members = [q for pair in pairs for q in pair]
        step.save(name, Mixture(members, info=members[0].info))
        free_energy = np.asarray((members[0].info or {})["loss"])
        curves[name] = Series(
            name=case.label,
            x=np.arange(1, len(free_energy) + 1),
            y=free_energy.mean(axis=1),
            low=free_energy.min(axis=1),
            high=free_energy.max(axis=1),
            group=case.label,
        )
    step.show(
        Figure(
            name="fitting",
            title="The free energy falls while the posteriors are fitted",
            text="Mean over solutions; the band reaches from the least to the largest.",
            panels=[
                Panel(
                    x=Axis(label="epoch"),
                    y=Axis(label="free energy per example (nats)", log=True),
                    series=[curves[name] for name in places],
                )
            ],
        ),
    )


def score_columns(loss: str, error: str) -> list[Column]:
    """Columns for losses and errors, train and test."""
    return [
        Column(
            key=name,
            label=f"{name} ({loss})" if "loss" in name else f"{name} ({error})",
            better="lower",
        )
        for name in SCORES
    ]


@study.stage("Alignment by distributions and by means", needs=("solutions",), reads=("costs",))
def alignment(step: Step) -> None:
    """Aligns the second solution of every pair to the first by every cost."""
    config = step.config
    rows, times = [], []
    for number in numbers(config):
        case = case_of(config, number)
        pairs = paired(step.load("solutions", f"net-{number}"))
        for cost in config.costs:
            found, moved, seconds = [], [], []
            for a, b in pairs:
                start = time.perf_counter()
                out = None if cost == "none" else aligned(case, cost, a, b)
                seconds.append(time.perf_counter() - start)
                other = b if out is None else out.params
                moved.append(other)
                found.append(
                    {
                        "wasserstein": wasserstein(a, other),
                        "kl": kl(other, a),
                        "swaps": 0 if out is None else out.num_transpositions,
                        "sweeps": 0 if out is None else out.sweeps,
                    }
                )
            step.save(f"net-{number}-{cost}", Mixture(moved))
            cells = {key: over_pairs(found, lambda f, key=key: f[key]) for key in found[0]}
            row = Row(label=COSTS.get(cost, cost), group=case.label, cells=cells)
            rows.append(row)
            if cost != "none":
                spent = {"seconds": interval(seconds, log=True)}
                times.append(row.model_copy(update={"cells": spent}))
    step.show(
        Table(
            name="alignment",
            title="What each cost does to the distance between two posteriors",
            text=f"Means over {config.num_pairs} independent pairs with 95 % intervals. Every "
            "alignment starts from the identity and from a forward pass and keeps the better; "
            "scalings are removed first where the network has any.",
            columns=[
                Column(key="wasserstein", label="W2 distance after", better="lower"),
                Column(key="kl", label="KL(moved, fixed) after (nats)", digits=1, better="lower"),
                Column(key="swaps", label="transpositions", digits=1),
                Column(key="sweeps", label="sweeps", digits=1),
            ],
            rows=rows,
        )
    )
    step.show_times(
        Table(
            name="alignment-seconds",
            title="How long one alignment takes by each cost",
            text=f"Geometric means over {config.num_pairs} independent pairs with 95 % intervals, "
            "with what was compiled on the way.",
            columns=[Column(key="seconds", label="seconds", digits=3, better="lower")],
            rows=times,
        )
    )


@study.stage(
    "Barriers on the published path, by cost of alignment",
    needs=("solutions", "alignment"),
    reads=("costs", "points", "num_samples", "loss_examples"),
)
def barriers(step: Step) -> None:
    """The barrier of the marginalised loss on the geodesic, for each cost."""
    config = step.config
    rows, ends, panels = [], [], []
    heights: dict[str, float] = {}
    for number in numbers(config):
        case = case_of(config, number)
        firsts = [a for a, _ in paired(step.load("solutions", f"net-{number}"))]
        series = []
        for cost in config.costs:
            moved = step.load("alignment", f"net-{number}-{cost}").components
            found = [
                barrier(case.loss, a, b, config.points) for a, b in zip(firsts, moved, strict=True)
            ]
            cells = {
                name: over_pairs(found, lambda f, name=name: f.height[name]) for name in SCORES
            }
            if cost == config.costs[0]:
                both = {name: [f.curve[name][i] for f in found for i in (0, -1)] for name in SCORES}
                alone = {name: over_pairs(values, float) for name, values in both.items()}
                ends.append(Row(label=case.label, cells=alone))
            label = COSTS.get(cost, cost)
            rows.append(
                Row(label=label, group=case.label, cells=cells, emphasis=cost == "wasserstein")
            )
            curves = np.array([np.asarray(f.curve["test loss"]) for f in found])
            step.save_arrays(f"net-{number}-{cost}", t=found[0].t, test_loss=curves)
            series.append(band(label, np.asarray(found[0].t), curves))
            if not number:
                heights[cost] = cells["test loss"].value or 0.0
        panels.append(
            Panel(
                title=case.label,
                x=Axis(label="position t on the path"),
                y=Axis(label="test loss (nats)"),
                series=series,
            )
        )
    step.show(
        Table(
            name="solutions",
            title="How good the solutions are by themselves",
            text=f"Means over {2 * config.num_pairs} independent solutions of each network with "
            f"95 % intervals; losses of the predictive averaged over {config.num_samples} draws.",
            columns=score_columns("nats", "error rate"),
            rows=ends,
        ),
        Table(
            name="barriers",
            title="The barrier that is left after alignment by each cost",
            text=f"Height of the loss above the chord on the W2 geodesic, {config.points} points, "
            f"predictive averaged over {config.num_samples} draws; means over "
            f"{config.num_pairs} independent pairs with 95 % intervals.",
            columns=score_columns("nats above the chord", "above the chord"),
            rows=rows,
        ),
        Figure(
            name="barriers",
            title="The test loss on the W2 geodesic between two solutions",
            text="Mean over pairs; bands are one standard deviation.",
            panels=panels,
        ),
    )
    if {"none", "wasserstein"} <= heights.keys():
        step.headline(
            "Barrier after W2 alignment",
            f"{heights['wasserstein']:.3f} nats",
            f"test loss, published path; {heights['none']:.3f} without alignment",
        )


def band(name: str, x: np.ndarray, curves: np.ndarray, *, dash: bool = False) -> Series:
    """A line through the mean of curves (pair, point), with a band of one standard deviation."""
    mean, std = curves.mean(axis=0), curves.std(axis=0, ddof=1 if len(curves) > 1 else 0)
    return Series(name=name, x=x, y=mean, low=mean - std, high=mean + std, group=name, dash=dash)
