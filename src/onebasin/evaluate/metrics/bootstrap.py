"""How sure a metric is: intervals over resampled examples."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BATCH = 64


class Interval(NamedTuple):
    """A value between two bounds.

    Attributes:
        value: What was measured.
        low: The lower end of the interval.
        high: The upper end of the interval.
    """

    value: Any
    low: Any
    high: Any

    def __str__(self) -> str:
        if np.ndim(self.value):
            return "\n".join(map(str, (Interval(*row) for row in zip(*self, strict=True))))
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def bootstrap(
    metric: Callable[..., Any],
    *arguments: Any,
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> Interval:
    """The percentile bootstrap interval of a metric, over examples (efron1979bootstrap).

    Examples are drawn anew with replacement: as weights, the number of times each was drawn, so
    that what a metric computes of each example is computed once.

    Args:
        metric: A metric of this module, or a function like it: it takes `sample_weight=` and can be
            used under `jax.jit`.
        arguments: Its arguments; the first has the examples along its first axis, or along its
            second if it has three.
        num_resamples: How often examples are drawn anew.
        level: The share of resamples inside the interval.
        seed: Seed of the resampling.
        options: Further arguments of the metric by name; weights of the examples, as
            `sample_weight`, among them.

    Returns:
        The value and the bounds, each of the shape that the metric returns.

    Example:
        >>> import jax
        >>> from onebasin import metrics
        >>> probs = jax.nn.softmax(jax.random.normal(jax.random.key(0), (200, 3)))
        >>> found = metrics.bootstrap(metrics.accuracy, probs.argmax(-1) // 2, probs)
        >>> bool(found.low < found.value < found.high)
        True
    """
    if num_resamples < 1 or not 0 < level < 1:
        raise ValueError(
            f"got num_resamples={num_resamples} and level={level}, expected at least one and a "
            "share between 0 and 1"
        )
    value = metric(*arguments, **options)
    given = options.pop("sample_weight", None)
    weight = jnp.asarray(1.0 if given is None else given)
    arrays = tuple(jnp.asarray(argument) for argument in arguments)
    count = arrays[0].shape[1 if arrays[0].ndim == 3 else 0]
    keys = jax.random.split(jax.random.key(seed), (-(-num_resamples // BATCH), BATCH))
    named = tuple(sorted(options.items()))
    found = _resampled(metric, named, count, keys, arrays, weight)[:num_resamples]
    # Resamples without one side of a comparison have no value.
    low, high = jnp.nanquantile(found, jnp.array([(1 - level) / 2, (1 + level) / 2]), axis=0)
    return Interval(value, low, high)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _resampled(
    metric: Callable[..., Any],
    options: tuple[tuple[str, Any], ...],
    count: int,
    keys: jax.Array,
    arguments: tuple[jax.Array, ...],
    weight: jax.Array,
) -> jax.Array:
    def once(key: jax.Array) -> jax.Array:
        drawn = jax.random.randint(key, (count,), 0, count)
        times = jnp.zeros(count).at[drawn].add(1)
        return metric(*arguments, sample_weight=times * weight, **dict(options))

    found = jax.lax.map(jax.vmap(once), keys)
    return found.reshape(-1, *found.shape[2:])
