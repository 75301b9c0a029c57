r"""Costs that compare weights with weights, as channels of a bilinear objective.

With q0 the reference, q1 what is moved, all Gaussians diagonal (m mean, s standard deviation):

    weights       ||m0 - P m1||^2
    wasserstein   W2^2(P#q1, q0) = ||m0 - P m1||^2 + ||s0 - P s1||^2
    kl            KL[P#q1 || q0], KL[q0 || P#q1], or only the mean's part of the former

Each is a constant minus a multiple of a sum of inner products <A, P B>. The trace term of a
Kullback-Leibler divergence does depend on P (variances (1, 2) against (1, 2): 2 for the identity,
2.5 for the swap), so the mean alone, as in Rossi 2023, solves another problem.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from onebasin.align.terms import Channel, inner_product

Leaves = list[np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class Channels:
    """cost = constant - weight * objective."""

    channels: list[Channel]
    constant: float
    weight: float

    def cost(self, objective: float) -> float:
        return self.constant - self.weight * objective

    @property
    def most(self) -> float:
        """The objective at which there is no cost, which is as low as a cost goes."""
        return self.constant / self.weight


def _dot(a: Leaves, b: Leaves) -> float:
    return sum(inner_product(x, y) for x, y in zip(a, b, strict=True))


def _map(fun: Callable[..., np.ndarray], *leaves: Leaves) -> Leaves:
    return [fun(*each) for each in zip(*leaves, strict=True)]


def weights(mean0: Leaves, mean1: Leaves) -> Channels:
    constant = _dot(mean0, mean0) + _dot(mean1, mean1)
    return Channels([Channel(mean0, mean1)], constant, 2.0)


def wasserstein(mean0: Leaves, std0: Leaves, mean1: Leaves, std1: Leaves) -> Channels:
    constant = sum(_dot(x, x) for x in (mean0, std0, mean1, std1))
    return Channels([Channel(mean0, mean1), Channel(std0, std1, signed=False)], constant, 2.0)


def kl_forward(mean0: Leaves, std0: Leaves, mean1: Leaves, std1: Leaves) -> Channels:
    """KL[P#q1 || q0] = sum log(s0/s1) - 1/2 + (s1^2 + (m1 - m0)^2) / (2 s0^2)."""
    precision = _map(lambda s: 1 / s**2, std0)
    second = _map(lambda m, s: -(m**2 + s**2) / 2, mean1, std1)
    cross = _map(lambda m, p: m * p, mean0, precision)
    constant = (
        _dot(_map(np.log, std0), _map(np.ones_like, std0))
        - _dot(_map(np.log, std1), _map(np.ones_like, std1))
        - sum(m.size for m in mean0) / 2
        + _dot(_map(lambda m, p: m**2 * p, mean0, precision), _map(np.ones_like, mean0)) / 2
    )
    channels = [Channel(precision, second, signed=False), Channel(cross, mean1)]
    return Channels(channels, constant, 1.0)


def kl_reverse(mean0: Leaves, std0: Leaves, mean1: Leaves, std1: Leaves) -> Channels:
    """KL[q0 || P#q1], the same with the roles of the two exchanged."""
    swapped = kl_forward(mean1, std1, mean0, std0)
    channels = [Channel(c.moving, c.reference, c.signed) for c in swapped.channels]
    return Channels(channels, swapped.constant, swapped.weight)


def kl_mean(mean0: Leaves, std0: Leaves, mean1: Leaves, std1: Leaves) -> Channels:
    """The mean's part of KL[P#q1 || q0]: sum (m1 - m0)^2 / (2 s0^2), as printed in Rossi 2023."""
    precision = _map(lambda s: 1 / s**2, std0)
    cross = _map(lambda m, p: m * p, mean0, precision)
    constant = _dot(cross, mean0) / 2
    channels = [
        Channel(precision, _map(lambda m: -(m**2) / 2, mean1), signed=False),
        Channel(cross, mean1),
    ]
    return Channels(channels, constant, 1.0)


GAUSSIAN_COSTS = {
    "wasserstein": wasserstein,
    "kl": kl_forward,
    "kl-forward": kl_forward,
    "kl-reverse": kl_reverse,
    "kl-mean": kl_mean,
}
