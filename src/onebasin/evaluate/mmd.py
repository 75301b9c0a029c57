"""Maximum mean discrepancy: how far apart two populations of networks are."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from onebasin.align.checks import check_choice
from onebasin.engine import Engine
from onebasin.evaluate import distances, tiles
from onebasin.evaluate.populations import Population, blocks
from onebasin.evaluate.removal import REMOVALS, remove
from onebasin.symmetry import Symmetry

WIDEST = 32768
NARROWEST = 128
MATRICES = 5

KERNELS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "gaussian": lambda squared, b: np.exp(squared * (-0.5 / b**2)),
    "rational-quadratic": lambda squared, b: 1 / (1 + squared * (0.5 / b**2)),
    "laplace": lambda distance, b: np.exp(distance * (-1 / b)),
}


@dataclasses.dataclass(frozen=True, eq=False)
class MMD:
    """The squared maximum mean discrepancy of two populations.

    Attributes:
        value: The estimate for the mean of the kernels of all bandwidths; `float` of this object.
            An unbiased one can be negative.
        values: The estimate for each bandwidth.
        bandwidths: The bandwidths.
        p_value: The share of permutations of all draws with at least this value, if asked for.
        kernel: The name of the kernel.
        unbiased: Whether the estimates are unbiased.
        num_draws: The number of draws of either side.
    """

    value: float
    values: np.ndarray
    bandwidths: np.ndarray
    p_value: float | None
    kernel: str
    unbiased: bool
    num_draws: tuple[int, int]

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        test = "" if self.p_value is None else f", p = {self.p_value:.3g}"
        first, second = self.num_draws
        return f"MMD({self.value:.4g}{test}, {self.kernel}, {first:,} against {second:,} draws)"


def mmd(
    x: Any,
    y: Any,
    *,
    kernel: str = "gaussian",
    bandwidths: Any = None,
    unbiased: bool = True,
    permutations: int = 0,
    seed: int = 0,
    memory: int = 2**31,
    symmetry: Symmetry | None = None,
    removal: str | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> MMD:
    """The squared maximum mean discrepancy between two populations of networks.

    MMD^2 = E k(x, x') + E k(y, y') - 2 E k(x, y) of gretton2012kernel, where the kernel k is the
    mean over bandwidths b of exp(-||d||_2^2 / (2 b^2)) ("gaussian"), 1 / (1 + ||d||_2^2 / (2 b^2))
    ("rational-quadratic") or exp(-||d||_1 / b) ("laplace") of the difference d. Unbiased sums leave
    out the pairs of a draw with itself. All weights are read once, in blocks of columns.

    Args:
        x: `Draws`, a stream of a run (`run.stream(...)`, read from disk in blocks), stacked
            parameters or an array (draw, ...).
        y: The same of the same model; the number of draws may differ.
        kernel: "gaussian", "laplace" or "rational-quadratic".
        bandwidths: Numbers; by default ten, geometric from half the smallest to twice the largest
            distance between two draws, as in laurent2024symmetry.
        unbiased: Whether to take the unbiased estimate; False for the one that is never negative.
        permutations: How many permutations of the draws the p-value of a two-sample test is made
            of; none by default. It takes the draws of a side for independent.
        seed: Seed of the permutations.
        memory: Bytes to work in, beside what holds x and y.
        symmetry: The group of the model: all draws are brought into one basin first.
        removal: How: "match" (aligned to the mean of all draws of both sides), the default where
            there is a group, or "sort" (unit-norm scales, units sorted, as in laurent2024symmetry).
        engine: Where tiles of the distances, and the alignment, run as tasks; None for here.
        options: For "sort" what `canonicalize` takes, for "match" what `align_many` takes.

    Returns:
        The estimates, with bandwidths and p-value.

    Raises:
        ValueError: If there are too few draws, NaN, two models, or too little memory.

    Example:
        >>> import jax
        >>> import onebasin as ob
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> x, y = (jax.random.normal(key, (50, 3)) for key in keys)
        >>> ob.mmd(x, y + 1, permutations=99)
        MMD(0.03355, p = 0.01, gaussian, 50 against 50 draws)
    """
    check_choice("kernel", kernel, tuple(KERNELS))
    check_choice("removal", removal, (None, *REMOVALS))
    if removal is None and symmetry is not None:
        removal = "match"
    populations = [Population(x, "x"), Population(y, "y")]
    populations[0].check_like(populations[1])
    _check_counts(populations, unbiased, permutations)
    if removal is None:
        if options:
            raise TypeError(
                f"got {', '.join(options)} without symmetry=, expected options only where draws "
                "are brought into one basin"
            )
    elif symmetry is None:
        raise ValueError(f"removal={removal!r} needs the group of the model: pass symmetry=")
    else:
        if removal == "match" and engine is not None:
            options["engine"] = engine
        populations = remove(symmetry, populations, removal, memory, options)
    return _estimate(
        _distances(populations, kernel, memory, engine),
        (populations[0].num_draws, populations[1].num_draws),
        kernel,
        bandwidths,
        unbiased,
        permutations,
        seed,
    )


def _estimate(
    found: np.ndarray,
    counts: tuple[int, int],
    kernel: str,
    bandwidths: Any,
    unbiased: bool,
    permutations: int,
    seed: int,
) -> MMD:
    widths = _bandwidths(found, bandwidths, squared=kernel != "laplace")
    indicator = (np.arange(sum(counts)) < counts[0]).astype(float)[:, None]
    mean = np.zeros_like(found)
    values = np.empty(len(widths))
    for place, width in enumerate(widths):
        one = KERNELS[kernel](found, width)
        values[place] = _statistic(one, indicator, unbiased)[0]
        mean += one / len(widths)
    value = float(values.mean())
    p_value = None
    if permutations:
        drawn = _permuted(mean, indicator[:, 0], unbiased, permutations, seed)
        # Equal up to rounding is equal.
        slack = 1e-12 * float(np.abs(drawn).max())
        p_value = float((1 + np.sum(drawn >= value - slack)) / (1 + permutations))
    return MMD(value, values, widths, p_value, kernel, unbiased, counts)


def _statistic(kernel: np.ndarray, indicator: np.ndarray, unbiased: bool) -> np.ndarray:
    """MMD^2 for each column of an indicator (draw, split): 1 for a draw of the first side."""
    total = kernel @ indicator
    within = np.einsum("is,is->s", indicator, total)
    across = total.sum(axis=0) - within
    beyond = kernel.sum() - within - 2 * across
    m = indicator[:, 0].sum()
    n = len(kernel) - m
    if unbiased:
        # A kernel is 1 between a draw and itself.
        first, second = (within - m) / (m * (m - 1)), (beyond - n) / (n * (n - 1))
    else:
        first, second = within / m**2, beyond / n**2
    return np.asarray(first + second - 2 * across / (m * n))


def _permuted(
    kernel: np.ndarray, indicator: np.ndarray, unbiased: bool, permutations: int, seed: int
) -> np.ndarray:
    rng = np.random.default_rng(seed)
    parts = []
    for first in range(0, permutations, 100):
        count = min(100, permutations - first)
        split = rng.permuted(np.tile(indicator, (count, 1)), axis=1).T
        parts.append(_statistic(kernel, split, unbiased))
    return np.concatenate(parts)


def _bandwidths(found: np.ndarray, given: Any, *, squared: bool) -> np.ndarray:
    if given is not None:
        widths = np.atleast_1d(np.asarray(given, float))
        if widths.ndim != 1 or not widths.size or not (np.isfinite(widths) & (widths > 0)).all():
            raise ValueError(f"got bandwidths={given}, expected positive numbers")
        return widths
    apart = found[found > 0]
    if not apart.size:
        return np.ones(1)
    least, most = float(apart.min()), float(apart.max())
    if squared:
        least, most = least**0.5, most**0.5
    return np.geomspace(least / 2, most * 2, 10)


def _distances(
    populations: list[Population], kernel: str, memory: int, engine: Engine | None
) -> np.ndarray:
    count = sum(p.num_draws for p in populations)
    dtype = np.result_type(*(p.dtype for p in populations))
    item = dtype.itemsize
    fixed = MATRICES * 8 * count**2
    column = item * count
    if kernel == "laplace":
        fixed += 8 * count * distances.STRIP
    if memory < fixed + NARROWEST * column:
        raise ValueError(
            f"memory={memory:,} bytes is too little for one block: {count:,} draws need "
            f"{fixed:,} bytes for their distances and {NARROWEST * column:,} for {NARROWEST} "
            "weights of each; raise memory=, or take fewer draws"
        )
    width = min(WIDEST, (memory - fixed) // column)
    if engine is not None:
        return tiles.tiled_distances(engine, populations, kernel, width, dtype)
    read = functools.partial(blocks, populations, width, dtype)
    compute = distances.manhattan if kernel == "laplace" else distances.squared_euclidean
    return compute(read, count)


def _check_counts(populations: list[Population], unbiased: bool, permutations: int) -> None:
    for p in populations:
        if unbiased and p.num_draws < 2:
            raise ValueError(
                f"{p.name} has one draw, expected at least two for the unbiased estimate; pass "
                "unbiased=False or more draws"
            )
    if permutations < 0:
        raise ValueError(f"got permutations={permutations}, expected none or a positive number")
