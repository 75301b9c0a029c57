"""Published numbers stand beside ours where both are of the same thing, and nowhere else."""

from typing import Any

import pytest

from onebasin.studies import get, load_config
from onebasin.studies.compact.quality import PUBLISHED
from onebasin.studies.compact.quality import published as beside_compact
from onebasin.studies.exploration.published import CIFAR100, beside

RESNET18 = {
    "dataset": "cifar100",
    "train_size": None,
    "net": {"kind": "resnet18", "width": 64},
    "outside": "svhn",
}


def exploration(**fields: Any) -> Any:
    return load_config(get("exploration").config, "exploration", "paper", None, RESNET18 | fields)


def compact(**fields: Any) -> Any:
    changes = {name.replace("__", "."): value for name, value in fields.items()}
    return load_config(get("compact").config, "compact", "paper", None, changes)


def test_numbers_of_the_same_network_and_size_stand_side_by_side() -> None:
    assert beside(exploration(), "SWAG, one mode", "accuracy") == 70.9
    assert beside(exploration(), "SWAG, one mode", "outside") == 6.3
    assert beside(exploration(outside="rotated"), "SWAG, one mode", "outside") is None
    assert beside(exploration(), "HMC, one mode", "accuracy") is None


@pytest.mark.parametrize("key", ["ace", "aupr", "fpr95", "mmd", "ns", "nll"])
def test_numbers_of_another_definition_do_not(key: str) -> None:
    assert all(beside(exploration(), label, key) is None for label in CIFAR100)


def test_ensembles_of_unknown_size_do_not() -> None:
    assert beside(exploration(), "deep ensemble, several modes", "accuracy") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"net": {"kind": "resnet", "width": 16}},
        {"net": {"kind": "resnet18", "width": 16}},
        {"num_samples": 12},
        {"modes": 3},
        {"train_size": 10_000},
        {"dataset": "cifar10"},
    ],
)
def test_numbers_of_another_network_or_size_do_not(fields: dict[str, Any]) -> None:
    config = exploration(**{"num_target": None, **fields})
    assert beside(config, "SWAG, one mode", "accuracy") is None


def test_the_stored_preset_is_of_another_network() -> None:
    config = load_config(get("exploration").config, "exploration", "cifar100")
    keys = ("accuracy", "ece", "ace", "brier", "aupr", "fpr95", "inside", "outside")
    assert all(beside(config, label, key) is None for label in CIFAR100 for key in keys)


def test_ten_networks_are_not_five() -> None:
    rows = [row for row in PUBLISHED if row.startswith("ensemble")]
    assert len(rows) == 3
    assert all(beside_compact(compact(), row) == () for row in rows)
    five = compact(ensemble__num_networks=5)
    assert all(beside_compact(five, row) == PUBLISHED[row] for row in rows)


def test_other_fits_and_settings_are_not_the_published_ones() -> None:
    assert beside_compact(compact(), "HMC draws") == PUBLISHED["HMC draws"]
    assert beside_compact(compact(), "variational fit") == PUBLISHED["variational fit"]
    local = compact(vi__reparameterisation="local")
    assert beside_compact(local, "variational fit") == ()
    for other in (compact(prior_variance=0.5), compact(train_size=100), compact(hidden=[64])):
        assert beside_compact(other, "HMC draws") == ()
