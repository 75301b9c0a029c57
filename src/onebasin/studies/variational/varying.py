"""What width, prior and temperature change, and how long alignment takes."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from onebasin import infer
from onebasin.align import align, barrier
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.studies.results import Axis, Column, Figure, Panel, Row, Series, Table, interval
from onebasin.studies.step import Step
from onebasin.studies.variational.base import (
    Case,
    aligned,
    case_of,
    fit_pairs,
    over_pairs,
    paired,
    study,
    widened,
    widths,
)

SWEEPS = {
    "width": "width of every hidden layer (units)",
    "prior variance": "variance of the prior",
    "temperature": "temperature of the posterior",
}
TIMES = 5
HOW = {"none": "as they are", "wasserstein": "W2-aligned"}


@study.stage(
    "Width, prior variance and temperature",
    reads=("nets", "train_in", "sweeps", "points", "num_samples", "loss_examples"),
)
def sweeps(step: Step) -> None:
    """Pairs of solutions for each value, raw and aligned."""
    config = step.config
    values: dict[str, tuple[float, ...]] = {
        "width": widths(config, config.sweeps.widths),
        "prior variance": config.sweeps.prior_variances,
        "temperature": config.sweeps.temperatures,
    }
    rows, panels = [], []
    for sweep, (name, label) in enumerate(SWEEPS.items()):
        if not values[name]:
            continue
        lines: dict[str, list[Any]] = {how: [] for how in HOW}
        for number, value in enumerate(values[name]):
            fit = config.nets[0]
            fit = widened(fit, int(value)) if name == "width" else fit
            case = case_of(config, fit=fit)
            options = {"prior variance": {"variance": value}, "temperature": {"temperature": value}}
            key = jax.random.fold_in(jax.random.fold_in(step.key, sweep), number)
            pairs = fit_pairs(
                step,
                key,
                case,
                f"{sweep}-{number}",
                config.sweeps.num_pairs,
                **options.get(name, {}),
            )
            moved = [(a, aligned(case, "wasserstein", a, b).params) for a, b in pairs]
            cells = {}
            for how, ends in (("none", pairs), ("wasserstein", moved)):
                found = [barrier(case.loss, a, b, config.points) for a, b in ends]
                for part in ("train", "test"):
                    cells[f"{part} {how}"] = over_pairs(
                        found, lambda f, part=part: f.height[f"{part} loss"]
                    )
                lines[how].append(cells[f"test {how}"])
                cells["error"] = over_pairs(found, lambda f: f.curve["test error"][0])
            rows.append(Row(label=f"{name} {value:g}", group=name, cells=cells))
        step.save_arrays(
            f"sweep-{sweep}",
            x=np.array(values[name], float),
            **{how: np.array([cell.value for cell in cells]) for how, cells in lines.items()},
        )
        panels.append(
            Panel(
                title=name,
                x=Axis(label=label, log=True),
                y=Axis(label="barrier of the test loss (nats)"),
                series=[
                    Series(
                        name=HOW[how],
                        x=values[name],
                        y=[cell.value for cell in cells],
                        low=_ends(cells, "low"),
                        high=_ends(cells, "high"),
                        group=HOW[how],
                        style="line+points",
                        dash=how == "none",
                    )
                    for how, cells in lines.items()
                ],
            )
        )
    if not rows:
        step.say("No width, prior variance or temperature was to be varied.")
        return
    label = case_of(config).label
    step.show(
        Table(
            name="sweeps",
            title="Barriers by width, prior variance and temperature",
            text=f"{label}, one setting varied at a time. W2 geodesic, {config.points} points, "
            f"{config.num_samples} draws; means over {config.sweeps.num_pairs} independent pairs "
            "for each value, with 95 % intervals.",
            columns=[
                Column(key="train none", label="train, as they are (nats)"),
                Column(key="train wasserstein", label="train, W2-aligned (nats)", better="lower"),
                Column(key="test none", label="test, as they are (nats)"),
                Column(key="test wasserstein", label="test, W2-aligned (nats)", better="lower"),
                Column(key="error", label="test error of a solution", better="lower"),
            ],
            rows=rows,
        ),
        Figure(
            name="sweeps",
            title="How width, prior and temperature change the barrier",
            text="Means over pairs with 95 % intervals.",
            panels=panels,
        ),
    )


def _ends(cells: list[Any], which: str) -> list[float] | None:
    found = [getattr(cell, which) for cell in cells]
    return None if None in found else found


@study.stage("Seconds of alignment against width", reads=("nets", "train_in", "timing"))
def timing(step: Step) -> None:
    """Alignment of posteriors by W2, and of single networks by weights."""
    config = step.config
    epochs = config.timing.epochs
    base = config.nets[0].model_copy(update={"epochs": epochs or None})
    places = widths(config, config.timing.widths) or (0,)
    rows = []
    seconds: dict[str, list[np.ndarray]] = {"VI, W2": [], "point networks, weights": []}
    for number, width in enumerate(places):
        case = case_of(config, fit=widened(base, width))
        key = jax.random.fold_in(step.key, number)
        pairs, networks = _trained(step, key, case, number)
        both = {
            "VI, W2": [_seconds(case, "wasserstein", a, b) for a, b in pairs],
            "point networks, weights": [
                _seconds(case, "weights", networks[i], networks[i + 1])
                for i in range(0, len(networks), 2)
            ],
        }
        weights = sum(x.size for x in jax.tree.leaves(pairs[0][0].mean))
        for name, found in both.items():
            seconds[name].append(np.array(found))
        rows.append(
            Row(
                label=f"width {width}, {weights:,} weights" if width else f"{weights:,} weights",
                cells={name: interval(found, log=True) for name, found in both.items()},
            )
        )
    step.show_times(
        Table(
            name="timing",
            title="What alignment of distributions costs beside that of networks",
            text="Seconds of one alignment on this machine; geometric means over "
            f"{config.timing.repeats} independent pairs with 95 % intervals, "
            + (f"each trained for {epochs} epochs. " if epochs else "as they are initialised. ")
            + f"After a first time, which compiles, each pair is aligned {TIMES} times more; the "
            "quickest counts, the others have waited for other work of the machine. "
            "Published: under a minute in most cases, and VI dearer than SGD.",
            columns=[
                Column(key="VI, W2", label="VI, W2 (s)", better="lower"),
                Column(
                    key="point networks, weights",
                    label="point networks, weights (s)",
                    better="lower",
                ),
            ],
            rows=rows,
        ),
        Figure(
            name="timing",
            title="Seconds of alignment against width",
            text="Geometric mean over pairs; bands from the fastest to the slowest.",
            panels=[
                Panel(
                    x=Axis(label="width of every hidden layer (units)", log=True),
                    y=Axis(label="seconds", log=True),
                    series=[
                        Series(
                            name=name,
                            x=places,
                            y=[np.exp(np.log(s).mean()) for s in found],
                            low=[s.min() for s in found],
                            high=[s.max() for s in found],
                            group=name,
                            style="line+points",
                        )
                        for name, found in seconds.items()
                    ],
                )
            ],
        ),
    )


def _trained(step: Step, key: jax.Array, case: Case, number: int) -> tuple[Any, Draws]:
    """Pairs of posteriors, and as many pairs of networks one after the other."""
    config = step.config
    for_fit, for_training = jax.random.split(key)
    count = 2 * config.timing.repeats
    if not config.timing.epochs:
        keys = jax.random.split(for_training, count)
        params = [case.setting.params(k) for k in keys]
        posteriors = Mixture([Gaussian(p, case.fit.init_std) for p in params])
        return paired(posteriors), Draws.stack(params)
    pairs = fit_pairs(step, for_fit, case, f"vi-{number}", config.timing.repeats)
    networks = infer.ensemble(
        for_training,
        case.problem(train_in=config.train_in),
        num_networks=count,
        epochs=config.timing.epochs,
        memory=config.memory,
        progress=step.progress,
        engine=step.engine,
        run=step.work / f"sgd-{number}",
    )
    return pairs, networks


def _seconds(case: Any, cost: str, a: Any, b: Any) -> float:
    """The least of a few times after the first."""
    seconds = []
    for _ in range(1 + TIMES):
        start = time.perf_counter()
        align(case.symmetry, b, to=a, cost=cost)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
