"""The study of populations runs end to end, and knows what must come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onebasin.studies import (
    PRESETS,
    Figure,
    Section,
    StudyError,
    Table,
    load_config,
    sections,
)
from onebasin.studies.exploration import ExplorationConfig, study
from onebasin.studies.exploration.published import CIFAR100
from onebasin.studies.exploration.quality import beside_published, correlation

TINY = {
    "train_size": 150,
    "test_size": 60,
    "net": {"kind": "mlp", "hidden": [6]},
    "train": {"epochs": 30, "batch_size": 50, "learning_rate": 0.02},
    "variational": {"epochs": 40, "batch_size": 50, "learning_rate": 0.03},
    "chains": {"num_warmup": 5, "max_leapfrogs": 40, "thin": 5},
    "num_samples": 8,
    "num_target": 32,
    "modes": 2,
    "repeats": 2,
    "swag_snapshots": 4,
    "resamples": 50,
    "toy": {"num_networks": 40, "epochs": 20, "points": 50},
    "large": {"net": {"kind": "mlp", "hidden": [12, 9]}, "train": {"epochs": 3}},
}
METHODS = ["dropout", "mean-field VI", "SWAG", "Laplace", "SGHMC", "HMC"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Section]:
    config = load_config(ExplorationConfig, "exploration", "demo", overrides=TINY)
    folder = study.run(config, tmp_path_factory.mktemp("run") / "exploration")
    return dict(sections(folder))


def items(found: dict[str, Section], kind: type) -> set[str]:
    return {item.name for s in found.values() for item in s.items if isinstance(item, kind)}


def test_every_table_and_figure_is_there(found: dict[str, Section]) -> None:
    assert [*found] == [stage.name for stage in study.stages]
    assert items(found, Table) == {
        "toy",
        "target",
        "methods",
        "methods-seconds",
        "mmd-sgd",
        "mmd-hmc",
        "removal",
        "excess-mass",
        "mass-by-layer",
        "mass-seconds",
        "corollary",
        "rhat",
        "uncertainty",
        "collapse",
        "quality",
    }
    assert items(found, Figure) == {
        "toy",
        "mmd",
        "excess-mass",
        "corollary",
        "collapse",
        "quality",
    }


def test_every_method_has_one_mode_and_several(found: dict[str, Section]) -> None:
    for stage, name in (("discrepancy", "mmd-sgd"), ("uncertainty", "uncertainty")):
        rows = found[stage].table(name).rows
        assert [r.label for r in rows if r.group == "one mode"] == METHODS
        assert [r.label for r in rows if r.group == "several modes"] == [*METHODS, "deep ensemble"]


def test_removed_symmetries_leave_predictions_alone(found: dict[str, Section]) -> None:
    for row in found["discrepancy"].table("removal").rows:
        assert row.cells["change"].value < 1e-4
    for row in found["toy"].table("toy").rows:
        assert row.cells["change"].value < 1e-3


def test_independent_networks_are_no_distance_from_each_other(found: dict[str, Section]) -> None:
    table = found["discrepancy"].table("mmd-sgd")
    others = [r.cells["raw"].value for r in table.rows if r.group == "one mode"]
    for label in ("the target against itself", "deep ensemble"):
        assert abs(table.cell(label, "raw").value) < min(0.03, *others)


def test_sorting_folds_the_toy_onto_one_side(found: dict[str, Section]) -> None:
    table = found["toy"].table("toy")
    areas = [table.cell(name, "spread").value for name in ("raw", "scaled and sorted")]
    assert areas[1] < areas[0]


def test_chains_are_as_long_as_what_is_read_of_them(found: dict[str, Section]) -> None:
    table = found["convergence"].table("rhat")
    lengths = {r.label: (r.cells["chains"].value, r.cells["length"].value) for r in table.rows}
    assert lengths == {"SGHMC": (2, 8), "HMC": (2, 8), "HMC target": (4, 4)}
    drawn = found["methods"].table("methods")
    # Two repeats of two modes: one chain of 8 draws, one of 4.
    assert drawn.cell("HMC", "networks").value == 2 * (8 + 4)
    assert drawn.cell("HMC, as a target", "networks").value == 2 * 8


def test_mass_is_never_below_its_minimum(found: dict[str, Section]) -> None:
    cell = found["excess-mass"].table("excess-mass").rows[0].cells["median"]
    assert cell.low > -1e-3
    assert cell.low <= cell.value <= cell.high


def test_correlation_of_what_rises_together_is_one() -> None:
    x = np.arange(10.0)
    cell = correlation(x, np.exp(x), 100, np.random.default_rng(0))
    assert cell.value == pytest.approx(1)
    assert cell.low == pytest.approx(1)


def test_a_target_is_shared_out_evenly() -> None:
    with pytest.raises(StudyError, match="no multiple of num_samples x repeats = 16: take 32"):
        load_config(ExplorationConfig, "exploration", "demo", overrides={**TINY, "num_target": 40})


def test_masses_by_layer_add_up_and_are_least_together(found: dict[str, Section]) -> None:
    table = found["excess-mass"].table("mass-by-layer")
    groups = dict.fromkeys(row.group for row in table.rows)
    assert len(groups) == 2
    for group in groups:
        *layers, total = [row.cells for row in table.rows if row.group == group]
        for key in ("weights", "before", "after"):
            parts = [cells[key].value or 0 for cells in layers]
            assert sum(parts) == pytest.approx(total[key].value)
        assert total["after"].value < total["before"].value


def test_without_hmc_there_is_one_target(tmp_path: Path) -> None:
    few = {**TINY, "methods": ["laplace", "swag"], "large": None, "train_in": "bfloat16"}
    config = load_config(ExplorationConfig, "exploration", "demo", overrides=few)
    found = dict(sections(study.run(config, tmp_path / "run")))
    assert "mmd-hmc" not in items(found, Table)
    assert {row.group for row in found["quality"].table("quality").rows} == {"trained target"}
    assert [row.label for row in found["collapse"].table("collapse").rows] == ["trained target"]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid(preset: str) -> None:
    config = load_config(ExplorationConfig, "exploration", preset)
    assert config.methods == ("dropout", "mean_field", "swag", "laplace", "sghmc", "hmc")


def test_methods_in_the_published_order_are_told() -> None:
    """Distances that grow with the published ones, in any units, are in the same order."""
    labels = [*CIFAR100, "HMC, one mode"]
    theirs = np.array([*(CIFAR100[label][:2] for label in CIFAR100), (99.0, 99.0)]).T
    distance = np.stack([theirs[0] ** 2, theirs[0], -theirs[1], theirs[0]])
    table, order = beside_published(labels, distance, 200, np.random.default_rng(0))
    assert [row.label for row in table.rows] == list(CIFAR100)
    ours, theirs = (table.cell("SWAG, one mode", f"sorted{of}") for of in ("", " published"))
    assert (ours.value, theirs.value) == (-7.2, 7.2)
    # Of other units, they stand beside each other and not as one and the same thing.
    assert ours.published is None
    for row in ("methods but ensembles", "methods of one mode"):
        assert order.cell(row, "raw").value == pytest.approx(1)
        assert order.cell(row, "sorted").value == pytest.approx(-1)
