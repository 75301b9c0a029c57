"""The study of variational posteriors runs end to end, and knows what must come out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onebasin.engine import LocalEngine
from onebasin.studies import Figure, Section, Table, load_config, presets, sections
from onebasin.studies.variational import VariationalConfig, study

TINY = {
    "train_size": 200,
    "test_size": 60,
    "num_pairs": 2,
    "num_samples": 4,
    "points": 3,
    "plane": 5,
    "nets": [
        {
            "hidden": [12],
            "prior_variance": 0.3,
            "epochs": 60,
            "batch_size": 50,
            "learning_rate": 0.02,
        }
    ],
    "bend": {"steps": 10, "batch_size": 20},
    "sweeps": {"widths": [12], "prior_variances": [0.3], "temperatures": [0.5], "num_pairs": 2},
    "timing": {"widths": [12], "epochs": 1, "repeats": 2},
    "ladder": {"examples": 60, "num_samples": 2, "refine": 2, "num_pairs": 2},
}


CONFIG = load_config(VariationalConfig, "variational", "demo", overrides=TINY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return study.run(CONFIG, tmp_path_factory.mktemp("run") / "variational")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Section]:
    return dict(sections(folder))


def items(found: dict[str, Section], kind: type) -> set[str]:
    return {item.name for s in found.values() for item in s.items if isinstance(item, kind)}


def test_every_table_and_figure_is_there(found: dict[str, Section]) -> None:
    assert [*found] == [stage.name for stage in study.stages]
    assert items(found, Table) == {
        "toy",
        "solutions",
        "alignment",
        "alignment-seconds",
        "barriers",
        "paths",
        "ladder",
        "candidates",
        "sweeps",
        "timing",
    }
    assert items(found, Figure) == {
        "toy",
        "fitting",
        "barriers",
        "paths",
        "confidence",
        "plane-raw",
        "plane-aligned",
        "sweeps",
        "timing",
    }
    assert any(section.headlines for section in found.values())


def test_all_but_the_mean_term_see_the_swap(found: dict[str, Section]) -> None:
    table = found["toy"].table("toy")
    seen = {row.label: row.cells["found"].value for row in table.rows}
    assert seen == {
        "Wasserstein-2": 1,
        "KL, forward": 1,
        "KL, reverse": 1,
        "KL, mean term only": 0,
    }
    assert table.cell("Wasserstein-2", "distance").value == pytest.approx(0, abs=1e-5)


def test_alignment_lowers_distance_and_barrier(found: dict[str, Section]) -> None:
    distance = found["alignment"].table("alignment")
    barrier = found["barriers"].table("barriers")
    for cost in ("Wasserstein-2", "means only"):
        for table, key in ((distance, "wasserstein"), (barrier, "test loss")):
            raw, aligned = table.cell("none", key).value, table.cell(cost, key).value
            assert raw is not None
            assert aligned is not None
            assert aligned < raw


def test_the_mixture_has_no_barrier(found: dict[str, Section]) -> None:
    # -log of an average is below the average of -log.
    table = found["paths"].table("paths")
    height = table.cell("mixture (control), W2-aligned", "test loss").value
    assert height == pytest.approx(0, abs=1e-5)


def test_the_search_is_judged_by_its_loss(found: dict[str, Section]) -> None:
    losses = [r.cells["loss"].value for r in found["ladder"].table("candidates").rows]
    assert len(losses) > 20
    assert losses == sorted(losses)


def test_the_ladder_is_the_same_pair_by_pair_as_tasks(folder: Path, tmp_path: Path) -> None:
    """And every rung after the first brings the two nearer."""
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    shutil.rmtree(other / "stages" / "ladder")
    study.run(CONFIG, other, stages=["ladder"], engine=LocalEngine)
    for name in ("section.json", "last-rung.safetensors"):
        first, second = ((f / "stages" / "ladder" / name).read_bytes() for f in (folder, other))
        assert first == second
    table = sections(other)["ladder"].table("ladder")
    assert len(table.rows) == 6
    distance = [row.cells["distance"].value or 0.0 for row in table.rows]
    assert all(row.cells["distance"].low is not None for row in table.rows)
    assert max(distance[1:]) < distance[0]


def test_the_slider_has_a_frame_for_every_point(found: dict[str, Section]) -> None:
    [figure] = [i for i in found["paths"].items if i.name == "confidence"]
    assert isinstance(figure, Figure)
    assert [frame.label for frame in figure.frames] == ["0.00", "0.50", "1.00"]
    for frame in figure.frames:
        for series in frame.series:
            assert sum(y or 0 for y in series.y) == pytest.approx(1)


@pytest.mark.parametrize("preset", presets("variational"))
def test_presets_are_valid(preset: str) -> None:
    config = load_config(VariationalConfig, "variational", preset)
    assert set(config.costs) >= {"none", "wasserstein"}
    assert config.ladder.path in config.paths


def test_the_published_settings_have_presets() -> None:
    found = {
        (net.kind, net.dataset or config.dataset, net.width if net.kind == "resnet" else 0)
        for preset in presets("variational")
        if preset not in ("demo", "laptop")
        for config in [load_config(VariationalConfig, "variational", preset)]
        for net in config.nets
    }
    assert found == {
        ("mlp", "mnist", 0),
        ("mlp", "cifar10", 0),
        ("resnet", "cifar10", 16),
        ("resnet", "cifar100", 16),
        ("resnet", "cifar100", 64),
    }
