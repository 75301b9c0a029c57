"""Barriers and transpositions: how far apart trained networks are, and in which sense."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from onebasin import infer
from onebasin.align import align, barrier, losses
from onebasin.evaluate import path_transpositions
from onebasin.posterior import Draws
from onebasin.studies.compact.study import problem, setting, study
from onebasin.studies.results import (
    Axis,
    Column,
    Figure,
    Frame,
    Panel,
    Row,
    Series,
    Table,
    interval,
)
from onebasin.studies.step import Step
from onebasin.symmetry import Element, random_permutation

MOMENTUM = 0.9


def _train(step: Step, options: Any, **more: Any) -> Draws:
    place = setting(step.config)
    return infer.ensemble(
        step.key,
        problem(step.config, place),
        epochs=options.epochs,
        batch_size=min(options.batch_size, len(place.train[0])),
        optimizer=optax.sgd(options.learning_rate, MOMENTUM),
        memory=step.config.memory,
        progress=step.progress,
        engine=step.engine,
        run=step.work / "networks",
        **more,
    )


@study.stage(
    "Barriers while two networks are trained", reads=("hidden", "prior_variance", "dynamics")
)
def dynamics(step: Step) -> None:
    """Loss and error on the line between two networks, epoch by epoch, raw and aligned."""
    place = setting(step.config)
    options = step.config.dynamics
    kept = _train(step, options, num_networks=2, every=options.every)
    symmetry = place.symmetry
    loss = losses(place.net.apply, place.train, place.test)
    epochs = np.unique(np.asarray(kept.statistics["epoch"]))
    first, second = kept.of_mode(0), kept.of_mode(1)
    frames = []
    heights: dict[tuple[str, str], list[float]] = {}
    for i, epoch in enumerate(epochs.tolist()):
        a, b = first[i], second[i]
        moved = align(symmetry, b, to=a, cost="weights").params
        series = []
        for name, other in (("raw", b), ("aligned", moved)):
            found = barrier(loss, a, other, points=options.points)
            for part in ("train loss", "test loss", "train error", "test error"):
                heights.setdefault((name, part), []).append(float(found.height[part]))
            for part in ("train loss", "test loss"):
                series.append(
                    Series(
                        name=f"{name}, {part}",
                        group=name,
                        x=found.t,
                        y=found.curve[part],
                        dash=part == "train loss",
                    )
                )
        frames.append(Frame(label=f"epoch {epoch}", series=series))
    panels = [
        Panel(
            title=f"{part}",
            x=Axis(label="epoch"),
            y=Axis(label="barrier, nats" if "loss" in part else "barrier, share of examples"),
            series=[
                Series(name=name, group=name, x=epochs, y=heights[name, part], style="line+points")
                for name in ("raw", "aligned")
            ],
        )
        for part in ("train loss", "test loss", "train error", "test error")
    ]
    step.show(
        Figure(
            name="line",
            title="Loss on the line between the two networks",
            text="Move the slider through the epochs.",
            panels=[
                Panel(
                    x=Axis(label="position t on the line"),
                    y=Axis(label="loss, nats"),
                    series=frames[-1].series,
                )
            ],
            frames=frames,
            slider="epoch",
        ),
        Figure(
            name="barriers",
            title="The barrier over the epochs of training, raw and aligned",
            panels=panels,
        ),
    )
    path = path_transpositions(symmetry, first[-1], second[-1], points=options.points)
    step.show(
        Figure(
            name="path",
            title="Transpositions between one end and each point of the line",
            panels=[
                Panel(
                    x=Axis(label="position t on the line"),
                    y=Axis(label="transpositions"),
                    series=[
                        Series(
                            name="all factors",
                            x=np.linspace(0, 1, options.points),
                            y=path.total,
                            style="line+points",
                        )
                    ],
                )
            ],
        )
    )


def _swapped(symmetry: Any, params: Any, swaps: int, key: jax.Array) -> Any:
    """The network with its first layer of units permuted by that many transpositions."""
    factor = next(f for f in symmetry.factors if "permutation" in f.kinds and f.copies == 1)
    identity = symmetry.identity()
    permutation = random_permutation(key, factor.size, swaps)
    permutations = {**identity.permutations, factor.name: permutation}
    return symmetry.act(Element(permutations, identity.log_scales, identity.signs), params)


@study.stage("Twins a number of transpositions apart", reads=("hidden", "prior_variance", "swaps"))
def swaps(step: Step) -> None:
    """Twins start a known number of swaps apart and see data in other orders."""
    place = setting(step.config)
    options = step.config.swaps
    symmetry = place.symmetry
    factor = next((f for f in symmetry.factors if "permutation" in f.kinds and f.copies == 1), None)
    if factor is None:
        step.say("This network has no units that can trade places.")
        return
    values = np.unique(np.linspace(1, factor.size - 1, options.values).astype(int))
    keys = jax.random.split(step.key, options.runs)
    starts = []
    for key in keys:
        one, own = jax.random.split(key)
        params = place.params(one)
        starts.append(params)
        for i, value in enumerate(values.tolist()):
            starts.append(_swapped(symmetry, params, value, jax.random.fold_in(own, i)))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    trained = _train(
        step,
        options,
        num_networks=len(starts),
        init=Draws(stacked, mode=np.arange(len(starts), dtype=np.int32)),
    )
    loss = losses(place.net.apply, place.train, place.test)
    found: dict[str, list[list[float]]] = {
        key: [[] for _ in values] for key in ("swaps", "distance", "before", "barrier", "aligned")
    }
    for run in range(options.runs):
        base = run * (len(values) + 1)
        for i in range(len(values)):
            a, b = trained[base], trained[base + 1 + i]
            moved = align(symmetry, b, to=a, cost="weights", scaling=None)
            found["swaps"][i].append(float(sum(moved.transpositions.values())))
            found["distance"][i].append(float(moved.cost))
            found["before"][i].append(float(moved.cost_before))
            found["barrier"][i].append(float(barrier(loss, a, b).height["test loss"]))
            found["aligned"][i].append(float(barrier(loss, a, moved.params).height["test loss"]))

    def series(key: str, name: str, **more: Any) -> Series:
        data = np.asarray(found[key])
        mean, std = data.mean(axis=1), data.std(axis=1)
        return Series(
            name=name, x=values, y=mean, low=mean - std, high=mean + std, style="line", **more
        )

    step.say(
        f"{options.runs} runs of {len(values)} twins, {options.epochs} epochs; bands are one "
        "standard deviation over runs."
    )
    x = Axis(label="transpositions at the start")
    planted = Series(name="as planted", x=values, y=values, dash=True)
    step.show(
        Figure(
            name="swaps",
            title="What is left of a known permutation after training",
            panels=[
                Panel(
                    title="transpositions found after training",
                    x=x,
                    y=Axis(label="transpositions"),
                    series=[series("swaps", "found"), planted],
                ),
                Panel(
                    title="squared distance",
                    x=x,
                    y=Axis(label="squared distance of the weights"),
                    series=[series("before", "raw"), series("distance", "aligned")],
                ),
                Panel(
                    title="barrier",
                    x=x,
                    y=Axis(label="test barrier, nats"),
                    series=[series("barrier", "raw"), series("aligned", "aligned")],
                ),
            ],
        ),
        Table(
            name="swaps",
            title="Twins after training",
            columns=[
                Column(key="swaps", label="transpositions found", digits=1),
                Column(key="before", label="squared distance, raw", digits=2),
                Column(key="distance", label="squared distance, aligned", digits=2),
                Column(key="barrier", label="test barrier, raw", digits=3),
                Column(key="aligned", label="test barrier, aligned", digits=3),
            ],
            rows=[
                Row(
                    label=f"{value} at the start",
                    cells={key: interval(found[key][i]) for key in found},
                )
                for i, value in enumerate(values.tolist())
            ],
        ),
    )
