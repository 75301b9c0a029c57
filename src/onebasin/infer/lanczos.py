"""The largest eigenvalues of the curvature, by Lanczos' iteration (lanczos1950iteration).

From a random unit vector v_1, with H the Gauss-Newton matrix in units of the prior's scale,

    alpha_j = v_j^T H v_j,   beta_j v_{j+1} = H v_j - alpha_j v_j - beta_{j-1} v_{j-1}.

The eigenpairs of the tridiagonal matrix of alpha and beta are, turned by V, those of H at the ends
of its spectrum. Each new vector is made orthogonal to all before, twice, or rounding would bring
copies of the first ones back; where nothing is left of it (H has fewer distinct eigenvalues) a
random one takes its place.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.infer.ggn import ggn_product
from onebasin.infer.population import each
from onebasin.infer.problem import Problem
from onebasin.infer.spectra import LowRank, eigen
from onebasin.infer.vectors import from_vector, to_vector

_EXACT = jax.lax.Precision.HIGHEST
_NOTHING_LEFT = 1e-5


@dataclasses.dataclass(frozen=True)
class Lanczos:
    """A step of the host loop: one iteration, for every network."""

    batch_size: int
    group: int = 1

    def start(self, key: jax.Array, iterations: int, size: int) -> Any:
        """The state of one network: vectors, alpha, beta, and the key of what is random."""
        first = jax.random.normal(jax.random.fold_in(key, iterations), (size,))
        vectors = jnp.zeros((iterations, size)).at[0].set(first / jnp.linalg.norm(first))
        return vectors, jnp.zeros(iterations), jnp.zeros(iterations), key

    def __call__(self, data: Any, state: Any, number: Any) -> tuple[Any, dict[str, Any]]:
        unknowns, found = state
        found, alpha = each(
            lambda u, s: self.member(data, (u, s), number), self.group, unknowns, found
        )
        return (unknowns, found), {"curvature": alpha}

    def member(self, data: Any, state: Any, number: Any) -> tuple[Any, jax.Array]:
        """One iteration for one network; the second result is alpha."""
        problem, scale = data
        unknowns, (vectors, alpha, beta, key) = state
        direction = vectors[number]
        product = self.product(problem, unknowns, scale, direction)
        along = jnp.vdot(direction, product, precision=_EXACT)
        rest = _orthogonal(vectors, product)
        length = jnp.linalg.norm(rest)
        left = length > _NOTHING_LEFT * jnp.linalg.norm(product)
        other = _orthogonal(
            vectors, jax.random.normal(jax.random.fold_in(key, number), direction.shape)
        )
        following = jnp.where(
            left, rest / jnp.where(left, length, 1), other / jnp.linalg.norm(other)
        )
        # The last vector has no successor: the write is out of bounds, and dropped.
        vectors = vectors.at[number + 1].set(following, mode="drop")
        beta = beta.at[number].set(jnp.where(left, length, 0))
        return (vectors, alpha.at[number].set(along), beta, key), along

    def product(
        self, problem: Problem, unknowns: Any, scale: jax.Array, vector: jax.Array
    ) -> jax.Array:
        """H v in units of the prior's scale."""
        shapes = problem.params_of(unknowns)
        tangent = from_vector(scale * vector, shapes)
        return scale * to_vector(ggn_product(problem, unknowns, tangent, self.batch_size))


def low_rank(state: Any, rank: int) -> LowRank:
    """The `rank` largest eigenpairs from a finished state."""
    vectors, alpha, beta, _ = state
    between = jnp.diag(beta[:-1], 1)
    values, turn = eigen(jnp.diag(alpha) + between + between.T)
    largest = jnp.matmul(turn[:, -rank:].T, vectors, precision=_EXACT)
    return LowRank(values[-rank:], largest)


def _orthogonal(vectors: jax.Array, x: jax.Array) -> jax.Array:
    """What is left of x without its part along the rows of a matrix."""
    for _ in range(2):
        x = x - jnp.matmul(jnp.matmul(vectors, x, precision=_EXACT), vectors, precision=_EXACT)
    return x
