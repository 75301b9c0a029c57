"""Spreads of weights, once posteriors lie in one basin."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from onebasin.align import align
from onebasin.compact import fit_gaussian
from onebasin.posterior import Gaussian, moments, push_forward
from onebasin.studies.compact.study import setting, study
from onebasin.studies.results import (
    Axis,
    Cell,
    Column,
    Figure,
    Frame,
    Panel,
    Row,
    Series,
    Table,
)
from onebasin.studies.step import Step

SHOWN = 1500
LEAST_SIGMA = 1e-4


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def in_one_basin(step: Step, like: Any) -> dict[str, Gaussian]:
    """The Gaussians of all methods in the basin of the HMC fit."""
    symmetry = setting(step.config).symmetry
    # The spread of the aligned draws themselves: that of the fits is tempered.
    reference = fit_gaussian(step.load("fits", "hmc-aligned", like))
    found = {"HMC": reference}
    for name, own in (
        ("ensemble", fit_gaussian(step.load("fits", "ensemble-aligned", like))),
        ("variational", moments(step.load("variational", "gaussian", like))),
    ):
        moved = align(symmetry, own.mean, to=reference.mean, cost="weights")
        found[name] = push_forward(symmetry, moved.element, own)
    return found


@study.stage("Spreads and means of weights", needs=("variational", "fits"), reads=("hidden",))
def spreads(step: Step) -> None:
    """Histograms of sigma before and after, and methods weight by weight."""
    like = setting(step.config).params()
    raw = {
        "HMC": step.load("fits", "hmc-unaligned", like),
        "ensemble": step.load("fits", "ensemble-unaligned", like),
    }
    methods = in_one_basin(step, like)
    # Weights that no example moves have no spread in an ensemble: they stand at the left end.
    logs = {
        title: {
            name: np.log10(np.maximum(np.sqrt(_flat(moments(q).variance())), LEAST_SIGMA))
            for name, q in group.items()
        }
        for title, group in (("without alignment", raw), ("in one basin", methods))
    }
    everything = np.concatenate([x for group in logs.values() for x in group.values()])
    edges = np.linspace(everything.min(), everything.max(), 61)
    middle = 0.5 * (edges[1:] + edges[:-1])
    panels = [
        Panel(
            title=title,
            x=Axis(label="log10 of a weight's standard deviation"),
            y=Axis(label="density"),
            series=[
                Series(
                    name=name,
                    group=name,
                    x=middle,
                    y=np.histogram(values, edges, density=True)[0],
                    style="step",
                )
                for name, values in group.items()
            ],
        )
        for title, group in logs.items()
    ]
    rng = np.random.default_rng(0)
    names = list(methods)
    frames, table = [], []
    for quantity, value in (
        ("mean", lambda q: _flat(q.mean)),
        ("standard deviation", lambda q: np.sqrt(_flat(q.variance()))),
    ):
        flat = {name: value(q) for name, q in methods.items()}
        shown = rng.choice(len(flat["HMC"]), min(SHOWN, len(flat["HMC"])), replace=False)
        for other in names[1:]:
            frames.append(
                Frame(
                    label=f"{quantity}: HMC and {other}",
                    series=[
                        Series(
                            name=f"{quantity} of a weight",
                            x=flat["HMC"][shown],
                            y=flat[other][shown],
                            style="points",
                        )
                    ],
                )
            )
            r = float(np.corrcoef(flat["HMC"], flat[other])[0, 1])
            table.append(Row(label=f"{quantity}: HMC and {other}", cells={"r": Cell(value=r)}))
    step.show(
        Figure(
            name="sigma",
            title="Alignment takes away the spread that only symmetry had made",
            panels=panels,
        ),
        Figure(
            name="pairs",
            title="Weights of two methods, one by one, in one basin",
            panels=[
                Panel(
                    x=Axis(label="HMC"),
                    y=Axis(label="the other method"),
                    series=frames[0].series,
                )
            ],
            frames=frames,
            slider="pair",
        ),
        Table(
            name="correlations",
            title="Correlation over weights between methods, in one basin",
            columns=[Column(key="r", label="correlation", digits=3, better="higher")],
            rows=table,
        ),
    )
