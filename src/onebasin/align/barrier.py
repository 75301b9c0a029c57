"""The barrier: how far the loss rises above the chord on a path between two ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.checks import check_finite
from onebasin.align.paths import Path, find_path
from onebasin.align.predictive import NUM_SAMPLES, PredictiveLoss
from onebasin.align.telling import by_name, number
from onebasin.posterior import Gaussian, Mixture
from onebasin.symmetry.keys import key_or_first

# What JAX says where a function wants the values of arrays, and not their shapes alone.
WANTS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Barrier:
    """The loss along a path, and its height above the chord between the ends.

    Where the loss function gives a dictionary, so are curve, reference and height.

    Attributes:
        t: Places on the path, (points,), from 0 to 1.
        curve: The loss at each.
        reference: The chord (1 - t) L(0) + t L(1).
        height: The largest rise of the curve above the chord, never below 0.
        calibrated: The same for the loss at the best temperature of each point, if asked for.
        temperature: Those temperatures, (points,).
    """

    t: jax.Array
    curve: Any
    reference: Any
    height: Any
    calibrated: Barrier | None = None
    temperature: jax.Array | None = None

    def __str__(self) -> str:
        """A line per loss: its ends, its highest point, its height."""
        rows: list[tuple[str, ...]] = [("loss", "at 0", "at 1", "highest", "barrier")]
        for label, barrier in (("", self), (" calibrated", self.calibrated)):
            if barrier is None:
                continue
            curves = barrier.curve if isinstance(barrier.curve, dict) else {"loss": barrier.curve}
            for name, curve in curves.items():
                height = (
                    barrier.height[name] if isinstance(barrier.height, dict) else barrier.height
                )
                values = (curve[0], curve[-1], jnp.max(curve), height)
                rows.append((name + label, *(f"{float(value):.4g}" for value in values)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def __repr__(self) -> str:
        heights = ", ".join(f"{name} {number(h)}" for name, h in by_name(self.height).items())
        ending = "" if self.calibrated is None else ", calibrated too"
        return f"Barrier({np.size(self.t)} points, height: {heights}{ending})"


def barrier(
    loss_fn: Any,
    a: Any,
    b: Any,
    points: int = 11,
    path: str | Path = "geodesic",
    *,
    key: jax.Array | None = None,
    num_samples: int | None = None,
    calibrate: bool = False,
) -> Barrier:
    """The barrier max over t of L(t) - [(1 - t) L(0) + t L(1)] on a path from a to b.

    One compiled program evaluates all points of all paths, one after the other, and draws of
    Gaussians use the same random numbers at each. A loss function that JAX cannot trace, since it
    gives a Python float or computes with NumPy, is called as it is.

    Args:
        loss_fn: `loss_fn(params) -> scalar`, or a dictionary of scalars; for Gaussians it is
            averaged over draws. Made by `losses` or `marginal_loss` it gives nats and errors, and
            for Gaussians those of the averaged predictive, as rossi2023permutation has it.
        a: Parameters, or a `Gaussian`.
        b: The other end.
        points: Number of equally spaced points, both ends included.
        path: A path of `interpolate`, a `Bend`, or a function (a, b, t).
        key: Random key of the draws of Gaussians; `jax.random.key(0)` by default.
        num_samples: Draws of each Gaussian; by default as the loss was made, else 128.
        calibrate: Also report the loss after dividing logits (for Gaussians: the log of the
            predictive) by the scalar that is best on training data, at every point: a barrier
            that vanishes with it is one of confidence, not of function. Where all training
            examples are classified rightly they tell nothing of it, and the loss stays as it is.
            Needs `losses`.

    Returns:
        A `Barrier`.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.align.barrier import barrier
        >>> found = barrier(lambda w: jnp.sum((w**2 - 1) ** 2), jnp.ones(1), -jnp.ones(1))
        >>> float(found.height), found.curve[:3].tolist() == sorted(found.curve[:3].tolist())
        (1.0, True)
    """
    if points < 2:
        raise ValueError(f"got points={points}, expected at least the two ends")
    if num_samples is not None and num_samples < 1:
        raise ValueError(f"got num_samples={num_samples}, expected at least one draw")
    if calibrate and not isinstance(loss_fn, PredictiveLoss):
        raise ValueError(
            "calibrate=True needs logits, and this loss_fn gives a loss only; make it with "
            "losses(apply_fn, train, test)"
        )
    for name, end in (("a", a), ("b", b)):
        check_end(name, end)
    t = jnp.linspace(0, 1, points)
    key = key_or_first(key)
    loss, way = as_pytree(loss_fn), as_pytree(find_path(a, b, path))

    def at(t: jax.Array) -> tuple[Any, Any, Any]:
        found: tuple[Any, Any, Any] = _scored(
            loss, _placed(way, a, b, t), key, num_samples, calibrate
        )
        return found

    def called_at(t: jax.Array) -> tuple[Any, Any, Any]:
        return _score(loss, way(a, b, t), key, num_samples, calibrate, one_by_one)

    # A loop of an outer program is compiled once, calls of Python would be as often as points.
    traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((loss, way, a, b, key)))
    mapped = jax.lax.map if traced else one_by_one
    try:
        curve, calibrated, temperature = mapped(at, t)
    except WANTS_VALUES:
        curve, calibrated, temperature = one_by_one(called_at, t)
    found = _barrier(t, curve)
    if not calibrate:
        return found
    return dataclasses.replace(found, calibrated=_barrier(t, calibrated), temperature=temperature)


def check_end(name: str, end: Any) -> None:
    """Refuses an end with NaN, which would make all of the path NaN and its barrier look like 0."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(end)):
        return
    parts = {"mean": end.mean, "std": end.std} if isinstance(end, Gaussian) else {"": end}
    for part, tree in parts.items():
        check_finite(f"the {part} of {name}" if part else name, tree)


def as_pytree(fun: Any) -> Any:
    """A function that can go through jit: its arrays as arguments, the rest as its identity."""
    leaves = jax.tree.leaves(fun)
    return jax.tree_util.Partial(fun) if len(leaves) == 1 and leaves[0] is fun else fun


def loss_of(
    loss_fn: Any,
    posterior: Any,
    key: jax.Array,
    num_samples: int | None = None,
    mapped: Callable[..., Any] = jax.lax.map,
) -> Any:
    """The loss of a network, or of a posterior by draws; clones the key."""
    if isinstance(loss_fn, PredictiveLoss):
        return loss_fn.scores(loss_fn.log_predictive(posterior, key, num_samples))
    if isinstance(posterior, Mixture):
        parts = [loss_of(loss_fn, c, key, num_samples, mapped) for c in posterior.components]
        return jax.tree.map(lambda *p: jnp.dot(jnp.stack(p), posterior.weights), *parts)
    if isinstance(posterior, Gaussian):
        keys = jax.random.split(jax.random.clone(key), num_samples or NUM_SAMPLES)
        values = mapped(lambda k: _scalars(loss_fn(posterior.draw(k))), keys)
        return jax.tree.map(jnp.mean, values)
    return _scalars(loss_fn(posterior))


def _scalars(value: Any) -> Any:
    for leaf in jax.tree.leaves(value):
        if np.shape(leaf) != ():
            raise ValueError(
                f"loss_fn gave an array of shape {np.shape(leaf)}, expected a scalar or a "
                "dictionary of scalars; take the mean over examples"
            )
    return value


def one_by_one(fun: Callable[[Any], Any], items: jax.Array) -> Any:
    """As `jax.lax.map`, by calls of Python."""
    values = [fun(item) for item in items]
    return jax.tree.map(lambda *v: jnp.stack([jnp.asarray(x) for x in v]), *values)


def _score(
    loss_fn: Any,
    posterior: Any,
    key: jax.Array,
    num_samples: int | None,
    calibrate: bool,
    mapped: Callable[..., Any] = jax.lax.map,
) -> tuple[Any, Any, Any]:
    """The loss of what lies at a point, and calibrated, and the temperature."""
    if not calibrate:
        return loss_of(loss_fn, posterior, key, num_samples, mapped), None, None
    log_probs = loss_fn.log_predictive(posterior, key, num_samples)
    return loss_fn.scores(log_probs), *loss_fn.calibrated(log_probs)


# Apart, since a path is compiled in no time and a loss is not: one program serves all paths.
_placed = jax.jit(lambda path, a, b, t: path(a, b, t))
_scored = jax.jit(_score, static_argnames=("num_samples", "calibrate"))


def _barrier(t: jax.Array, curve: Any) -> Barrier:
    reference = jax.tree.map(lambda c: (1 - t) * c[0] + t * c[-1], curve)
    height = jax.tree.map(lambda c, r: jnp.max(c - r), curve, reference)
    return Barrier(t, curve, reference, height)
