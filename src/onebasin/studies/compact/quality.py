"""How well each Gaussian speaks for HMC: in sample, and judged by chains that were left out."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from onebasin.compact import fit_gaussian
from onebasin.evaluate import metrics, predict
from onebasin.posterior import Gaussian, moments
from onebasin.studies.compact.config import CompactConfig
from onebasin.studies.compact.posteriors import MODEL, compact_fit
from onebasin.studies.compact.study import network_predictive, predictive, setting, study
from onebasin.studies.results import Cell, Column, Row, Table
from onebasin.studies.step import Step

# xiao2023compact: MNIST, 784-512-10, agreement, total variation, accuracy of samples and of mu.
PUBLISHED = {
    "HMC draws": (1.0, 0.0, 98.43, None),
    "HMC, one Gaussian, unaligned": (0.1212, 0.8641, 11.11, 28.06),
    "HMC, activations to the first draw": (0.8249, 0.6570, 82.34, 92.25),
    "ensemble": (0.9931, 0.0229, 98.66, None),
    "ensemble, one Gaussian, unaligned": (0.5239, 0.7210, 52.25, 86.40),
    "ensemble, activations to the first": (0.9868, 0.0495, 97.72, 97.97),
    "variational fit": (0.9885, 0.0235, 98.11, 98.04),
}
MEMBERS = 5
CHAIN = " Published: one chain of HMC, 1,000 of its 10,000 draws, and five networks."
MOMENTS = "one Gaussian, moments (tempered)"
COLUMNS = [
    Column(key="agreement", label="agreement with HMC", better="higher"),
    Column(key="tv", label="total variation to HMC", better="lower"),
    Column(key="accuracy", label="accuracy, %", digits=2, better="higher"),
    Column(key="mean", label="accuracy of the mean network, %", digits=2, better="higher"),
]


def _cells(theirs: tuple[float | None, ...], **cells: Cell | None) -> dict[str, Cell]:
    keys = [column.key for column in COLUMNS]
    out = {}
    for key, cell in cells.items():
        if cell is not None:
            number = theirs[keys.index(key)] if theirs else None
            out[key] = cell.model_copy(update={"published": number})
    return out


def published(config: CompactConfig, row: str) -> tuple[float | None, ...]:
    """The published numbers of a row, if they are of the same thing: setting, size and fit."""
    same = (
        config.dataset == "mnist"
        and not any((config.model, config.data, config.train_size, config.test_size))
        and config.hidden == [512]
        and config.prior_variance == 1
    )
    of_others = (row.startswith("ensemble") and config.ensemble.num_networks != MEMBERS) or (
        row == "variational fit" and config.vi.reparameterisation != "weights"
    )
    return PUBLISHED.get(row, ()) if same and not of_others else ()


def _interval(found: Any, factor: float = 1.0) -> Cell:
    return Cell(value=factor * found.value, low=factor * found.low, high=factor * found.high)


@study.stage(
    "One Gaussian against HMC",
    needs=("hmc", "ensemble", "variational", "fits"),
    reads=("fit",),
    version=2,
)
def agreement(step: Step) -> None:
    """The published table, their method re-run, ours, and the floor."""
    place = setting(step.config)
    like = place.params()
    labels = np.asarray(place.test[1])
    draws = step.load("hmc", "draws", like)
    probs = np.asarray(predict(place.net.apply, draws, place.test[0]))
    hmc = probs.mean(axis=0)
    way = step.load_notes("fits", "way")
    raw = step.load("fits", "hmc-unaligned", like)
    tempered = Gaussian(
        jax.tree.map(lambda m: way["stretch"] * m, raw.mean),
        jax.tree.map(lambda s: way["temperature"] ** 0.5 * s, raw.std),
    )
    posteriors: dict[str, tuple[str, Any]] = {
        "HMC draws": ("HMC", draws),
        "HMC, one Gaussian, unaligned": ("HMC", raw),
        "HMC, activations to the first draw": ("HMC", step.load("fits", "hmc-published", like)),
        "HMC, unaligned, tempered as ours": ("HMC", tempered),
        "HMC, aligned, not tempered": ("HMC", fit_gaussian(step.load("fits", "hmc-aligned", like))),
        "HMC, moments (tempered)": ("HMC", step.load("fits", "hmc-moments", like)),
        "HMC, distilled": ("HMC", step.load("fits", "hmc-distilled", like)),
        "ensemble": ("ensemble", step.load("ensemble", "networks", like)),
        "ensemble, one Gaussian, unaligned": (
            "ensemble",
            step.load("fits", "ensemble-unaligned", like),
        ),
        "ensemble, activations to the first": (
            "ensemble",
            step.load("fits", "ensemble-published", like),
        ),
        "ensemble, moments": ("ensemble", step.load("fits", "ensemble-moments", like)),
        "variational fit": ("variational", step.load("variational", "gaussian", like)),
    }
    rows, saved = [], {}
    for name, (group, posterior) in posteriors.items():
        mine = hmc if name == "HMC draws" else predictive(step, place, posterior)
        saved[name] = mine
        mean = None
        if not hasattr(posterior, "mode"):
            one = network_predictive(place, moments(posterior).mean)
            mean = _interval(metrics.bootstrap(metrics.accuracy, labels, one), 100)
        cells = _cells(
            published(step.config, name),
            agreement=_interval(metrics.bootstrap(metrics.agreement, hmc, mine)),
            tv=_interval(metrics.bootstrap(metrics.total_variation, hmc, mine)),
            accuracy=_interval(metrics.bootstrap(metrics.accuracy, labels, mine), 100),
            mean=mean,
        )
        rows.append(Row(label=name, group=group, cells=cells, emphasis=name == "HMC, distilled"))
    floor = metrics.chain_floor(probs, draws.mode)
    rows.append(
        Row(
            label="floor: a chain of HMC against the others",
            group="floor",
            cells={
                "agreement": _interval(floor.mean_agreement),
                "tv": _interval(floor.mean_total_variation),
            },
        )
    )
    step.save_arrays("probs", labels=labels, **{k.replace(" ", "_"): v for k, v in saved.items()})
    step.say(
        "Test inputs; every posterior against the predictive of all draws of HMC. Rows of HMC "
        "are in sample: these Gaussians were made from those draws. The floor says how well "
        "chains agree with each other. Brackets: 95 % bootstrap intervals over test inputs."
    )
    step.show(
        Table(
            name="agreement",
            title="What one Gaussian keeps of HMC",
            text="Agreement: share of test inputs with the same most probable class. Total "
            "variation: mean over test inputs of half the L1 distance."
            + (CHAIN if published(step.config, "HMC draws") else ""),
            columns=COLUMNS,
            rows=rows,
        )
    )
    named = {row.label: row.cells for row in rows}
    ours, bare = named["HMC, distilled"], named["HMC, one Gaussian, unaligned"]
    step.headline(
        "agreement with HMC, one Gaussian, in sample",
        f"{ours['agreement'].value:.3f}",
        f"total variation {ours['tv'].value:.4f}; without alignment or distilling "
        f"{bare['agreement'].value:.3f} and {bare['tv'].value:.3f}",
    )


@study.stage(
    "Judged by a chain that was left out",
    needs=("hmc", "ensemble", "variational"),
    reads=(*MODEL, "fit"),
)
def left_out(step: Step) -> None:
    """Fitted on all chains but one, judged by that one, beside the remaining chains."""
    place = setting(step.config)
    like = place.params()
    draws = step.load("hmc", "draws", like)
    networks = step.load("ensemble", "networks", like)
    vi = step.load("variational", "gaussian", like)
    probs = np.asarray(predict(place.net.apply, draws, place.test[0]))
    made: dict[tuple[int, ...], dict[str, np.ndarray]] = {}

    def fitted(kept: tuple[int, ...]) -> dict[str, np.ndarray]:
        if kept not in made:
            some = draws[np.flatnonzero(np.isin(np.asarray(draws.mode), kept))]
            found = compact_fit(step, some, networks, vi)
            made[kept] = {
                "moments": predictive(step, place, found.moments),
                "distilled": predictive(step, place, found.posterior),
            }
        return made[kept]

    judges = list(draws.modes[: step.config.fit.judges])
    found = metrics.left_out(
        probs,
        draws.mode,
        {
            "one Gaussian, distilled": lambda kept: fitted(kept)["distilled"],
            MOMENTS: lambda kept: fitted(kept)["moments"],
            "ensemble": predictive(step, place, networks),
            "variational fit": predictive(step, place, vi),
        },
        judges=judges,
    )
    columns = [
        Column(key="agreement", label="agreement with the judge", better="higher"),
        Column(key="tv", label="total variation to the judge", better="lower"),
        Column(
            key="ratio",
            label="total variation / that of the remaining chains",
            digits=3,
            better="lower",
        ),
    ]
    rows = [
        Row(
            label=name,
            cells={
                "agreement": _interval(row.mean_agreement),
                "tv": _interval(row.mean_total_variation),
                "ratio": _interval(row.ratio),
            },
            emphasis=name == "one Gaussian, distilled",
        )
        for name, row in found.rows.items()
    ]
    each = [
        Row(
            label=name,
            cells={
                f"chain{j}": Cell(value=v) for j, v in zip(judges, row.total_variation, strict=True)
            },
        )
        for name, row in found.rows.items()
    ]
    step.say(
        f"{len(judges)} of {len(draws.modes)} chains judge in turn what was made from the others, "
        f"{len(draws) // len(draws.modes)} draws a chain: all that a fit chooses, it chooses "
        "without the judge. The distilled Gaussian owes its quality to distilling, which needs no "
        "alignment; the moments fit needs alignment, and a temperature and a stretch chosen on "
        "held-out draws."
    )
    step.show(
        Table(
            name="left-out",
            title="Another run of HMC, or one Gaussian?",
            text="Means over judges, with 95 % bootstrap intervals over test inputs.",
            columns=columns,
            rows=rows,
        ),
        Table(
            name="judges",
            title="Total variation by judge",
            columns=[
                Column(key=f"chain{j}", label=f"judge: chain {j}", better="lower") for j in judges
            ],
            rows=each,
        ),
    )
    ours, theirs = found["one Gaussian, distilled"], found["remaining chains"]
    step.headline(
        "one Gaussian / remaining chains of HMC",
        f"{ours.ratio.value:.2f}",
        f"total variation to a chain left out: {ours.mean_total_variation.value:.4f} against "
        f"{theirs.mean_total_variation.value:.4f} of the remaining chains",
    )
    step.headline(
        "agreement with a chain left out",
        f"{ours.mean_agreement.value:.3f}",
        f"the remaining chains of HMC: {theirs.mean_agreement.value:.3f}",
    )
