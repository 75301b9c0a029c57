"""How far trained networks are above the least mass that computes their function."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from onebasin import infer
from onebasin.align import canonical_element
from onebasin.align.canonical import CanonicalReport
from onebasin.evaluate import metrics, predict
from onebasin.infer import Normal, Problem
from onebasin.posterior import Draws
from onebasin.studies.exploration.base import LargeConfig, study, world
from onebasin.studies.networks import load_setting
from onebasin.studies.results import (
    Axis,
    Cell,
    Column,
    Figure,
    Panel,
    Row,
    Series,
    Table,
)
from onebasin.studies.step import Step
from onebasin.symmetry import Symmetry


@study.stage(
    "Excess mass of trained networks", needs=("target",), reads=("large", "train_in"), tasks=True
)
def excess_mass(step: Step) -> None:
    """Brings trained networks to their minimum mass, and looks where they were above it."""
    config = step.config
    large = None if config.large is None else _trained(step, config.large)
    step.end_tasks()
    here = world(config)
    draws = step.load("target", "sgd")
    report, layers = _minimised(here.symmetry, draws.params, stacked=True)
    excess = 100 * np.broadcast_to(np.asarray(report.excess_mass), (len(draws),))
    step.save_arrays("excess", percent=excess)
    step.show(_histogram(excess, here.label), _quartiles(excess, report, here.label))
    groups = {here.label: layers}
    if large is not None:
        groups |= _large(step, config.large, large)
    step.show(
        Table(
            name="mass-by-layer",
            title="Where the mass is, as trained and at its minimum",
            text="Sum of the squared weights of each layer, mean over networks. Scales move mass "
            "from layer to layer: a layer may gain what others lose more of.",
            columns=[
                Column(key="weights", label="weights", digits=0),
                Column(key="before", label="mass as trained", digits=2),
                Column(key="after", label="mass at the minimum", digits=2),
                Column(key="excess", label="excess (% of the minimum)", digits=1),
            ],
            rows=[
                Row(label=layer, group=label, cells=cells)
                for label, rows in groups.items()
                for layer, cells in rows.items()
            ],
        )
    )


def _minimised(
    symmetry: Symmetry, params: Any, *, stacked: bool
) -> tuple[CanonicalReport, dict[str, dict[str, Cell]]]:
    """The report of the minimum, and masses before and after of every layer and of all."""
    element, report = canonical_element(symmetry, params, "min-mass", None)
    moved = (symmetry.act_many if stacked else symmetry.act)(element, params)
    sums: dict[str, np.ndarray] = {}
    pairs = zip(jax.tree.leaves_with_path(params), jax.tree.leaves(moved), strict=True)
    for (path, before), after in pairs:
        networks = len(before) if stacked else 1
        layer = "/".join(str(getattr(key, "key", key)) for key in path[:-1]) or "all"
        masses = [float(np.sum(np.square(np.asarray(x, np.float64)))) for x in (before, after)]
        found = np.array([before.size, *masses]) / networks
        sums[layer] = sums.get(layer, np.zeros(3)) + found
    sums["all layers"] = np.sum(list(sums.values()), axis=0)
    return report, {layer: _cells(*values) for layer, values in sums.items()}


def _cells(weights: float, before: float, after: float) -> dict[str, Cell]:
    excess = 100 * (before / after - 1) if after > 0 else None
    values = {"weights": weights, "before": before, "after": after, "excess": excess}
    return {key: Cell(value=value) for key, value in values.items()}


def _trained(step: Step, config: LargeConfig) -> Draws:
    """The larger network."""
    _, setting = load_setting(config.net, step.config)
    return infer.ensemble(
        jax.random.fold_in(step.key, 1),
        Problem(
            setting.trained(step.config.train_in),
            setting.train,
            Normal(config.prior_variance**0.5),
        ),
        num_networks=1,
        epochs=config.train.epochs,
        batch_size=min(config.train.batch_size, len(setting.train[1])),
        learning_rate=config.train.learning_rate,
        memory=step.config.memory,
        progress=step.progress,
        engine=step.engine,
        run=step.work / "large",
    )


def _large(
    step: Step, config: LargeConfig, trained: Draws
) -> dict[str, dict[str, dict[str, Cell]]]:
    """Times the way of the larger network to its minimum."""
    label, setting = load_setting(config.net, step.config)
    params = jax.tree.map(np.asarray, trained[0])
    symmetry = setting.symmetry
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        jax.block_until_ready(canonical_element(symmetry, params, "min-mass", None))
        seconds.append(time.perf_counter() - start)
    report, layers = _minimised(symmetry, params, stacked=False)
    inputs, labels = setting.test
    right = float(metrics.accuracy(labels, predict(setting.net.apply, trained, inputs)))
    step.save_notes("large", excess=float(report.excess_mass), accuracy=right)
    step.say(
        f"{label}: {100 * right:.1f} % of test inputs are classified rightly, and its mass is "
        f"{100 * float(report.excess_mass):.1f} % above the minimum, which took "
        f"{int(report.sweeps)} sweeps."
    )
    step.show_times(
        Table(
            name="mass-seconds",
            title="How long it takes to find the minimum mass",
            columns=[
                Column(key="first", label="seconds, with compilation"),
                Column(key="again", label="seconds, once more"),
            ],
            rows=[
                Row(
                    label=label,
                    cells={"first": Cell(value=seconds[0]), "again": Cell(value=seconds[1])},
                )
            ],
        )
    )
    return {label: layers}


def _histogram(excess: np.ndarray, label: str) -> Figure:
    edges = np.histogram_bin_edges(excess, bins=30)
    return Figure(
        name="excess-mass",
        title="How far trained networks are above their minimum mass",
        text=f"{len(excess):,} trained networks of {label}. Published for OptuNet under "
        "weight decay: 0 to 60 %, most near 28 %. At a minimum of loss and normal prior "
        "together the excess is zero: what is left says how far training was from there.",
        panels=[
            Panel(
                x=Axis(label="mass above the minimum (%)"),
                y=Axis(label="networks"),
                series=[
                    Series(
                        name="trained networks",
                        x=(edges[1:] + edges[:-1]) / 2,
                        y=np.histogram(excess, edges)[0],
                        style="bars",
                    )
                ],
            )
        ],
    )


def _quartiles(excess: np.ndarray, report: CanonicalReport, label: str) -> Table:
    low, median, high = np.quantile(excess, [0.25, 0.5, 0.75])
    return Table(
        name="excess-mass",
        title="Excess mass in per cent of the minimum",
        text=f"{len(excess):,} networks; least and largest over them as the interval.",
        columns=[
            Column(key="median", label="median (%)", digits=2),
            Column(key="low", label="lower quartile (%)", digits=2),
            Column(key="high", label="upper quartile (%)", digits=2),
            Column(key="sweeps", label="sweeps to the minimum", digits=0),
            Column(key="dead", label="dead units per network", digits=2),
        ],
        rows=[
            Row(
                label=label,
                cells={
                    "median": Cell(value=median, low=excess.min(), high=excess.max()),
                    "low": Cell(value=low),
                    "high": Cell(value=high),
                    "sweeps": Cell(value=np.max(np.asarray(report.sweeps))),
                    "dead": Cell(value=np.mean(np.asarray(report.dead))),
                },
            )
        ],
    )
