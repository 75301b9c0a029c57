"""Distances between Gaussians: Kullback-Leibler and Wasserstein, without a dense covariance.

A Gaussian has covariance C = D + F^T F with D diagonal and F of few rows. Everything below is sums
over weights of matrices with as many rows as the factors have, in double precision and in chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from onebasin.posterior import Gaussian, trees

CHUNK = 1 << 16
PRODUCTS = 1 << 20
STEP = 0.5
"""Step of the quadrature in log s: its error falls as exp(-pi^2 / step), here 3e-9."""
REACH = 1e8
"""How far beyond the scales of the problem the quadrature goes."""


class Part(NamedTuple):
    """Some weights of a Gaussian: mean and variance (weight,), factor (rank, weight)."""

    mean: np.ndarray
    variance: np.ndarray
    factor: np.ndarray


def kl(p: Gaussian, q: Gaussian) -> float:
    r"""The Kullback-Leibler divergence KL(p || q) in nats.

    1/2 [tr(C_q^-1 C_p) + (m_q - m_p)^T C_q^-1 (m_q - m_p) - n + log det C_q - log det C_p], by the
    matrix inversion and determinant lemmas: exact for diagonal and for low-rank Gaussians, with
    work n (r_p + r_q)^2 for n weights and ranks r.

    Args:
        p: A Gaussian.
        q: A Gaussian over the same weights.

    Returns:
        The divergence; infinite if a weight has a standard deviation of zero in one of them.

    Example:
        >>> import jax.numpy as jnp
        >>> import onebasin as ob
        >>> p, q = ob.Gaussian(jnp.zeros(2), 1.0), ob.Gaussian(jnp.ones(2), 1.0)
        >>> ob.kl(p, q)
        1.0
    """
    _check(p, q)
    # In units of the spreads of q: A the factor of q, and its products with the factor of p and
    # with the way between the means.
    gram_p, gram_q = np.eye(p.rank), np.eye(q.rank)
    cross, pull = np.zeros((q.rank, p.rank)), np.zeros(q.rank)
    for a, b in _parts(p, q):
        if not ((a.variance > 0) & (b.variance > 0)).all():
            return math.inf
        along, own, gap = _whitened(a, b)
        white = a.factor / np.sqrt(a.variance)
        gram_p += white @ white.T
        gram_q += along @ along.T
        cross += along @ own.T
        pull += along @ gap
    # x^T C_q^-1 x is |x - A^T z|^2 + |z|^2 with z = (I + A A^T)^-1 A x, which does not cancel.
    of_factor, of_gap = np.linalg.solve(gram_q, cross), np.linalg.solve(gram_q, pull)
    total = float(np.sum(of_factor**2) + np.sum(of_gap**2))
    total += float(np.linalg.slogdet(gram_q)[1] - np.linalg.slogdet(gram_p)[1])
    for a, b in _parts(p, q):
        along, own, gap = _whitened(a, b)
        total += float(np.sum((own - of_factor.T @ along) ** 2))
        total += float(np.sum((gap - of_gap @ along) ** 2))
        ratio = a.variance / b.variance
        seen = np.sum(along * np.linalg.solve(gram_q, along), axis=0)
        total += float(np.sum(ratio * (1 - seen) - 1 - np.log(ratio)))
    return 0.5 * max(total, 0.0)


def _whitened(a: Part, b: Part) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In units of the spreads of b: its factor, that of a, and the way from mean to mean."""
    scale = np.sqrt(b.variance)
    return b.factor / scale, a.factor / scale, (b.mean - a.mean) / scale


def wasserstein(p: Gaussian, q: Gaussian, *, squared: bool = False) -> float:
    r"""The Wasserstein-2 distance between two Gaussians.

    W^2 = ||m_p - m_q||^2 + tr C_p + tr C_q - 2 tr (C_p C_q)^(1/2) (gelbrich1990formula). Diagonal:
    ||m_p - m_q||^2 + ||s_p - s_q||^2. With low rank, C_p C_q = L + U V^T for a diagonal L and U, V
    of r = r_p + r_q columns, and

        tr (C_p C_q)^(1/2) = tr L^(1/2) + 1/pi int_0^inf log det(I + V^T (L + s^2)^-1 U) ds,

    an integral of small determinants that a trapezoidal rule in log s finds to a relative 1e-8;
    about a hundred nodes, each with work n r^2.

    Args:
        p: A Gaussian.
        q: A Gaussian over the same weights.
        squared: Whether to return the square.

    Example:
        >>> import jax.numpy as jnp
        >>> import onebasin as ob
        >>> p, q = ob.Gaussian(jnp.zeros(2), 1.0), ob.Gaussian(jnp.full(2, 3.0), 5.0)
        >>> ob.wasserstein(p, q, squared=True)
        50.0
    """
    _check(p, q)
    means = spreads = 0.0
    for a, b in _parts(p, q):
        means += float(np.sum((a.mean - b.mean) ** 2))
        spreads += float(np.sum((np.sqrt(a.variance) - np.sqrt(b.variance)) ** 2))
        spreads += float(np.sum(a.factor**2) + np.sum(b.factor**2))
    if p.rank or q.rank:
        spreads -= 2 * _low_rank_trace(p, q)
    # Between equal covariances a difference of large numbers, of which only rounding is left.
    total = means + max(spreads, 0.0)
    return total if squared else math.sqrt(total)


def _low_rank_trace(p: Gaussian, q: Gaussian) -> float:
    """The low-rank part of the trace: tr (C_p C_q)^(1/2) - tr (D_p D_q)^(1/2)."""
    nodes = np.exp(np.arange(*_scales(p, q), STEP))
    overlap = sum(b.factor @ a.factor.T for a, b in _parts(p, q))
    size = p.rank + q.rank
    small = np.zeros((size * size, len(nodes)))
    trace = 0.0
    # All nodes in one matrix product: products of rows of V and U by weights of the nodes.
    for a, b in _parts(p, q, max(64, PRODUCTS // size**2)):
        left = np.concatenate([a.factor, b.factor * a.variance + overlap @ a.factor])
        right = np.concatenate([a.factor * b.variance, b.factor])
        trace += float(np.sum(left * right))
        products = (right[:, None] * left[None, :]).reshape(size * size, -1)
        small += products @ (1 / ((a.variance * b.variance)[:, None] + nodes**2))
    matrices = small.T.reshape(len(nodes), size, size)
    values = np.linalg.slogdet(np.eye(size) + matrices)[1]
    # Beyond the last node the integrand is tr(V^T U) / s^2, and the nodes a geometric series.
    rest = trace * STEP / (nodes[-1] * math.expm1(STEP))
    return float((STEP * np.sum(nodes * values) + rest) / np.pi)


def _scales(p: Gaussian, q: Gaussian) -> tuple[float, float]:
    """Where the integrand ends, in log s: beyond every square root of an eigenvalue."""
    least, most, traces = math.inf, 0.0, [0.0, 0.0]
    for a, b in _parts(p, q):
        roots = np.sqrt(a.variance * b.variance)
        least = min(least, float(np.min(roots, where=roots > 0, initial=math.inf)))
        most = max(most, float(np.max(roots, initial=0)))
        for place, part in enumerate((a, b)):
            traces[place] += float(np.sum(part.variance) + np.sum(part.factor**2))
    high = math.sqrt(traces[0] * traces[1]) or 1.0
    low = min(least, high)
    return math.log(low / REACH), math.log(max(high, most) * math.sqrt(REACH))


def _parts(p: Gaussian, q: Gaussian, size: int | None = None) -> Iterator[tuple[Part, Part]]:
    """The weights of both, a chunk at a time, in double precision."""
    size = size or CHUNK
    for a, b in zip(_leaves(p), _leaves(q), strict=True):
        for start in range(0, a.mean.size, size):
            chunk = slice(start, start + size)
            yield _chunk(a, chunk), _chunk(b, chunk)


def _leaves(q: Gaussian) -> list[Part]:
    """Leaves as they are, flat, with standard deviations in the place of variances."""
    found = []
    factors = jax.tree.leaves(q.factor) if q.rank else None
    for place, (mean, std) in enumerate(
        zip(jax.tree.leaves(q.mean), jax.tree.leaves(q.std), strict=True)
    ):
        factor = np.asarray(factors[place]) if factors else np.zeros((0, np.size(mean)))
        flat = factor.reshape(len(factor), np.size(mean))
        found.append(Part(np.ravel(mean), np.ravel(std), flat))
    return found


def _chunk(leaf: Part, chunk: slice) -> Part:
    mean, std, factor = (np.asarray(x[..., chunk], float) for x in leaf)
    return Part(mean, std**2, factor)


def _check(p: Any, q: Any) -> None:
    for name, form in (("p", p), ("q", q)):
        if not isinstance(form, Gaussian):
            raise TypeError(
                f"{name} is a {type(form).__name__}, expected a Gaussian; fit one with "
                "onebasin.moments, and compare draws as they are with onebasin.mmd"
            )
    trees.check_same(p.mean, q.mean, "p", "q")
    for name, form in (("p", p), ("q", q)):
        for part in ("mean", "std", "factor"):
            trees.check_finite(getattr(form, part), f"the {part} of {name}")
