"""The headline on digits: one Gaussian, in one basin, speaks for HMC as another run of HMC does."""

import tempfile
from typing import Any

import pytest
from full_speed import at_full_speed
from zoo import THOROUGH

from onebasin import studies

pytestmark = pytest.mark.skipif(not THOROUGH, reason="minutes of HMC: set ONEBASIN_THOROUGH=1")


def compact() -> dict[str, Any]:
    """8 chains, 64-64-10, prior variance 0.3, as `make demo` runs it."""
    study = studies.get("compact")
    folder = study.run(studies.load_config(study.config, "compact"), tempfile.mkdtemp())
    found = studies.sections(folder)
    return {
        name: {
            row.label: {key: cell.value for key, cell in row.cells.items()}
            for row in found[name].table(name).rows
        }
        for name in ("agreement", "left-out")
    }


def test_one_gaussian_speaks_for_hmc() -> None:
    found = at_full_speed("studies.test_demo", "compact")
    rows = found["agreement"]
    assert rows["HMC, one Gaussian, unaligned"]["agreement"] < 0.3
    assert rows["HMC, moments (tempered)"]["agreement"] >= 0.97
    assert rows["HMC, moments (tempered)"]["tv"] <= 0.07
    assert rows["HMC, distilled"]["agreement"] >= 0.995
    assert rows["HMC, distilled"]["tv"] <= 0.02
    assert found["left-out"]["one Gaussian, distilled"]["ratio"] <= 1.05


def other(name: str) -> list[str]:
    study = studies.get(name)
    folder = study.run(studies.load_config(study.config, name), tempfile.mkdtemp())
    return sorted(studies.sections(folder))


def variational() -> list[str]:
    return other("variational")


def exploration() -> list[str]:
    return other("exploration")


@pytest.mark.parametrize("name", ["variational", "exploration"])
def test_the_other_studies_run_to_their_end(name: str) -> None:
    expected = sorted(stage.name for stage in studies.get(name).stages)
    assert at_full_speed("studies.test_demo", name) == expected
