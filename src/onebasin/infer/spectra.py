"""Curvature matrices in their eigenbasis.

A spectrum holds a symmetric matrix H, of one row for every weight or for some of them, such that
f(H) v can be computed for any function f of its eigenvalues: the matrix itself (f(x) = x), the
covariance of a Gaussian (1 / (x + 1)) or a draw from it (its root, with v standard normal). Weights
that H does not speak of have result 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

Function = Callable[[jax.Array], jax.Array]
_EXACT = jax.lax.Precision.HIGHEST


class Spectrum(Protocol):
    """A symmetric matrix of which functions can be taken."""

    def eigenvalues(self) -> jax.Array:
        """All eigenvalues, with their multiplicities."""

    def apply(self, function: Function, vector: jax.Array) -> jax.Array:
        """f(H) v for a function of the eigenvalues and a vector of all weights."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Diagonal:
    """diag(values).

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.infer.spectra import Diagonal
        >>> Diagonal(jnp.array([1.0, 4.0])).apply(jnp.sqrt, jnp.ones(2)).tolist()
        [1.0, 2.0]
    """

    values: jax.Array

    def eigenvalues(self) -> jax.Array:
        return self.values

    def apply(self, function: Function, vector: jax.Array) -> jax.Array:
        return function(self.values) * vector


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Dense:
    """Q diag(values) Q^T on the weights at `places`."""

    places: Any
    values: jax.Array
    vectors: jax.Array

    @classmethod
    def of(cls, places: Any, matrix: jax.Array) -> Dense:
        """The spectrum of a positive semi-definite matrix."""
        return cls(places, *eigen(matrix))

    def eigenvalues(self) -> jax.Array:
        return self.values

    def apply(self, function: Function, vector: jax.Array) -> jax.Array:
        own = _dot(self.vectors, function(self.values) * _dot(vector[self.places], self.vectors))
        return jnp.zeros_like(vector, own.dtype).at[self.places].set(own)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Kronecker:
    """Blocks A kron G on matrices of weights, and a diagonal on the rest.

    Attributes:
        places: For each block where its weights lie, (inputs, outputs).
        factors: For each block eigenvalues and eigenvectors of A and of G.
        rest_places: Where the other weights lie.
        rest: Their part of the diagonal.
    """

    places: list[Any]
    factors: list[tuple[Any, Any]]
    rest_places: Any
    rest: jax.Array

    def eigenvalues(self) -> jax.Array:
        return jnp.concatenate([*(_outer(a, g).ravel() for a, g in self.factors), self.rest])

    def apply(self, function: Function, vector: jax.Array) -> jax.Array:
        rest = function(self.rest) * vector[self.rest_places]
        result = jnp.zeros_like(vector, rest.dtype).at[self.rest_places].set(rest)
        for places, (a, g) in zip(self.places, self.factors, strict=True):
            rotated = _dot(_dot(a[1].T, vector[places]), g[1]) * function(_outer(a, g))
            result = result.at[places].set(_dot(_dot(a[1], rotated), g[1].T))
        return result


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class LowRank:
    """V^T diag(values) V, with orthonormal rows of V; all other eigenvalues are 0."""

    values: jax.Array
    vectors: jax.Array

    def eigenvalues(self) -> jax.Array:
        rank, size = self.vectors.shape
        return jnp.concatenate([self.values, jnp.zeros(size - rank)])

    def apply(self, function: Function, vector: jax.Array) -> jax.Array:
        elsewhere = function(jnp.zeros(()))
        along = (function(self.values) - elsewhere) * _dot(self.vectors, vector)
        return elsewhere * vector + _dot(along, self.vectors)


def eigen(matrix: Any) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues, none below 0, and eigenvectors of a positive semi-definite matrix.

    In double precision on the host: solvers of GPUs do not always converge in single precision, and
    give NaN then.
    """
    values, vectors = np.linalg.eigh(np.asarray(matrix, np.float64))
    return jnp.asarray(np.maximum(values, 0), matrix.dtype), jnp.asarray(vectors, matrix.dtype)


def _outer(a: tuple[jax.Array, jax.Array], g: tuple[jax.Array, jax.Array]) -> jax.Array:
    return a[0][:, None] * g[0]


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=_EXACT)
