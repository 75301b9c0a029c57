"""How far the methods are from the targets, before and after symmetries are removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from onebasin.align import align_many, canonicalize
from onebasin.align.many import SETTLED
from onebasin.engine import Engine
from onebasin.evaluate import index_test, mmd
from onebasin.posterior import Draws
from onebasin.studies.exploration.base import (
    GROUPS,
    TARGETS,
    World,
    exact,
    samples,
    stage_needs,
    study,
    target_parts,
    targets,
    world,
)
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

FORMS = {
    "raw": "raw",
    "scaled": "scaled",
    "sorted": "scaled and sorted",
    "matched": "matched",
}


PREDICTED = 8
OWN = {"sgd": ("deep ensemble",), "hmc": ("HMC",)}
"""Methods that made a target themselves."""


def removals(config: Any, here: World, reference: Any) -> dict[str, Callable[[Draws], Draws]]:
    """What is done to draws before they are compared."""
    symmetry = here.symmetry

    def canonical(draws: Draws, order: Any) -> Draws:
        params = canonicalize(symmetry, draws.params, config.scaling, order)
        return Draws(params, draws.mode)

    def matched(draws: Draws) -> Draws:
        return match(config, here, draws, reference)

    return {
        "raw": lambda draws: draws,
        "scaled": lambda draws: canonical(draws, None),
        "sorted": lambda draws: canonical(draws, config.order),
        "matched": matched,
    }


def match(
    config: Any, here: World, draws: Draws, reference: Any = "mean", engine: Engine | None = None
) -> Any:
    """Draws in the basin of a reference; of their mean, with what `align_many` says of it."""
    found = align_many(
        here.symmetry, draws, reference=reference, engine=engine, **matching(config, here)
    )
    return found if isinstance(reference, str) else found.draws


def matching(config: Any, here: World) -> dict[str, Any]:
    """How draws are matched."""
    return {
        "cost": config.cost,
        "scaling": config.scaling,
        "apply_fn": here.setting.net.apply,
        "inputs": here.setting.train[0][:500],
        "tolerance": SETTLED,
    }


@study.stage(
    "Distance to the targets, with and without symmetries",
    needs=stage_needs(),
    reads=("kernels", "scaling", "order", "cost"),
)
def discrepancy(step: Step) -> None:
    """MMD of every method, repeat, removal and target."""
    config = step.config
    here = world(config)
    titles = targets(config)
    populations = {name: target_parts(step, name) for name in titles}
    whole = Draws.concatenate(populations["sgd"])
    reference = match(config, here, whole, engine=step.engine).reference
    step.save("reference", Draws(jax.tree.map(lambda leaf: np.asarray(leaf)[None], reference)))
    everything = list(samples(step))
    labels = list(dict.fromkeys(s.label for s in everything))
    values = np.full((len(titles), len(FORMS), len(labels), config.repeats), np.nan)
    # Parts of the target against each other, no part twice: how far it is from itself.
    pairs = {name: _pairs(len(own)) for name, own in populations.items()}
    most = max(map(len, pairs.values()))
    floors = np.full((len(titles), len(FORMS), most), np.nan)
    changes = dict.fromkeys(FORMS, 0.0)
    before = [_predicted(here, sample.draws) for sample in everything]
    for place, (form, remove) in enumerate(removals(config, here, reference).items()):
        moved_targets = {name: [remove(d) for d in own] for name, own in populations.items()}
        measures = {name: _measure(own, config.kernels) for name, own in moved_targets.items()}
        for number, (name, own) in enumerate(moved_targets.items()):
            for pair, (one, other) in enumerate(pairs[name]):
                floors[number, place, pair] = measures[name](own[one], own[other])
        for sample, predicted in zip(everything, before, strict=True):
            moved = remove(sample.draws)
            if moved is not sample.draws:
                change = np.abs(_predicted(here, moved) - predicted).max()
                changes[form] = float(np.maximum(changes[form], change))
            for number, (name, own) in enumerate(moved_targets.items()):
                found = [measures[name](moved, o) for o in own[sample.repeat :: config.repeats]]
                values[number, place, labels.index(sample.label), sample.repeat] = np.mean(found)
    step.save_arrays("mmd", values=values, floors=floors)
    step.save_notes("labels", labels=labels)
    groups = {s.label: (s.method, s.group) for s in everything}
    for number, (name, title) in enumerate(titles.items()):
        rows = [
            Row(
                label=groups[label][0],
                group=groups[label][1],
                cells={
                    form: interval(values[number, place, row]) for place, form in enumerate(FORMS)
                },
            )
            for row, label in enumerate(labels)
        ]
        rows.append(
            Row(
                label="the target against itself",
                group="floor",
                cells={
                    form: interval(floors[number, place, : len(pairs[name])])
                    for place, form in enumerate(FORMS)
                },
            )
        )
        step.show(
            Table(
                name=f"mmd-{name}",
                title=f"Distance of every method to the {title}",
                text=f"{here.label}. Squared maximum mean discrepancy, unbiased, averaged over the "
                f"kernels {', '.join(config.kernels)} of ten bandwidths each, the same for all "
                f"methods; {config.num_samples} networks on either side; means over "
                f"{config.repeats} independent repeats of method and target with 95 % intervals. "
                "Floor: parts of the target against each other. The reference of the matched "
                "column is the target's own mean, which favours the floor there. Published "
                "values are in other units and not shown.",
                columns=[
                    Column(
                        key=form,
                        label=f"MMD^2, {label}",
                        better="lower",
                        note=_note(config, form),
                    )
                    for form, label in FORMS.items()
                ],
                rows=rows,
            )
        )
    closest = {}
    for number, (name, title) in enumerate(titles.items()):
        means = values[number, list(FORMS).index("sorted")].mean(axis=-1)
        order = [row for row in np.argsort(means) if groups[labels[row]][0] not in OWN[name]]
        closest[title] = (labels[order[0]], means[order[0]])
    for title, (label, value) in closest.items():
        step.headline(
            f"Closest to the {title}", label, f"MMD^2 {value:.3f}, symmetries removed by sorting"
        )
    step.show(
        _bars(labels, values, groups, list(titles.values())),
        Table(
            name="removal",
            title="What the removal of symmetries does to predictions",
            text=f"Largest change of a probability over {PREDICTED} networks of each of "
            f"{len(everything)} samples, on test inputs.",
            columns=[Column(key="change", label="largest change", digits=6, better="lower")],
            rows=[
                Row(label=label, cells={"change": Cell(value=changes[form])})
                for form, label in FORMS.items()
            ],
        ),
    )


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(one, one + 1) for one in range(0, count - 1, 2)]


def _note(config: Any, form: str) -> str:
    return {
        "raw": "Weights as they are.",
        "scaled": f"Scales removed ({config.scaling}).",
        "sorted": f"Scales removed ({config.scaling}), units sorted by {config.order} weight.",
        "matched": f"Scales removed ({config.scaling}), units matched by {config.cost} to one "
        "reference for all: the mean of the matched trained target.",
    }[form]


def _measure(own: list[Draws], kernels: tuple[str, ...]) -> Callable[[Any, Any], float]:
    """MMD with bandwidths of the target's own, so that all methods are measured alike."""
    widths = {k: mmd(own[0], own[1], kernel=k).bandwidths for k in kernels}
    return lambda x, y: float(
        np.mean([mmd(x, y, kernel=k, bandwidths=widths[k]).value for k in kernels])
    )


def _predicted(here: World, draws: Draws) -> np.ndarray:
    """What some of the networks predict on some test inputs."""
    return exact(here.setting.net.apply, draws[:PREDICTED], here.setting.test[0][:50])


def _bars(
    labels: list[str], values: np.ndarray, groups: dict[str, tuple[str, str]], titles: list[str]
) -> Figure:
    panels = []
    for number, title in enumerate(titles):
        series = []
        for place, form in enumerate(FORMS.values()):
            cells = [interval(values[number, place, row]) for row in range(len(labels))]
            series.append(
                Series(
                    name=form,
                    x=np.arange(len(labels)),
                    y=[c.value for c in cells],
                    low=[c.low for c in cells],
                    high=[c.high for c in cells],
                    labels=[f"{groups[x][0]} ({groups[x][1]})" for x in labels],
                    group=form,
                    style="bars",
                )
            )
        panels.append(
            Panel(title=title, x=Axis(label="method"), y=Axis(label="MMD^2"), series=series)
        )
    return Figure(
        name="mmd",
        title=f"Distance of every method to the {' and the '.join(titles)}, by what was removed",
        text=f"Means over repeats with 95 % intervals; {GROUPS[0]} first.",
        panels=panels,
    )


@study.stage(
    "The corollary: are all units of a layer alike over draws?",
    needs=stage_needs(),
)
def corollary(step: Step) -> None:
    """Tests whether the unit with the largest weight is uniform over its layer."""
    config = step.config
    here = world(config)
    populations = {
        title: Draws.concatenate(target_parts(step, name))
        for name, title in targets(config).items()
    }
    for sample in samples(step):
        if not sample.repeat:
            populations[f"{sample.method}, {sample.group}"] = sample.draws
    columns: list[Column] = [Column(key="draws", label="draws", digits=0)]
    rows, series = [], []
    for name, draws in populations.items():
        found = index_test(here.symmetry, draws, seed=config.seed)
        cells = {"draws": Cell(value=len(draws))}
        for factor, counts in found.counts.items():
            cells[f"{factor} chi"] = Cell(value=found.statistic[factor])
            cells[f"{factor} p"] = Cell(value=found.p_value[factor])
            if name in TARGETS.values() and factor == next(iter(found.counts)):
                series.append(
                    Series(
                        name=name,
                        x=np.arange(len(counts)),
                        y=np.sort(counts)[::-1] / counts.sum(),
                        group=name,
                        style="bars",
                    )
                )
        rows.append(Row(label=name, cells=cells))
    for factor in found.counts:
        columns += [
            Column(key=f"{factor} chi", label=f"chi-square, {factor}", digits=1),
            Column(
                key=f"{factor} p",
                label=f"p, {factor}",
                digits=4,
                note="Small: the draws have not seen all labels of the units.",
            ),
        ]
    step.show(
        Table(
            name="corollary",
            title="Have the draws seen all labels of the hidden units?",
            text="Index of the unit with the largest incoming weight, against the uniform "
            "distribution over its layer; the first repeat of every method. Independent "
            "networks pass; draws that stay in one basin fail.",
            columns=columns,
            rows=rows,
        ),
        Figure(
            name="corollary",
            title="How often each unit has the largest weight",
            text="Units of the first layer in falling order; uniform would be level up to noise.",
            panels=[
                Panel(
                    x=Axis(label="unit, by rank"),
                    y=Axis(label="share of draws"),
                    series=series,
                )
            ],
        ),
    )


__all__ = ["FORMS", "corollary", "discrepancy"]
