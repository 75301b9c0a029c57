"""The draws of HMC and of other chains, before and after they lie in one basin."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from onebasin import infer
from onebasin.align import canonicalize
from onebasin.align.many import SETTLED
from onebasin.evaluate import functional_rhat, predict, rhat
from onebasin.posterior import Draws
from onebasin.studies.compact.posteriors import MODEL, SEEN
from onebasin.studies.compact.study import problem, setting, study
from onebasin.studies.results import (
    Axis,
    Cell,
    Column,
    Figure,
    Panel,
    Row,
    Series,
    Table,
    middle,
)
from onebasin.studies.step import Step
from onebasin.symmetry.group import path_name

UNITS = 4


def _leaves(tree: Any) -> dict[str, np.ndarray]:
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {path_name(path): np.asarray(leaf) for path, leaf in found}


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
    "Convergence modulo symmetry",
    needs=("hmc", "ensemble"),
    reads=(*MODEL, "chains", "fit"),
    version=2,
)
def convergence(step: Step) -> None:
    """R-hat of weights across chains, layer by layer, and of predictions, for three methods.

    Chains of HMC are matched by what units do, which needs no fit: R-hat is to be had before
    anything is distilled.
    """
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

    by_data = {
        "cost": step.config.fit.cost or "contributions",
        "apply_fn": place.net.apply,
        "inputs": place.train[0][:SEEN],
    }
    populations: dict[str, tuple[Draws, dict[str, Any]]] = {
        "HMC": (draws, by_data),
        "SGHMC": (sghmc, {}),
        "SWAG": (of_swag, {}),
    }
    rows = []
    for method, (raw, cost) in populations.items():
        found = rhat(raw, symmetry=place.symmetry, tolerance=SETTLED, engine=step.engine, **cost)
        assert found.before is not None
        before, after = found.before.values, found.values
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
            text="Medians; in brackets the range of the middle 90 % of the weights. Each chain was "
            "moved into the basin by one element, the same for all of its draws.",
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
