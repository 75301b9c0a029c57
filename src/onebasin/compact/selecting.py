"""Choosing a fit of aligned draws by the predictive of draws that it has not seen.

A Gaussian in one basin is too wide: directions in which the network is far from linear have the
draws' variance, and its mean is too short, since what differs between draws cancels. Two numbers
mend most of it: a temperature of the covariance and a stretch of the mean. They, the form of the
covariance, and how the draws were aligned (cost, scaling, the draw that the mean starts from) are
chosen by the cross-entropy with the predictive of held-out draws on training inputs: the objective
of the alignment hardly tells a good mean from a bad one, the predictive does.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.compact import predictive
from onebasin.compact.fitting import UNIT_BLOCKS, Spectrum, assemble
from onebasin.compact.unit_blocks import unit_factor
from onebasin.posterior import Draws, Gaussian
from onebasin.symmetry import Symmetry

TEMPERATURES = (0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0)
STRETCHES = (1.0, 1.05, 1.1, 1.15, 1.2)
# One draw has no spread.
MIN_FITTED = 2


class Way(NamedTuple):
    """How draws are aligned: by which cost, in which scaling, starting from which draw."""

    cost: str
    scaling: str | None
    first: int


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a fit is made with, and what it scored on held-out draws, in nats.

    The score is NaN where no draws could be held out.
    """

    way: Way
    covariance: str
    temperature: float
    stretch: float
    score: float


@dataclasses.dataclass(frozen=True, eq=False)
class Fitter:
    """Moments of draws, from which fits of any temperature and stretch are made."""

    mean: Any
    variance: Any
    factor: Any
    shrinkage: float

    @classmethod
    def of(
        cls,
        draws: Draws,
        covariance: str,
        rank: int | None,
        shrinkage: float | str,
        symmetry: Symmetry,
    ) -> Fitter:
        """The moments that a form of the covariance needs.

        Where some draws are held out, the others may have fewer components than the rank that was
        asked for: all of theirs are taken then.
        """
        mean = draws.mean()
        variance = jax.tree.map(jnp.square, draws.std())
        if covariance == "diagonal":
            return cls(mean, variance, None, 1.0)
        if covariance == UNIT_BLOCKS:
            share = 0.0 if shrinkage == "auto" else float(shrinkage)
            return cls(mean, variance, unit_factor(symmetry, draws.params, rank), share)
        spectrum = Spectrum.of(draws.params)
        share = spectrum.shrinkage() if shrinkage == "auto" else float(shrinkage)
        most = len(draws) - 1
        factor = spectrum.factor(draws.params, most if rank is None else min(rank, most))
        return cls(mean, variance, factor, share)

    def fit(self, temperature: Any, stretch: Any) -> Gaussian:
        """One Gaussian."""
        mean = jax.tree.map(lambda m: stretch * m, self.mean)
        if self.factor is None:
            std = jax.tree.map(lambda v: jnp.sqrt(temperature * v), self.variance)
            return Gaussian(mean, std)
        return assemble(mean, self.variance, self.factor, self.shrinkage, temperature)


def split(draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit to and rows held out: some of the modes, or every fourth draw of one.

    Where whole modes would leave fewer than two draws to fit to, single draws are held out.
    """
    modes = np.asarray(draws.mode)
    out = np.isin(modes, draws.modes[-max(1, len(draws.modes) // 4) :])
    if np.sum(~out) < MIN_FITTED:
        out = np.arange(len(draws)) % 4 == 3
        out[-1] |= not out.any()
    return np.flatnonzero(~out), np.flatnonzero(out)


def can_hold_out(draws: Draws) -> bool:
    """Whether some draws can be held out and enough be left to fit to."""
    return len(draws) > MIN_FITTED


def best_way(
    apply_fn: predictive.Apply,
    aligned: dict[Way, Draws],
    inputs: Any,
    stretches: tuple[float, ...] = STRETCHES,
) -> tuple[Way, dict[Way, float]]:
    """The alignment whose mean network is nearest to held-out draws, and the nats of all."""
    scores = {}
    for way, draws in aligned.items():
        rows, out = split(draws)
        target = predictive.of_draws(apply_fn, draws[out].params, inputs)
        mean = draws[rows].mean()
        networks = jax.tree.map(lambda m: jnp.stack([s * m for s in stretches]), mean)
        each = jax.lax.map(lambda p: predictive.probabilities(apply_fn, p, inputs), networks)
        scores[way] = min(float(predictive.cross_entropy(target, probs)) for probs in each)
    return min(scores, key=scores.__getitem__), scores


def choose(
    apply_fn: predictive.Apply,
    way: Way,
    draws: Draws,
    inputs: Any,
    covariances: tuple[str, ...],
    key: jax.Array,
    symmetry: Symmetry,
    *,
    rank: int | None,
    shrinkage: float | str,
    temperatures: tuple[float, ...] = TEMPERATURES,
    stretches: tuple[float, ...] = STRETCHES,
    num_samples: int = 32,
) -> Choice:
    """The best fit of aligned draws.

    Args:
        apply_fn: The model.
        way: How the draws were aligned.
        draws: The aligned draws.
        inputs: Training inputs.
        covariances: Forms to try.
        key: Random key; all fits see the same noise.
        symmetry: The model's group.
        rank: Rank of low-rank fits.
        shrinkage: Shrinkage of their correlations.
        temperatures: Temperatures to try.
        stretches: Stretches to try.
        num_samples: Networks per predictive.
    """
    rows, out = split(draws)
    target = predictive.of_draws(apply_fn, draws[out].params, inputs)
    tried = []
    for covariance in covariances:
        fitter = Fitter.of(draws[rows], covariance, rank, shrinkage, symmetry)
        for temperature, stretch in itertools.product(temperatures, stretches):
            q = fitter.fit(temperature, stretch)
            probs = predictive.of_gaussian(apply_fn, q, inputs, jax.random.clone(key), num_samples)
            score = float(predictive.cross_entropy(target, probs))
            tried.append(Choice(way, covariance, temperature, stretch, score))
    return min(tried, key=lambda choice: choice.score)
