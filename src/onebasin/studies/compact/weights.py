"""What can be said in weight space, once draws lie in one basin."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from onebasin import infer
from onebasin.align import align, align_many, canonicalize
from onebasin.align.many import SETTLED
from onebasin.compact import fit_gaussian
from onebasin.evaluate import functional_rhat, metrics, predict, prune_curve, rhat
from onebasin.posterior import Draws, Gaussian, moments, push_forward
from onebasin.studies.compact.posteriors import MODEL
from onebasin.studies.compact.study import problem, setting, study
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
    middle,
)
from onebasin.studies.step import Step
from onebasin.symmetry.group import path_name

SHOWN = 1500
UNITS = 4
LEAST_SIGMA = 1e-4
SCORES = (("HMC", "std"), ("ensemble", "std"), ("variational", "std"), ("HMC", "signal"))


def _leaves(tree: Any) -> dict[str, np.ndarray]:
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {path_name(path): np.asarray(leaf) for path, leaf in found}


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@study.stage("The posterior before and after", needs=("hmc", "fits"), reads=("hidden",))
def picture(step: Step) -> None:
    """A few hidden units of all draws, seen from two directions, before and after alignment."""
    place = setting(step.config)
    like = place.params()
    symmetry = place.symmetry
    way = step.load_notes("fits", "way")
    draws = step.load("hmc", "draws", like)
    aligned = step.load("fits", "hmc-aligned", like)
    leaves = _leaves(like)
    sites = [
        (site.path, site.axis)
        for f in symmetry.factors
        if "permutation" in f.kinds and f.copies == 1
        for site in f.sites
        if site.axis is not None
        and leaves[site.path].shape[site.axis] == f.size
        and leaves[site.path].size >= 2 * f.size
    ]
    if not sites:
        step.say("This network has no units that trade places and have two weights or more.")
        return
    if way["scaling"] is not None:
        free = jax.vmap(lambda p: canonicalize(symmetry, p, scaling=way["scaling"], order=None))
        draws = Draws(free(draws.params), mode=draws.mode)

    def units(posterior: Draws) -> np.ndarray:
        path, axis = sites[0]
        moved = np.moveaxis(_leaves(posterior.params)[path], 1 + axis, 1)
        return moved.reshape(*moved.shape[:2], -1)

    before, after = units(draws), units(aligned)
    mean = after.mean(axis=0)
    spread = after.std(axis=0).mean(axis=-1)
    clearest = np.argsort(-np.linalg.norm(mean - mean.mean(axis=0), axis=-1) / spread)[:UNITS]
    _, _, axes = np.linalg.svd(mean[clearest] - mean[clearest].mean(axis=0), full_matrices=False)
    panels = []
    for title, cloud in (("as drawn", before), ("in one basin", after)):
        flat = cloud[:, clearest] @ axes[:2].T
        panels.append(
            Panel(
                title=title,
                x=Axis(label=f"first direction in {sites[0][0]}"),
                y=Axis(label="second direction"),
                series=[
                    Series(
                        name=f"unit {n}",
                        group=f"unit {n}",
                        x=flat[:, k, 0],
                        y=flat[:, k, 1],
                        style="points",
                    )
                    for k, n in enumerate(clearest.tolist())
                ],
            )
        )
    step.show(
        Figure(
            name="units",
            title="A few hidden units over all draws of HMC, before and after alignment",
            text="A point is one unit of one draw: its weights in one layer, projected onto two "
            "directions. As drawn, a unit's place says nothing; in one basin each has its own.",
            panels=panels,
        )
    )


@study.stage(
    "Convergence modulo symmetry", needs=("hmc", "ensemble", "fits"), reads=(*MODEL, "chains")
)
def convergence(step: Step) -> None:
    """R-hat of weights across chains, layer by layer, and of predictions, for three methods."""
    place = setting(step.config)
    like = place.params()
    networks = step.load("ensemble", "networks", like)
    options = step.config.chains
    shared: dict[str, Any] = {
        "num_samples": options.num_samples,
        "init": networks,
        "memory": step.config.memory,
        "progress": step.progress,
        "engine": step.engine,
    }
    for_sghmc, for_swag, for_draws = jax.random.split(step.key, 3)
    sghmc = infer.sghmc(
        for_sghmc,
        problem(step.config, place),
        num_chains=len(networks),
        num_warmup=options.num_warmup,
        thin=options.thin,
        run=step.work / "sghmc",
        **shared,
    )
    swag = infer.swag(
        for_swag,
        problem(step.config, place),
        num_networks=len(networks),
        epochs=options.epochs,
        run=step.work / "swag",
        **shared,
    )
    of_swag = _by_component(swag, for_draws, options.num_samples)
    draws = step.load("hmc", "draws", like)

    def in_one_basin(found: Draws) -> Draws:
        alignment = align_many(place.symmetry, found, tolerance=SETTLED, engine=step.engine)
        return alignment.draws

    pairs = {
        "HMC": (draws, step.load("fits", "hmc-aligned", like)),
        "SGHMC": (sghmc, in_one_basin(sghmc)),
        "SWAG": (of_swag, in_one_basin(of_swag)),
    }
    rows = []
    for method, (raw, aligned) in pairs.items():
        before, after = rhat(raw).values, rhat(aligned).values
        rows += [
            Row(
                label=f"{method}, {path}",
                group=method,
                cells=_quantiles(before=before[path], after=after[path]),
            )
            for path in before
        ]
        whole = {
            "before": np.concatenate(list(before.values())),
            "after": np.concatenate(list(after.values())),
        }
        rows.append(
            Row(
                label=f"{method}, all weights",
                group=method,
                cells=_quantiles(**whole),
                emphasis=True,
            )
        )
        probs = np.asarray(predict(place.net.apply, raw, place.test[0]))
        own = np.concatenate(list(functional_rhat(probs, raw.mode).values.values()))
        rows.append(
            Row(
                label=f"{method}, predictions",
                group=method,
                cells=_quantiles(before=own, after=own),
            )
        )
        if method == "HMC":
            step.headline(
                "median R-hat of the weights",
                f"{np.nanmedian(whole['after']):.2f}",
                f"{np.nanmedian(whole['before']):.2f} as drawn",
            )
    step.say(
        "Near 1 where chains cannot be told apart. Predictions do not see the alignment. Chains of "
        "SGHMC and modes of SWAG start at different members of the ensemble."
    )
    step.show(
        Table(
            name="rhat",
            title="R-hat across chains, by layer",
            text="Medians; in brackets the range of the middle 90 % of the weights.",
            columns=[
                Column(key="before", label="R-hat as drawn", digits=3, better="lower"),
                Column(key="after", label="R-hat in one basin", digits=3, better="lower"),
            ],
            rows=rows,
        )
    )


def _by_component(mixture: Any, key: jax.Array, count: int) -> Draws:
    """As many draws of every component, each a mode of its own."""
    keys = jax.random.split(key, len(mixture.components))
    parts = [q.sample(k, count).params for q, k in zip(mixture.components, keys, strict=True)]
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return Draws(joined, mode=np.repeat(np.arange(len(parts), dtype=np.int32), count))


def _quantiles(**values: np.ndarray) -> dict[str, Cell]:
    return {key: middle(found) for key, found in values.items()}


def _methods(step: Step, like: Any) -> dict[str, Gaussian]:
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
    methods = _methods(step, like)
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


@study.stage("Pruning", needs=("variational", "fits", "ensemble"), reads=(*MODEL, "keep"))
def pruning(step: Step) -> None:
    """Weights of lowest sigma are kept; one method's sigma prunes another's network."""
    place = setting(step.config)
    like = place.params()
    methods = _methods(step, like)
    member = step.load("fits", "ensemble-aligned", like)[0]
    symmetry = place.symmetry
    moved = align(symmetry, member, to=methods["HMC"].mean, cost="weights")
    targets = {name: q.mean for name, q in methods.items()} | {"ensemble member": moved.params}

    @jax.jit
    def accuracy(params: Any) -> Any:
        return metrics.accuracy(
            place.test[1], jax.nn.softmax(place.net.apply(params, place.test[0]))
        )

    panels, rows = [], []
    for target, params in targets.items():
        series = []
        for source, by in SCORES:
            curve = prune_curve(accuracy, methods[source], by, keep=step.config.keep, target=params)
            label = f"{source}'s {'sigma' if by == 'std' else 'mean / sigma'}"
            score = np.asarray(curve.score)
            series.append(
                Series(
                    name=label,
                    group=label,
                    x=100 * np.asarray(curve.keep),
                    y=100 * score,
                    style="line+points",
                )
            )
            rows.append(
                Row(
                    label=f"{target} by {label}",
                    group=target,
                    cells={
                        f"keep{100 * k:g}": Cell(value=100 * s)
                        for k, s in zip(step.config.keep, score, strict=True)
                    },
                )
            )
        panels.append(
            Panel(
                title=f"network: {target}",
                x=Axis(label="weights kept, %"),
                y=Axis(label="test accuracy, %"),
                series=series,
            )
        )
    step.show(
        Figure(
            name="pruning",
            title="Test accuracy while weights are set to zero, by whose sigma",
            panels=panels,
        ),
        Table(
            name="pruning",
            title="Test accuracy of pruned networks, %",
            columns=[
                Column(key=f"keep{100 * k:g}", label=f"{100 * k:g} % kept", digits=1)
                for k in step.config.keep
            ],
            rows=rows,
        ),
    )
