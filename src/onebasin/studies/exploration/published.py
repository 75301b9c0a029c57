"""The rows of laurent2024symmetry for ResNet-18 on CIFAR-100, and which stand beside ours."""

from __future__ import annotations

from onebasin.studies.exploration.base import ENSEMBLE, ExplorationConfig

KEYS = ("mmd", "ns", "accuracy", "ece", "ace", "brier", "aupr", "fpr95", "inside", "outside")
CIFAR100 = {
    "dropout, one mode": (4.5, 7.5, 74.2, 14.7, 3.2, 38.8, 76.4, 47.7, 5.7, 9.1),
    "mean-field VI, one mode": (9.0, 10.2, 57.9, 24.6, 3.0, 63.7, 60.9, 79.1, 2.7, 4.2),
    "SWAG, one mode": (6.7, 7.2, 70.9, 2.3, 1.2, 38.9, 86.2, 48.0, 2.4, 6.3),
    "Laplace, one mode": (5.7, 7.0, 75.1, 0.9, 0.9, 34.6, 81.3, 42.4, 27.6, 63.3),
    "SGHMC, one mode": (7.5, 7.9, 73.7, 4.9, 1.0, 36.2, 79.4, 62.3, 0.2, 0.5),
    "dropout, several modes": (0.7, 4.5, 79.5, 4.3, 1.0, 29.2, 78.2, 48.1, 20.5, 46.3),
    "mean-field VI, several modes": (6.1, 5.6, 66.5, 2.8, 2.0, 45.3, 71.9, 71.7, 45.5, 81.1),
    "SWAG, several modes": (5.0, 5.4, 72.8, 1.5, 1.1, 36.9, 89.1, 50.6, 6.5, 19.7),
    "Laplace, several modes": (0.6, 4.3, 78.9, 6.9, 0.8, 30.3, 82.9, 41.3, 44.1, 98.5),
    "deep ensemble, several modes": (0.0, 0.0, 79.5, 1.6, 0.6, 28.7, 81.1, 45.6, 22.5, 58.0),
}

SAME_KEYS = ("accuracy", "ece", "brier", "inside", "outside")
"""Metrics that are defined alike.

The published ACE is far below the ECE beside it, which a top-label error of adaptive bins cannot
be. AUPR and FPR95 are published for finding the outside, and here for knowing the inside. Distances
are in units of their own.
"""
SAMPLES, MODES, WIDTH = 100, 10, 64


def published_data(config: ExplorationConfig) -> bool:
    """Whether the order of methods may be compared: the same data, and a residual network."""
    return (
        config.dataset == "cifar100"
        and config.net.kind in ("resnet", "resnet18")
        and not any((config.model, config.data, config.train_size, config.test_size))
    )


def published_setting(config: ExplorationConfig) -> bool:
    """Whether numbers are of the same thing: the same network too, and as many of it."""
    return (
        published_data(config)
        and (config.net.kind, config.net.width) == ("resnet18", WIDTH)
        and (config.num_samples, config.modes) == (SAMPLES, MODES)
    )


def beside(config: ExplorationConfig, label: str, key: str) -> float | None:
    """The published number for one of ours, if it is of the same thing."""
    of_others = key == "outside" and config.outside != "svhn"
    # How many members the published ensemble has is not known here.
    if key not in SAME_KEYS or of_others or label.startswith(ENSEMBLE):
        return None
    return published(label, key) if published_setting(config) else None


def published(label: str, key: str) -> float | None:
    """A published number in the units of its paper, if there is one.

    Example:
        >>> from onebasin.studies.exploration.published import published
        >>> published("SWAG, one mode", "accuracy")
        70.9
        >>> published("HMC, one mode", "accuracy")
    """
    if label not in CIFAR100 or key not in KEYS:
        return None
    return CIFAR100[label][KEYS.index(key)]
