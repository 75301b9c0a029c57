"""The posteriors: HMC, an ensemble, a variational fit, and the Gaussians that stand for them."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np

from onebasin import infer
from onebasin.align import align_many
from onebasin.compact import Compact, compact, fit_gaussian, mixtures, shifts, together
from onebasin.compact.inputs import Extra
from onebasin.posterior import Draws, Gaussian
from onebasin.studies.compact.study import problem, setting, study, training
from onebasin.studies.results import Axis, Cell, Column, Figure, Panel, Row, Series, Table
from onebasin.studies.step import Step

MODEL = ("hidden", "prior_variance")
SEEN = 2000


@study.stage("Hamiltonian Monte Carlo", reads=(*MODEL, "hmc"), tasks=True)
def hmc(step: Step) -> None:
    """Chains of HMC, from networks that were trained first."""
    options = step.config.hmc.model_dump()
    place = setting(step.config)
    with warnings.catch_warnings():
        # What it would say is in the table.
        warnings.simplefilter("ignore", infer.SamplingWarning)
        draws = infer.hmc(
            step.key,
            problem(step.config, place),
            **options,
            memory=step.config.memory,
            progress=step.progress,
            engine=step.engine,
            run=step.work / "hmc",
        )
    step.save("draws", draws)
    statistics = {name: np.asarray(value) for name, value in draws.statistics.items()}
    mode = np.asarray(draws.mode)
    density = np.asarray(draws.log_density)
    columns = [
        Column(key="acceptance", label="mean acceptance", digits=3),
        Column(key="divergences", label="divergences", digits=0),
        Column(
            key="shortened",
            label="cut short",
            digits=0,
            note="Trajectories that max_leapfrogs ended.",
        ),
        Column(key="density", label="mean log density", digits=1),
    ]
    accepted = statistics.get("acceptance", np.full(len(draws), np.nan))
    broken = statistics.get("divergent", np.zeros(len(draws)))
    cut = statistics.get("shortened", np.zeros(len(draws)))
    rows = [
        Row(
            label=f"chain {chain}",
            cells={
                "acceptance": Cell(value=float(accepted[mode == chain].mean())),
                "divergences": Cell(value=float(broken[mode == chain].sum())),
                "shortened": Cell(value=float(cut[mode == chain].sum())),
                "density": Cell(value=float(density[mode == chain].mean())),
            },
        )
        for chain in draws.modes
    ]
    series = [
        Series(
            name=f"chain {chain}",
            x=np.arange(int((mode == chain).sum())),
            y=density[mode == chain],
        )
        for chain in draws.modes
    ]
    step.say(
        f"{len(draws.modes)} chains of {len(draws) // len(draws.modes)} draws each, after warm-up."
        + _cut_short(draws, int(cut.sum()), options["max_leapfrogs"])
    )
    step.show(
        Table(name="chains", title="The chains of HMC", columns=columns, rows=rows),
        Figure(
            name="trace",
            title="Chains wander around the same log density",
            panels=[Panel(x=Axis(label="draw"), y=Axis(label="log density, nats"), series=series)],
        ),
    )


def _cut_short(draws: Draws, number: int, most: int) -> str:
    """A sentence where trajectories were ended before the length that was asked for."""
    if not number:
        return ""
    return (
        f" {number} of {len(draws)} trajectories were ended by `max_leapfrogs` = {most} before "
        "their length: neighbouring draws depend on each other more than they would."
    )


@study.stage("Deep ensemble", reads=(*MODEL, "ensemble"), tasks=True)
def ensemble(step: Step) -> None:
    """MAP networks from independent starts."""
    place = setting(step.config)
    found = infer.ensemble(
        step.key,
        problem(step.config, place),
        **training(step.config.ensemble, place),
        memory=step.config.memory,
        progress=step.progress,
        engine=step.engine,
        run=step.work / "ensemble",
    )
    step.save("networks", found)


@study.stage("Variational inference", reads=(*MODEL, "vi"), tasks=True)
def variational(step: Step) -> None:
    """One mean-field Gaussian, fitted to the posterior itself."""
    place = setting(step.config)
    found = infer.mean_field(
        step.key,
        problem(step.config, place),
        **training(step.config.vi, place),
        memory=step.config.memory,
        progress=step.progress,
        engine=step.engine,
        run=step.work / "vi",
    )
    step.save("gaussian", found)


def distilling(config: Any) -> dict[str, Any]:
    """Options of `distil`."""
    fit = config.fit
    extra: Extra = functools.partial(mixtures, copies=fit.copies)
    shape = setting(config).image_shape
    if fit.shift and shape is not None:
        extra = together(extra, functools.partial(shifts, shape=shape, pixels=fit.shift))
    return {
        "steps": fit.steps,
        "num_samples": fit.num_samples,
        "batch_size": fit.batch_size,
        "learning_rate": fit.learning_rate,
        "extra": extra,
        "rank_steps": fit.rank_steps,
        "rank_samples": fit.rank_samples,
        "rank_batch_size": fit.rank_batch_size,
    }


def compact_fit(step: Step, draws: Draws, networks: Draws, vi: Gaussian) -> Compact:
    """Our fit of some draws, moments and distilled; all that it chooses, it chooses on them."""
    place = setting(step.config)
    options = step.config.fit
    return compact(
        place.symmetry,
        draws,
        apply_fn=place.net.apply,
        inputs=place.train[0],
        cost=options.cost,
        num_starts=options.num_starts,
        refine="distil",
        starts={"MAP network": networks[0], "variational fit": vi},
        distilled_rank=options.rank,
        key=step.key,
        **distilling(step.config),
    )


@study.stage(
    "Gaussians in one basin",
    needs=("hmc", "ensemble", "variational"),
    reads=(*MODEL, "fit"),
)
def fits(step: Step) -> None:
    """Each posterior as one Gaussian: without alignment, as published, and ours."""
    place = setting(step.config)
    like = place.params()
    symmetry = place.symmetry
    draws = step.load("hmc", "draws", like)
    networks = step.load("ensemble", "networks", like)
    vi = step.load("variational", "gaussian", like)
    inputs = place.train[0]

    def as_published(posterior: Draws) -> Gaussian:
        moved = align_many(
            symmetry,
            posterior,
            reference="first",
            cost="activations",
            apply_fn=place.net.apply,
            inputs=inputs[:SEEN],
            scaling=None,
            engine=step.engine,
        )
        return fit_gaussian(moved.draws)

    shared = {"apply_fn": place.net.apply, "inputs": inputs}
    found = compact_fit(step, draws, networks, vi)
    merged = compact(symmetry, networks, cost="weights", key=step.key, **shared)
    step.save("hmc-unaligned", fit_gaussian(draws))
    step.save("hmc-published", as_published(draws))
    step.save("hmc-moments", found.moments)
    step.save("hmc-distilled", found.posterior)
    step.save("hmc-aligned", found.alignment.draws)
    step.save("ensemble-unaligned", fit_gaussian(networks))
    step.save("ensemble-published", as_published(networks))
    step.save("ensemble-moments", merged.moments)
    step.save("ensemble-aligned", merged.alignment.draws)
    assert found.choice is not None and found.distilled is not None
    way = found.choice.way
    choice = found.choice
    step.save_notes(
        "way",
        cost=way.cost,
        scaling=way.scaling,
        start=found.distilled.start,
        temperature=choice.temperature,
        stretch=choice.stretch,
    )
    step.say(
        "What each step gains, on training inputs and against the predictive of the very draws "
        f"that were fitted. Chosen on held-out draws: cost {way.cost}, scaling removed by "
        f"{way.scaling}, a {found.choice.covariance} covariance."
    )
    step.show(
        Table(
            name="steps",
            title="From draws to one Gaussian, step by step",
            columns=[
                Column(key="agreement", label="agreement", better="higher"),
                Column(key="tv", label="total variation", better="lower"),
                Column(key="nats", label="cross-entropy, nats", better="lower"),
            ],
            rows=[
                Row(
                    label=row.step,
                    cells={
                        "agreement": Cell(value=row.agreement),
                        "tv": Cell(value=row.total_variation),
                        "nats": Cell(value=row.nats),
                    },
                )
                for row in found.rows
            ],
        ),
        Table(
            name="starts",
            title="Distilling from several starts; the best on held-out inputs is kept",
            columns=[
                Column(
                    key="nats",
                    label="nats above the draws' own",
                    digits=5,
                    better="lower",
                    note="Held-out training inputs.",
                )
            ],
            rows=[
                Row(label=name, cells={"nats": Cell(value=score)})
                for name, score in found.distilled.scores.items()
            ],
        ),
    )
