"""Fitting a Gaussian to draws: diagonal, or low rank plus diagonal, without a dense covariance.

With centred draws X (draw, weight) and S = X^T X / (n - 1), the low-rank fit keeps the first r
principal components of S as its factor and puts what is left of each variance on the diagonal, so
that every weight has its sample variance whatever the rank. They come from the n x n matrix X X^T.
A share s of the factor's variance may be moved to the diagonal (shrinkage of correlations):

    C = (1 - s) F^T F + diag(var S - (1 - s) diag(F^T F)).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.compact.unit_blocks import unit_factor
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.posterior.trees import check_floats, widened
from onebasin.symmetry import Symmetry

COVARIANCES = ("diagonal", "low-rank")
UNIT_BLOCKS = "unit-blocks"
FORMS = (*COVARIANCES, UNIT_BLOCKS)
SLICE = 2**18


def fit_gaussian(
    draws: Any,
    covariance: str = "diagonal",
    *,
    rank: int | None = None,
    shrinkage: float | str = "auto",
    temperature: float = 1.0,
    symmetry: Symmetry | None = None,
) -> Gaussian:
    """Fits a Gaussian to draws that lie in one basin.

    Args:
        draws: `Draws` or a tree of stacked parameters (leading axis = draw), at least two; for a
            posterior that means something, aligned ones.
        covariance: "diagonal", "low-rank" (plus diagonal), or "unit-blocks": the weights of a unit
            vary together, those of different units do not.
        rank: Rank of the low-rank part; by default all that the draws have, one less than their
            number. Of unit blocks the components per unit, by default 4.
        shrinkage: The share of correlations that goes, 0 to 1; "auto" takes the one of least
            expected squared error (schafer2005shrinkage).
        temperature: The covariance is multiplied by it.
        symmetry: The model's group, which says what a unit is; for "unit-blocks".

    Returns:
        A `Gaussian` with the draws' means and, at temperature 1, their variances.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> draws = ob.Draws(jax.random.normal(jax.random.key(0), (50, 4)))
        >>> ob.fit_gaussian(draws, "low-rank", rank=2)
        Gaussian(4 weights, rank 2)
    """
    draws = as_draws(draws)
    check_fit(draws, covariance, rank, shrinkage, temperature)
    mean, variance = _moments(draws.params)
    scale = float(np.sqrt(temperature))
    if covariance == "diagonal":
        spread = jax.tree.map(lambda m, v: (scale * jnp.sqrt(v)).astype(m.dtype), mean, variance)
        return Gaussian(mean, spread)
    if covariance == UNIT_BLOCKS:
        if symmetry is None:
            raise ValueError("unit blocks need symmetry=, which says what a unit is")
        share = 0.0 if shrinkage == "auto" else float(shrinkage)
        return assemble(
            mean, variance, unit_factor(symmetry, draws.params, rank), share, temperature
        )
    spectrum = Spectrum.of(draws.params)
    share = spectrum.shrinkage() if shrinkage == "auto" else float(shrinkage)
    factor = spectrum.factor(draws.params, len(draws) - 1 if rank is None else rank)
    return assemble(mean, variance, factor, share, temperature)


def _squares(factor: jax.Array) -> jax.Array:
    """What a factor gives to the variances."""
    return jnp.sum(widened(factor) ** 2, axis=0)


@jax.jit
def assemble(mean: Any, variance: Any, factor: Any, shrinkage: Any, temperature: Any) -> Gaussian:
    """The Gaussian of given variances and principal components, correlations shrunk."""
    kept = jnp.sqrt((1 - shrinkage) * temperature)
    factor = jax.tree.map(lambda f: kept * f, factor)
    std = jax.tree.map(
        lambda m, v, f: jnp.sqrt(jnp.clip(temperature * v - _squares(f), 0)).astype(m.dtype),
        mean,
        variance,
        factor,
    )
    return Gaussian(mean, std, factor)


@dataclasses.dataclass(frozen=True, eq=False)
class Spectrum:
    """The principal components of draws, from the products of draws with draws.

    Attributes:
        values: Eigenvalues of X X^T, the largest first.
        vectors: The eigenvectors as columns, (draw, component).
        diagonal_squares: The sum of squared variances of the weights.
        fourth: The sum of x^4 over draws and weights.
        norms: The squared norm of each centred draw.
    """

    values: np.ndarray
    vectors: np.ndarray
    diagonal_squares: float
    fourth: float
    norms: np.ndarray

    @classmethod
    def of(cls, params: Any) -> Spectrum:
        """The spectrum of stacked parameters."""
        gram, squares, fourth = _products(params)
        values, vectors = np.linalg.eigh(gram)
        return cls(np.clip(values[::-1], 0, None), vectors[:, ::-1], squares, fourth, np.diag(gram))

    def factor(self, params: Any, rank: int) -> Any:
        """The first components, each scaled by its standard deviation, (rank, ...) per leaf."""
        count = len(self.values)
        weights = self.vectors[:, :rank].T / np.sqrt(count - 1)
        return _combined(weights.astype(np.float32), params)

    def shrinkage(self) -> float:
        """The share of correlations to remove that has least expected squared error.

        With w_kij = x_ki x_kj, sum_ij var(s_ij) / sum_ij s_ij^2 over i != j
        (schafer2005shrinkage); every sum over pairs of weights is one over draws.
        """
        n = len(self.values)
        pairs = float(np.sum(self.norms**2)) - self.fourth
        squares = float(np.sum(self.values**2)) - (n - 1) ** 2 * self.diagonal_squares
        if squares <= 0 or n < 3:
            return 1.0
        # sum_k (w_k - mean w)^2 = sum_k w_k^2 - n (mean w)^2, with n mean w = (n - 1) s.
        variance = n / (n - 1) ** 3 * (pairs - squares / n)
        return float(np.clip(variance / (squares / (n - 1) ** 2), 0, 1))


def fit_mixture(draws: Draws, covariance: str = "diagonal", **options: Any) -> Mixture:
    """A Gaussian for each mode of the draws, weighted by its share of them.

    Args:
        draws: Draws whose `mode` says which component each belongs to, at least two of each.
        covariance: As for `fit_gaussian`.
        **options: As for `fit_gaussian`.
    """
    check_modes(draws)
    return by_mode(draws, lambda part: fit_gaussian(part, covariance, **options))


def by_mode(draws: Draws, fit: Callable[[Draws], Gaussian]) -> Mixture:
    """What is fitted to each mode of the draws, weighted by its share of them."""
    parts = [draws.of_mode(mode) for mode in draws.modes]
    weights = np.array([len(part) for part in parts], np.float32) / len(draws)
    return Mixture([fit(part) for part in parts], weights)


def check_modes(draws: Draws) -> None:
    """Refuses modes that no Gaussian can be fitted to."""
    modes, counts = np.unique(np.asarray(draws.mode), return_counts=True)
    if counts.min() < 2:
        few = modes[counts.argmin()]
        raise ValueError(f"mode {few} has one draw, and one draw has no spread: give it more")


def as_draws(draws: Any) -> Draws:
    """Draws as they are, and stacked parameters as draws of one mode."""
    if isinstance(draws, Draws):
        return draws
    if isinstance(draws, Gaussian | Mixture):
        raise TypeError(f"got {draws!r}, expected draws: those of its method sample, for instance")
    odd = next((leaf for leaf in jax.tree.leaves(draws) if not hasattr(leaf, "shape")), None)
    if odd is not None:
        raise TypeError(
            f"got a {type(draws).__name__} that holds a {type(odd).__name__}, expected Draws or a "
            "tree of stacked parameters"
        )
    return Draws(draws)


def check_fit(
    draws: Draws, covariance: str, rank: int | None, shrinkage: float | str, temperature: float
) -> None:
    """Refuses options that no Gaussian can be fitted with to these draws."""
    if len(draws) < 2:
        raise ValueError("one draw has no spread: fit a Gaussian to at least two")
    if covariance not in FORMS:
        raise ValueError(f"got covariance={covariance!r}, expected one of {', '.join(FORMS)}")
    if rank is not None and covariance == "diagonal":
        raise ValueError(f"rank={rank} belongs to covariance='low-rank', got 'diagonal'")
    if rank is not None and not 1 <= rank < len(draws):
        raise ValueError(
            f"got rank={rank} and {len(draws)} draws: expected 1 to {len(draws) - 1}, since draws "
            "have one direction less than their number"
        )
    if isinstance(shrinkage, str) and shrinkage != "auto":
        raise ValueError(f"got shrinkage={shrinkage!r}, expected a number or 'auto'")
    if not isinstance(shrinkage, str) and not 0 <= shrinkage <= 1:
        raise ValueError(f"got shrinkage={shrinkage}, expected a share from 0 to 1")
    if not 0 <= temperature < np.inf:
        raise ValueError(f"got temperature={temperature}, expected a number from 0 up")
    check_floats(draws.params, "the draws")
    draws.check_finite()


@jax.jit
def _moments(params: Any) -> tuple[Any, Any]:
    """Means of the draws' type, and variances, which in half precision may be zero or infinite."""
    wide = widened(params)
    mean = jax.tree.map(lambda x, w: jnp.mean(w, axis=0).astype(x.dtype), params, wide)
    return mean, jax.tree.map(lambda w: jnp.var(w, axis=0, ddof=1), wide)


def _slices(leaf: Any) -> Iterator[tuple[slice, np.ndarray]]:
    """Centred draws (draw, weight) of one leaf, a slice of the weights at a time.

    On the host: its products take a second where compiling them for a device takes half a minute.
    """
    flat = np.asarray(leaf).reshape(len(leaf), -1)
    for start in range(0, flat.shape[1], SLICE):
        at = slice(start, min(start + SLICE, flat.shape[1]))
        x = flat[:, at].astype(np.float32)
        x -= x.mean(axis=0)
        yield at, x


def _products(params: Any) -> tuple[np.ndarray, float, float]:
    """X X^T of the centred draws, and what shrinkage needs."""
    count = len(jax.tree.leaves(params)[0])
    gram, squares, fourth = np.zeros((count, count)), 0.0, 0.0
    for leaf in jax.tree.leaves(params):
        for _, x in _slices(leaf):
            gram += x @ x.T
            np.square(x, out=x)
            squares += float(np.sum(np.square(x.sum(axis=0) / (count - 1)), dtype=np.float64))
            fourth += float(np.sum(np.square(x, out=x), dtype=np.float64))
    return gram, squares, fourth


def _combined(weights: np.ndarray, params: Any) -> Any:
    """Combinations of the centred draws."""

    def of_leaf(leaf: Any) -> jax.Array:
        out = np.empty((len(weights), int(np.prod(leaf.shape[1:]))), np.float32)
        for at, x in _slices(leaf):
            np.matmul(weights, x, out=out[:, at])
        return jnp.asarray(out.reshape(len(weights), *leaf.shape[1:]), leaf.dtype)

    return jax.tree.map(of_leaf, params)
