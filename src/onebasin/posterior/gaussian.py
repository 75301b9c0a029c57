"""The Gaussian posterior: diagonal, plus low rank."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.posterior import trees
from onebasin.posterior.draws import Draws
from onebasin.symmetry.host import on_host
from onebasin.symmetry.keys import check_key

_EXACT = jax.lax.Precision.HIGHEST


@trees.pytree
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Gaussian:
    """A Gaussian over parameters with covariance diag(std^2) + factor^T factor.

    A draw is x = mean + std * e + sum_r z_r factor_r with e and z standard normal. The covariance
    is never formed: memory grows with (rank + 1) times the number of weights.

    Args:
        mean: Parameters, any pytree of floating-point arrays.
        std: Standard deviations of the diagonal part, like `mean`; a number stands for all of them.
        factor: The low-rank part, like `mean` with a leading axis of size rank; None for rank 0.
        info: What is known of the run that made it (loss curve, seconds, ...); a dictionary that
            computations leave behind.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin.posterior import Gaussian
        >>> posterior = Gaussian({"w": jnp.zeros(3)}, 1.0, {"w": jnp.ones((1, 3))})
        >>> posterior
        Gaussian(3 weights, rank 1)
        >>> posterior.variance()["w"].tolist()
        [2.0, 2.0, 2.0]
        >>> posterior.sample(jax.random.key(0), 5)
        Draws(5 draws of 3 weights, 1 mode)
        >>> round(float(posterior.log_density({"w": jnp.zeros(3)})), 4)
        -3.45
    """

    mean: Any
    std: Any
    factor: Any = None
    info: Any = dataclasses.field(default=None, metadata=trees.RECORD)

    def __post_init__(self) -> None:
        if not jax.tree.leaves(self.mean):
            raise ValueError("mean has no leaves, expected a pytree of arrays")
        trees.check_floats(self.mean, "mean")
        if _is_number(self.std) and np.ndim(self.std) == 0:
            std = jax.tree.map(lambda x: jnp.full_like(x, self.std), self.mean)
            object.__setattr__(self, "std", std)
        trees.check_same(self.mean, self.std, "mean", "std")
        _check_std(self.std)
        if self.factor is None:
            return
        leaves = trees.named_leaves(self.factor)
        if not leaves or not np.shape(leaves[0][1]):
            raise ValueError(
                "factor has no leading axis, expected a tree like mean with leaves (rank, ...); "
                "leave it out for a diagonal Gaussian"
            )
        trees.check_same(self.mean, self.factor, "mean", "factor", np.shape(leaves[0][1])[:1])

    @property
    def rank(self) -> int:
        """Rank of the low-rank part, 0 without one."""
        return 0 if self.factor is None else int(np.shape(jax.tree.leaves(self.factor)[0])[0])

    def variance(self) -> Any:
        """The variance of every weight: std^2 + sum_r factor_r^2."""
        return _variance(self)

    def draw(self, key: jax.Array) -> Any:
        """One parameter tree drawn from the Gaussian."""
        check_key(key)
        return _draw(self, key)

    def sample(self, key: jax.Array, n: int) -> Draws:
        """Draws n parameter trees; `draw` makes them one at a time where memory is short."""
        if n < 1:
            raise ValueError(f"got n={n} samples, expected at least one")
        check_key(key)
        return Draws(_sample(self, key, n))

    def log_density(self, params: Any) -> jax.Array:
        """Log density in nats, by the matrix determinant and inversion lemmas.

        With A = factor / std, u = (x - mean) / std and M = I + A A^T, the covariance C has
        log det C = 2 sum log std + log det M, and with z = M^-1 A u the quadratic form is the
        squared norm of u - A^T z plus that of z, which does not cancel.

        Args:
            params: A parameter tree, or `Draws` for one density each.

        Returns:
            A scalar, or an array (draw,). A weight of std 0 makes it infinite or NaN.
        """
        if isinstance(params, Draws):
            trees.check_same(self.mean, params.params, "mean", "params", (len(params),))
            return _log_densities(self, params.params)
        trees.check_same(self.mean, params, "mean", "params")
        return _log_densities(self, jax.tree.map(lambda x: jnp.asarray(x)[None], params))[0]

    def check_finite(self) -> Gaussian:
        """This Gaussian, after checking that it is finite and no std is negative."""
        for name in ("mean", "std", "factor"):
            trees.check_finite(getattr(self, name), name)
        _check_std(self.std)
        return self

    def __repr__(self) -> str:
        return f"Gaussian({trees.num_weights(self.mean):,} weights, rank {self.rank})"


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.number | np.ndarray | jax.Array)


def _check_std(std: Any) -> None:
    """Refuses what is negative or NaN; while JAX traces, values cannot be looked at."""
    leaves = [
        (path, leaf)
        for path, leaf in trees.named_leaves(std)
        if isinstance(leaf, int | float | np.number | np.ndarray | jax.Array)
        and not isinstance(leaf, jax.core.Tracer)
    ]
    values = [leaf for _, leaf in leaves]
    with jax.ensure_compile_time_eval():
        lowest = [_lowest(leaf) for leaf in values] if on_host(values) else _lowest_of_each(values)
    for (path, _), low in zip(leaves, lowest, strict=True):
        if not low >= 0:
            odd, hint = "negative", "pass exp(log_std) or sqrt(variance) where those are meant"
            if np.isnan(low):
                odd, hint = (
                    "NaN",
                    "look for the root of a negative number, or for a run that diverged",
                )
            raise ValueError(
                f"leaf {path!r} of std is {odd} somewhere, expected standard deviations; {hint}"
            )


def _lowest(leaf: Any) -> float:
    return float(np.min(leaf, initial=0))


@jax.jit
def _lowest_of_each(leaves: list[Any]) -> list[jax.Array]:
    """At once: devices are asked for few things at a time."""
    return [jnp.min(leaf, initial=0) for leaf in leaves]


@jax.jit
def _variance(q: Gaussian) -> Any:
    # In half precision the square of a small spread is zero.
    q = trees.widened(q)
    if q.factor is None:
        return jax.tree.map(jnp.square, q.std)
    return jax.tree.map(lambda s, f: s**2 + jnp.sum(f**2, axis=0), q.std, q.factor)


@jax.jit
def _draw(q: Gaussian, key: jax.Array) -> Any:
    means, structure = jax.tree.flatten(q.mean)
    # All noise in one call: the code that makes it is long, and would be compiled for every leaf.
    ends = np.cumsum([m.size for m in means])
    noise = jax.random.normal(key, (int(ends[-1]) + q.rank,), jnp.result_type(*means))
    *parts, z = jnp.split(noise, ends)
    drawn = [
        m + s * e.reshape(m.shape).astype(m.dtype)
        for m, s, e in zip(means, jax.tree.leaves(q.std), parts, strict=True)
    ]
    if q.rank:
        drawn = [
            x + jnp.tensordot(z.astype(f.dtype), f, 1, precision=_EXACT)
            for x, f in zip(drawn, jax.tree.leaves(q.factor), strict=True)
        ]
    return jax.tree.unflatten(structure, drawn)


@functools.partial(jax.jit, static_argnames="n")
def _sample(q: Gaussian, key: jax.Array, n: int) -> Any:
    return jax.vmap(_draw, (None, 0))(q, jax.random.split(key, n))


@jax.jit
def _log_densities(q: Gaussian, stacked: Any) -> jax.Array:
    """Densities one draw after the other; what does not depend on the draw is computed once."""
    # In half precision sums over all weights are infinite.
    q, stacked = trees.widened((q, stacked))
    means, stds = jax.tree.leaves(q.mean), jax.tree.leaves(q.std)
    factors = [
        (f / s).reshape(q.rank, -1)
        for f, s in zip(jax.tree.leaves(q.factor) if q.rank else (), stds, strict=False)
    ]
    dot = functools.partial(jnp.matmul, precision=_EXACT)
    size = trees.num_weights(q.mean)
    constant = size * math.log(2 * math.pi) + 2 * sum(jnp.sum(jnp.log(s)) for s in stds)
    if q.rank:
        gram = sum(dot(f, f.T) for f in factors)
        root = jnp.linalg.cholesky(jnp.eye(q.rank) + gram)
        constant = constant + 2 * jnp.sum(jnp.log(jnp.diagonal(root)))

    def quadratic(params: Any) -> jax.Array:
        white = [
            ((x - m) / s).ravel()
            for x, m, s in zip(jax.tree.leaves(params), means, stds, strict=True)
        ]
        z = jnp.zeros(q.rank)
        # The second solve refines the first: weights of tiny std make M ill-conditioned.
        for _ in range(2 if q.rank else 0):
            along = sum(dot(f, u) for f, u in zip(factors, white, strict=True)) - z
            step = jax.scipy.linalg.cho_solve((root, True), along)
            white = [u - dot(step, f) for f, u in zip(factors, white, strict=True)]
            z = z + step
        return jnp.sum(z**2) + sum(jnp.sum(u**2) for u in white)

    return -0.5 * (constant + jax.lax.map(quadratic, stacked))
