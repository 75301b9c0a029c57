"""The ladder of searches for hard problems, from the published one down."""

from __future__ import annotations

import functools
from typing import Any

from onebasin.align import barrier, losses
from onebasin.align.state import State
from onebasin.evaluate import wasserstein
from onebasin.posterior import Gaussian, Mixture
from onebasin.studies.results import Cell, Column, Row, Table, interval
from onebasin.studies.step import Step
from onebasin.studies.variational.base import (
    PATHS,
    VariationalConfig,
    aligned,
    case_of,
    numbers,
    paired,
    study,
)

LADDER_PATHS = {
    "geodesic": "W2 geodesic",
    "independent": "independent",
    "unit-norm-independent": "unit-norm, independent",
}


@study.stage(
    "The ladder for hard problems, from the published search down",
    needs=("solutions",),
    reads=("nets", "points", "num_samples", "loss_examples", "ladder"),
    tasks=True,
)
def ladder(step: Step) -> None:
    """Searches of rising effort on the hardest network."""
    config = step.config
    number = _number(config)
    case = case_of(config, number)
    pairs = paired(step.load("solutions", f"net-{number}"))[: config.ladder.num_pairs]
    found = step.each(climb, pairs)
    step.save("last-rung", Mixture([last for last, _ in found]))
    notes = [each for _, each in found]
    sizes = f"{case.label}; {len(pairs)} independent pair{'s' * (len(pairs) != 1)}" + (
        ", with 95 % intervals" if len(pairs) > 1 else ""
    )
    candidates, skipped = notes[0]["candidates"], notes[0]["skipped"]
    examples = min(config.ladder.examples, len(case.setting.train[1]))
    step.show(
        Table(
            name="ladder",
            title="Searches of rising effort, from the published one down",
            text=f"Barrier heights in nats. {sizes}; predictive averaged over "
            f"{config.num_samples} draws. Candidates are judged by the marginalised training loss "
            f"of {examples} examples and {config.ladder.num_samples} draws half way on the path "
            f"“{PATHS.get(config.ladder.path, config.ladder.path)}”.",
            columns=[
                *(
                    Column(key=f"{part} {path}", label=f"{part}, {label}", better="lower")
                    for path, label in LADDER_PATHS.items()
                    for part in ("train", "test")
                ),
                Column(key="distance", label="W2 distance"),
            ],
            rows=[
                Row(
                    label=rung,
                    cells={
                        key: interval([own["rungs"][rung][key] for own in notes]) for key in heights
                    },
                )
                for rung, heights in notes[0]["rungs"].items()
            ],
        ),
        Table(
            name="candidates",
            title="The candidates of the thorough search",
            text=f"All {len(candidates)} candidates of the first pair of "
            f"{case.label}, the least loss first. "
            + " ".join(f"Left out: {reason}." for reason in skipped),
            columns=[
                Column(key="loss", label="training loss half way (nats)", better="lower"),
                Column(key="objective", label="W2 objective", better="higher"),
            ],
            rows=[
                Row(
                    label=name,
                    cells={"loss": Cell(value=loss), "objective": Cell(value=objective)},
                )
                for name, loss, objective in candidates
            ],
        ),
    )


def _number(config: VariationalConfig) -> int:
    return numbers(config)[config.ladder.net]


def climb(
    config: VariationalConfig, pair: tuple[Gaussian, Gaussian]
) -> tuple[Gaussian, dict[str, Any]]:
    """All searches for one pair, and the barriers that they leave: what the last one moved."""
    case = case_of(config, _number(config))
    a, b = pair
    inputs, labels = (x[: config.ladder.examples] for x in case.setting.train)
    judge = losses(case.setting.net.apply, (inputs, labels), num_samples=config.ladder.num_samples)
    by_loss = functools.partial(
        aligned, case, "wasserstein", loss_fn=judge, path=config.ladder.path
    )
    by_activations = aligned(case, "correlation", a, b).params
    search = by_loss(a, b, search="thorough", restarts=config.ladder.restarts)
    moved = {
        "no alignment": b,
        "W2 from the identity (as published)": aligned(
            case, "wasserstein", a, b, starts=("identity",)
        ).params,
        "correlation of activations": by_activations,
        "correlation, then W2 from there": aligned(
            case, "wasserstein", a, by_activations, starts=("identity",)
        ).params,
        "best of many, by training loss half way": search.params,
    }
    if config.ladder.refine:
        moved["the same, then refined on that loss"] = by_loss(
            a,
            search.params,
            starts=(State.identity(case.symmetry),),
            solver="straight-through",
            steps=config.ladder.refine,
        ).params
    rungs: dict[str, dict[str, float]] = {}
    for name, other in moved.items():
        own = rungs[name] = {}
        for path in LADDER_PATHS:
            height = barrier(case.loss, a, other, config.points, path).height
            for part in ("train", "test"):
                own[f"{part} {path}"] = float(height[f"{part} loss"])
        own["distance"] = float(wasserstein(a, other))
    return list(moved.values())[-1], {
        "rungs": rungs,
        "candidates": [(c.name, c.loss, c.objective) for c in search.candidates],
        "skipped": list(search.skipped),
    }
