"""What can be pruned by spreads of weights, once posteriors lie in one basin."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from onebasin.align import align
from onebasin.evaluate import metrics, prune, prune_curve
from onebasin.posterior import Gaussian, moments, trees
from onebasin.studies.compact.posteriors import MODEL
from onebasin.studies.compact.study import setting, study
from onebasin.studies.compact.weights import in_one_basin
from onebasin.studies.results import Axis, Cell, Column, Figure, Panel, Row, Series, Table
from onebasin.studies.step import Step

Score = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Rule:
    """Whose spreads decide, how, and whether all layers are ranked together."""

    source: str
    by: str
    apart: bool = False

    @property
    def label(self) -> str:
        """What tables call it."""
        what = "sigma" if self.by == "std" else "mean / sigma"
        return f"{self.source}'s {what}" + (", layer by layer" if self.apart else "")

    def scores(
        self, score: Score, posterior: Gaussian, keep: Sequence[float], target: Any
    ) -> np.ndarray:
        """The scores of a network that keeps these shares of its weights."""
        if not self.apart:
            return prune_curve(score, posterior, self.by, keep=keep, target=target).score
        cut = (_apart(posterior, share, self.by, target) for share in keep)
        return np.array([float(score(params)) for params in cut])


RULES = (
    *(Rule(source, "std") for source in ("HMC", "ensemble", "variational")),
    Rule("HMC", "signal"),
    Rule("HMC", "std", apart=True),
)


@study.stage(
    "Pruning", needs=("variational", "fits", "ensemble"), reads=(*MODEL, "keep"), version=2
)
def pruning(step: Step) -> None:
    """Weights of lowest sigma are kept; one method's sigma prunes another's network."""
    place, keep = setting(step.config), step.config.keep
    like = place.params()
    methods = in_one_basin(step, like)
    member = step.load("fits", "ensemble-aligned", like)[0]
    moved = align(place.symmetry, member, to=methods["HMC"].mean, cost="weights")
    targets = {name: q.mean for name, q in methods.items()} | {"ensemble member": moved.params}

    @jax.jit
    def accuracy(params: Any) -> Any:
        probs = jax.nn.softmax(place.net.apply(params, place.test[0]))
        return 100 * metrics.accuracy(place.test[1], probs)

    found = {
        (target, rule): rule.scores(accuracy, methods[rule.source], keep, params)
        for target, params in targets.items()
        for rule in RULES
    }
    columns = [Column(key=_key(k), label=f"{100 * k:g} % kept", digits=1) for k in keep]
    rows = [
        Row(label=f"{target} by {rule.label}", group=target, cells=_cells(keep, scores))
        for (target, rule), scores in found.items()
    ]
    layers = [
        Row(label=name, group="HMC's sigma", cells=_cells(keep, shares))
        for name, shares in kept_by_layer(methods["HMC"], keep).items()
    ]
    step.show(
        _figure(targets, found, keep),
        Table(
            name="pruning",
            title="Test accuracy of pruned networks, %",
            text="All weights are ranked together, but for the last row of each network, where "
            "every array keeps the same share.",
            columns=columns,
            rows=rows,
        ),
        Table(
            name="kept",
            title="What is left of each layer, %",
            text="Spreads of layers differ by the scale that the parameters of each have, and not "
            "by how much they are needed: where all are ranked together, whole layers go first.",
            columns=[Column(key="sigma", label="median sigma", digits=3), *columns],
            rows=[_with_sigma(row, methods["HMC"]) for row in layers],
        ),
    )


def kept_by_layer(posterior: Gaussian, keep: Sequence[float]) -> dict[str, np.ndarray]:
    """The share of each array, in per cent, that is left where all are ranked together.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin import Gaussian
        >>> from onebasin.studies.compact.pruning import kept_by_layer
        >>> spread = {"first": jnp.full(8, 0.1), "last": jnp.full(2, 0.9)}
        >>> kept_by_layer(Gaussian(spread, spread), [0.9, 0.8])
        {'first': array([100., 100.]), 'last': array([50.,  0.])}
    """
    masks = [dict(trees.named_leaves(prune(posterior, share).mask)) for share in keep]
    return {name: np.array([100 * float(np.mean(m[name])) for m in masks]) for name in masks[0]}


def _apart(posterior: Gaussian, share: float, by: str, target: Any) -> Any:
    """A network whose arrays keep the same share each."""

    def cut(mean: Any, std: Any, params: Any) -> Any:
        return prune(Gaussian(mean, std), share, by, target=params).params

    found = moments(posterior)
    return jax.tree.map(cut, found.mean, jax.tree.map(np.sqrt, found.variance()), target)


def _key(share: float) -> str:
    return f"keep{100 * share:g}"


def _cells(keep: Sequence[float], values: Sequence[float] | np.ndarray) -> dict[str, Cell]:
    return {_key(share): Cell(value=value) for share, value in zip(keep, values, strict=True)}


def _with_sigma(row: Row, posterior: Gaussian) -> Row:
    """A layer with the median of its spreads."""
    variances = dict(trees.named_leaves(moments(posterior).variance()))
    sigma = Cell(value=float(np.median(np.sqrt(variances[row.label]))))
    return row.model_copy(update={"cells": {"sigma": sigma, **row.cells}})


def _figure(
    targets: Iterable[str],
    found: dict[tuple[str, Rule], np.ndarray],
    keep: Sequence[float],
) -> Figure:
    panels = [
        Panel(
            title=f"network: {target}",
            x=Axis(label="weights kept, %"),
            y=Axis(label="test accuracy, %"),
            series=[
                Series(
                    name=rule.label,
                    group=rule.label,
                    x=100 * np.asarray(keep),
                    y=found[target, rule],
                    style="line+points",
                )
                for rule in RULES
            ],
        )
        for target in targets
    ]
    return Figure(
        name="pruning",
        title="Test accuracy while weights are set to zero, by whose sigma",
        panels=panels,
    )
