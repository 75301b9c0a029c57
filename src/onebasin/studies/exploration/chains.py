"""Whether chains agree with each other, before and after symmetries are removed."""

from __future__ import annotations

import jax
import numpy as np

from onebasin.evaluate import functional_rhat, predict, rhat
from onebasin.evaluate.convergence import LEAST_DRAWS
from onebasin.posterior import Draws
from onebasin.studies.exploration.base import (
    HMC_TARGET,
    METHODS,
    TARGETS,
    stage_needs,
    study,
    targets,
    world,
)
from onebasin.studies.exploration.distance import FORMS, matching, removals
from onebasin.studies.exploration.populations import CHAINS
from onebasin.studies.results import Cell, Column, Row, Table, middle
from onebasin.studies.step import Step

EXAMPLES = 500


@study.stage("Convergence of the chains", needs=(*stage_needs(), "discrepancy"))
def convergence(step: Step) -> None:
    """R-hat across chains of weights, by what was removed, and of predictions."""
    config = step.config
    here = world(config)
    reference = step.load("discrepancy", "reference")[0]
    chains = {}
    for name in config.methods:
        if name in CHAINS:
            draws = step.load("methods", name)
            first = np.asarray(draws.mode) % config.modes == 0
            chains[METHODS[name]] = draws[np.flatnonzero(first)]
    if "hmc" in targets(config):
        chains[TARGETS["hmc"]] = _level(step.load("methods", HMC_TARGET))
    ways = removals(config, here, reference)
    del ways["matched"]
    by_chain = {"symmetry": here.symmetry, "reference": reference, **matching(config, here)}
    rows = []
    for label, draws in chains.items():
        number = len(draws.modes)
        if number < 2 or len(draws) < number * LEAST_DRAWS:
            step.say(f"The chains of {label} are too short, or too few, for R-hat.")
            continue
        found = {form: rhat(remove(draws)) for form, remove in ways.items()}
        found["matched"] = rhat(draws, **by_chain)
        values = {form: _all(one.values) for form, one in found.items()}
        probs = np.asarray(predict(here.setting.net.apply, draws, here.setting.test[0][:EXAMPLES]))
        values["predictions"] = _all(functional_rhat(probs, draws.mode).values)
        cells = {key: middle(found) for key, found in values.items()}
        cells |= {"chains": Cell(value=number), "length": Cell(value=len(draws) // number)}
        rows.append(Row(label=label, cells=cells))
    step.show(
        Table(
            name="rhat",
            title="R-hat across chains, by what was removed",
            text="Rank-normalised and split; medians over the weights (or over predicted "
            "probabilities), in brackets the range of the middle 90 %. Near 1 where chains cannot "
            "be told apart. Matched with one element for each chain; scaled and sorted draw by "
            "draw, which hides that a chain moves slowly. Of the methods the chains that are one "
            "mode each; chains of the target are short, which raises R-hat by itself.",
            columns=[
                Column(key="chains", label="chains", digits=0),
                Column(key="length", label="draws of each", digits=0),
                *(
                    Column(key=form, label=f"R-hat, {label}", better="lower")
                    for form, label in {**FORMS, "matched": "matched by chain"}.items()
                ),
                Column(key="predictions", label="R-hat of predictions", better="lower"),
            ],
            rows=rows,
        )
    )


def _level(draws: Draws) -> Draws:
    """Equally many draws of every chain, in order: those that the shortest has."""
    mode = np.asarray(draws.mode)
    least = int(np.unique(mode, return_counts=True)[1].min())
    places = [np.flatnonzero(mode == number)[:least] for number in draws.modes]
    return draws[np.concatenate(places)]


def _all(values: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(found) for found in jax.tree.leaves(dict(values))])
