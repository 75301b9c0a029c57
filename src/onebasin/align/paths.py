"""Paths between two networks, or between two Gaussian posteriors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.align.checks import check_unwrapped
from onebasin.posterior import Draws, Gaussian, Mixture, trees

Path = Callable[[Any, Any, Any], Any]


def interpolate(a: Any, b: Any, t: Any, path: str | Path = "geodesic") -> Any:
    """The point at t in [0, 1] on a path from a (t = 0) to b (t = 1).

    Two networks: the straight line (1 - t) a + t b, whose name is "geodesic" too. Two Gaussians
    N(m0, s0^2) and N(m1, s1^2), by the name of the path:

    - "geodesic": the Wasserstein-2 geodesic of rossi2023permutation, mean and std linear in t.
      Low-rank factors are first rotated onto each other: exact for Gaussians that are diagonal, or
      low rank alone; an upper bound on the transport cost for both at once.
    - "independent": the distribution of (1 - t) x0 + t x1 with independent draws, so that
      s_t^2 = (1 - t)^2 s0^2 + t^2 s1^2; factors are stacked.
    - "unit-norm": the geodesic, with the mean of every leaf lengthened to
      norm(m_t) = (1 - t) norm(m0) + t norm(m1): means that differ do not shrink half way. Where
      the network undoes scale by itself (FRN, BatchNorm), it does not help.
    - "unit-norm-independent": those means with independent noise.
    - "mixture": (1 - t) N0 + t N1, the control that needs no alignment.

    Args:
        a: Parameters, or a `Gaussian`.
        b: The same form for the same model.
        t: Where on the path, one number; may be traced. For several, `jax.vmap` over it.
        path: A name from above, a `Bend`, or any function (a, b, t) -> parameters or `Gaussian`.

    Returns:
        Parameters for networks; a `Gaussian`, or a `Mixture`, for Gaussians. Integer leaves are
        those of a.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.align.paths import interpolate
        >>> from onebasin.posterior import Gaussian
        >>> a, b = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
        >>> interpolate(a, b, 0.5).tolist()
        [0.5, 0.5]
        >>> half = interpolate(Gaussian(a, 0.2), Gaussian(b, 0.2), 0.5, "unit-norm-independent")
        >>> [round(float(x), 3) for x in (*half.mean, *half.std)]
        [0.707, 0.707, 0.141, 0.141]
    """
    found = find_path(a, b, path)
    if not callable(path) and jnp.shape(t) != ():
        raise ValueError(
            f"t has shape {jnp.shape(t)}, expected one number: for several points, "
            "jax.vmap(lambda t: onebasin.interpolate(a, b, t))(t)"
        )
    return found(a, b, t)


def find_path(a: Any, b: Any, path: str | Path) -> Path:
    """The function behind a path's name, after checking that it joins a and b."""
    for name, end in (("a", a), ("b", b)):
        check_unwrapped(name, end)
        if isinstance(end, Draws | Mixture):
            raise TypeError(
                f"there is no path between populations: got {end!r}, expected two networks or two "
                "Gaussians; fit a Gaussian first (moments)"
            )
    if isinstance(a, Gaussian) != isinstance(b, Gaussian):
        raise TypeError(
            "one end is a Gaussian and the other a network, expected two of a kind; pass the "
            "Gaussian's mean, or Gaussian(params, std) for the network"
        )
    means = (a.mean, b.mean) if isinstance(a, Gaussian) else (a, b)
    trees.check_same(*means, "a", "b")
    if callable(path):
        return path
    if path not in PATHS:
        known = ", ".join(map(repr, PATHS))
        raise ValueError(
            f"there is no path {path!r}, expected one of {known}, a Bend or a function"
        )
    if isinstance(a, Gaussian):
        return PATHS[path]
    if path != "geodesic":
        raise ValueError(
            f"path {path!r} is between Gaussians, and these are two networks: leave path at "
            '"geodesic", which is the straight line for them, or pass Gaussians'
        )
    return line


def line(a: Any, b: Any, t: Any) -> Any:
    """(1 - t) a + t b, leaf by leaf; integer leaves are those of a."""

    def between(x: Any, y: Any) -> Any:
        if not trees.is_float(x):
            return x
        x, y = jnp.asarray(x), jnp.asarray(y)
        s = jnp.asarray(t, x.dtype)
        return (1 - s) * x + s * y

    return jax.tree.map(between, a, b)


def geodesic(a: Gaussian, b: Gaussian, t: Any) -> Gaussian:
    """Mean and std linear in t; factors linear in t once b's are rotated onto a's."""
    mean, std = line(a.mean, b.mean, t), line(a.std, b.std, t)
    if not a.rank and not b.rank:
        return Gaussian(mean, std)
    first, second = _factor(a, b.rank), _factor(b, a.rank)
    return Gaussian(mean, std, line(first, _rotated(second, first), t))


def independent(a: Gaussian, b: Gaussian, t: Any) -> Gaussian:
    """The distribution of (1 - t) x0 + t x1 for independent draws x0 and x1."""
    std = jax.tree.map(lambda x, y: _hypot(x, y, jnp.asarray(t, x.dtype)), a.std, b.std)
    parts = [
        jax.tree.map(lambda x, s=scale: jnp.asarray(s, x.dtype) * x, end.factor)
        for end, scale in ((a, 1 - t), (b, t))
        if end.rank
    ]
    factor = jax.tree.map(lambda *f: jnp.concatenate(f), *parts) if parts else None
    return Gaussian(line(a.mean, b.mean, t), std, factor)


def unit_norm(a: Gaussian, b: Gaussian, t: Any) -> Gaussian:
    """The geodesic with means that keep their length."""
    return dataclasses.replace(geodesic(a, b, t), mean=_lengthened(a.mean, b.mean, t))


def unit_norm_independent(a: Gaussian, b: Gaussian, t: Any) -> Gaussian:
    """Independent noise around means that keep their length."""
    return dataclasses.replace(independent(a, b, t), mean=_lengthened(a.mean, b.mean, t))


def mixture(a: Gaussian, b: Gaussian, t: Any) -> Mixture:
    """Both ends, with weights 1 - t and t."""
    return Mixture((a, b), jnp.stack([1 - jnp.asarray(t), jnp.asarray(t)]))


PATHS: dict[str, Path] = {
    "geodesic": geodesic,
    "independent": independent,
    "unit-norm": unit_norm,
    "unit-norm-independent": unit_norm_independent,
    "mixture": mixture,
}


def _hypot(x: jax.Array, y: jax.Array, t: jax.Array) -> jax.Array:
    return jnp.sqrt(((1 - t) * x) ** 2 + (t * y) ** 2)


def _lengthened(a: Any, b: Any, t: Any) -> Any:
    """The line from a to b with every leaf at the length between those of its ends."""

    def leaf(x: jax.Array, y: jax.Array) -> jax.Array:
        s = jnp.asarray(t, x.dtype)
        straight = (1 - s) * x + s * y
        length = (1 - s) * jnp.linalg.norm(x.ravel()) + s * jnp.linalg.norm(y.ravel())
        now = jnp.linalg.norm(straight.ravel())
        # Opposite means have no direction half way, and empty leaves none at all.
        return straight * jnp.where(now > 0, length / jnp.where(now > 0, now, 1), 1)

    return jax.tree.map(leaf, a, b)


def _factor(q: Gaussian, rank: int) -> Any:
    """The factor of q, padded with zeros to at least the given rank."""
    missing = max(rank - q.rank, 0)
    if q.factor is None:
        return jax.tree.map(lambda m: jnp.zeros((missing, *m.shape), m.dtype), q.mean)
    return jax.tree.map(
        lambda f: jnp.concatenate([f, jnp.zeros((missing, *f.shape[1:]), f.dtype)]), q.factor
    )


def _rotated(factor: Any, onto: Any) -> Any:
    """Q factor for the rotation Q that brings it closest to another: the same covariance."""
    overlap = sum(
        jnp.matmul(
            x.reshape(x.shape[0], -1),
            y.reshape(y.shape[0], -1).T,
            precision=jax.lax.Precision.HIGHEST,
        )
        for x, y in zip(jax.tree.leaves(onto), jax.tree.leaves(factor), strict=True)
    )
    left, _, right = jnp.linalg.svd(overlap)
    rotation = jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
    return jax.tree.map(
        lambda f: jnp.tensordot(
            rotation.astype(f.dtype), f, 1, precision=jax.lax.Precision.HIGHEST
        ),
        factor,
    )
