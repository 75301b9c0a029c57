"""One trained bend: a quadratic curve between two ends whose middle is fitted on data."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from onebasin.align.barrier import as_pytree
from onebasin.align.paths import find_path, independent, line
from onebasin.align.predictive import PredictiveLoss
from onebasin.align.task import scalar_loss
from onebasin.align.telling import number
from onebasin.posterior import Gaussian, trees
from onebasin.symmetry.keys import check_key


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Bend:
    """The curve theta_t = (1 - t)^2 a + 2 t (1 - t) c + t^2 b; made by `bend`.

    Between Gaussians the means follow the curve and the noise is coupled independently. As the
    `path` of `interpolate` and `barrier` it bends the way between the ends given there.

    Attributes:
        start: The end at t = 0: parameters, or a `Gaussian`.
        middle: Parameters, the control point c.
        end: The end at t = 1.
        history: Training loss of every step, (steps,).
    """

    start: Any
    middle: Any
    end: Any
    history: jax.Array

    def point(self, t: Any) -> Any:
        """Parameters, or the Gaussian, at t."""
        return curve(self.start, self.middle, self.end, t)

    def __call__(self, a: Any, b: Any, t: Any) -> Any:
        """The point at t of the curve from a to b with this middle."""
        return curve(a, self.middle, b, t)

    def __str__(self) -> str:
        """Its size, and the training loss in the first and the last tenth of the steps."""
        steps = np.size(self.history)
        first, last = self._losses()
        return (
            f"a curve between two {self._ends()} of {trees.num_weights(self.middle):,} weights, "
            f"trained for {steps} step{'' if steps == 1 else 's'}: training loss {first} -> {last}"
        )

    def __repr__(self) -> str:
        first, last = self._losses()
        return (
            f"Bend({trees.num_weights(self.middle):,} weights, {np.size(self.history)} steps, "
            f"training loss {first} -> {last})"
        )

    def _ends(self) -> str:
        return "Gaussians" if isinstance(self.start, Gaussian) else "networks"

    def _losses(self) -> tuple[str, str]:
        if isinstance(self.history, jax.core.Tracer) or not np.size(self.history):
            return number(self.history), number(self.history)
        some = max(np.size(self.history) // 10, 1)
        return number(np.mean(self.history[:some])), number(np.mean(self.history[-some:]))


def bend(
    loss_fn: Callable[..., Any],
    a: Any,
    b: Any,
    key: jax.Array,
    data: Any = None,
    *,
    batch_fn: Callable[[jax.Array], Any] | None = None,
    batch_size: int = 128,
    steps: int = 1000,
    learning_rate: float = 3e-3,
    optimizer: optax.GradientTransformation | None = None,
) -> Bend:
    """Fits a curve of low loss from a to b: the middle of theta_t minimises E_t loss(theta_t).

    Every step takes one t, uniform in [0, 1], one batch and, for Gaussians, one draw. The middle
    starts half way, where the curve is the straight line.

    Args:
        loss_fn: `loss_fn(params, batch) -> scalar`; without data and batch_fn,
            `loss_fn(params) -> scalar`. A dictionary goes by its "train loss" or "loss"; what
            `losses` makes has its data, all of which it sees at every step.
        a: Parameters, or a `Gaussian`. It stays as it is.
        b: The other end.
        key: Random key of places, batches and draws.
        data: Training data: any pytree of arrays with a common leading axis, such as (inputs,
            labels); a batch is like it.
        batch_fn: Makes a batch from a key, in place of `data`; traced once.
        batch_size: Examples per batch, drawn with replacement.
        steps: Number of steps; all run in one compiled loop.
        learning_rate: Adam's, falling to 0 by a cosine.
        optimizer: An optax optimiser in its place.

    Returns:
        A `Bend`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin.align.barrier import barrier
        >>> from onebasin.align.bend import bend
        >>> def ring(w):
        ...     return (jnp.sum(w**2) - 1) ** 2
        >>> a, b = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
        >>> curve = bend(ring, a, b, jax.random.key(0), steps=200, learning_rate=0.02)
        >>> straight, bent = (barrier(ring, a, b, path=p).height for p in ("geodesic", curve))
        >>> round(float(straight), 2), round(float(bent), 2)
        (0.25, 0.0)
    """
    if steps < 1 or batch_size < 1:
        raise ValueError(
            f"got steps={steps} and batch_size={batch_size}, expected at least one of each"
        )
    check_key(key)
    if data is not None and batch_fn is not None:
        raise ValueError("got data and batch_fn, expected one of them: both say what a batch is")
    if isinstance(loss_fn, PredictiveLoss) and not (data is None and batch_fn is None):
        raise ValueError(
            "a loss made by losses or marginal_loss has its data: leave out data and batch_fn, or "
            "pass a function of parameters and a batch that gives a scalar"
        )
    find_path(a, b, "geodesic")
    _num_examples(data)
    if optimizer is None:
        optimizer = _adam(learning_rate, steps)
    source = None if batch_fn is None else as_pytree(batch_fn)
    middle, history = _fit(
        as_pytree(loss_fn), a, b, key, data, source, batch_size, optimizer, steps
    )
    return Bend(a, middle, b, history)


def curve(a: Any, middle: Any, b: Any, t: Any) -> Any:
    """(1 - t)^2 a + 2 t (1 - t) c + t^2 b, as the line between two lines."""
    if isinstance(a, Gaussian):
        return dataclasses.replace(independent(a, b, t), mean=curve(a.mean, middle, b.mean, t))
    return line(line(a, middle, t), line(middle, b, t), t)


@functools.lru_cache(maxsize=16)
def _adam(learning_rate: float, steps: int) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))


def _num_examples(data: Any) -> int:
    sizes = {np.shape(x)[:1] for x in jax.tree.leaves(data)}
    if data is not None and (len(sizes) != 1 or min(sizes) in ((), (0,))):
        raise ValueError(f"data has leading sizes {sorted(sizes)}, expected one number of examples")
    return int(min(sizes)[0]) if sizes else 0


@functools.partial(jax.jit, static_argnames=("batch_size", "optimizer", "steps"))
def _fit(
    loss_fn: Any,
    a: Any,
    b: Any,
    key: jax.Array,
    data: Any,
    batch_fn: Any,
    batch_size: int,
    optimizer: optax.GradientTransformation,
    steps: int,
) -> tuple[Any, jax.Array]:
    means = (a.mean, b.mean) if isinstance(a, Gaussian) else (a, b)
    structure: Any
    leaves, structure = jax.tree.flatten(line(*means, 0.5))
    trained = [trees.is_float(leaf) for leaf in leaves]

    def whole(floats: list[Any]) -> Any:
        remaining = iter(floats)
        return structure.unflatten(
            [next(remaining) if yes else leaf for yes, leaf in zip(trained, leaves, strict=True)]
        )

    def batch(key: jax.Array) -> tuple[Any, ...]:
        if batch_fn is not None:
            return (batch_fn(key),)
        if data is None:
            return ()
        picked = jax.random.randint(key, (batch_size,), 0, _num_examples(data))
        return (jax.tree.map(lambda x: x[picked], data),)

    def loss(floats: list[Any], key: jax.Array) -> jax.Array:
        t_key, batch_key, draw_key = jax.random.split(key, 3)
        point = curve(a, whole(floats), b, jax.random.uniform(t_key))
        if isinstance(point, Gaussian):
            point = point.draw(draw_key)
        return scalar_loss(loss_fn(point, *batch(batch_key)))

    def step(carry: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], jax.Array]:
        floats, state = carry
        value, gradient = jax.value_and_grad(loss)(floats, key)
        updates, state = optimizer.update(gradient, state, floats)
        return (optax.apply_updates(floats, updates), state), value

    floats = [leaf for yes, leaf in zip(trained, leaves, strict=True) if yes]
    (floats, _), history = jax.lax.scan(
        step, (floats, optimizer.init(floats)), jax.random.split(key, steps)
    )
    return whole(floats), history
