"""Data in batches: what runs over all examples without holding all activations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Moments(NamedTuple):
    """Moments of units over `count` values each: summed squared deviations in `square`."""

    count: Any
    mean: Any
    square: Any

    @classmethod
    def of(cls, values: jax.Array) -> Moments:
        """Moments of values (..., unit)."""
        flat = values.reshape(-1, values.shape[-1])
        mean = jnp.mean(flat, axis=0)
        return cls(
            jnp.asarray(flat.shape[0], mean.dtype), mean, jnp.sum((flat - mean) ** 2, axis=0)
        )

    def merge(self, other: Moments) -> Moments:
        """Moments of both sets of values together (Chan's rule, which does not cancel)."""
        count = self.count + other.count
        share = other.count / count
        delta = other.mean - self.mean
        return Moments(
            count,
            self.mean + share * delta,
            self.square + other.square + self.count * share * delta**2,
        )

    @property
    def variance(self) -> Any:
        """Variance of each unit, with divisor n."""
        return self.square / self.count


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """Inputs cut into full batches (batch, example, ...) and a rest (example, ...)."""

    full: Any
    rest: Any
    num_examples: int = dataclasses.field(metadata={"static": True})

    @classmethod
    def of(cls, inputs: Any, batch_size: int) -> Batches:
        """Cuts inputs (a pytree whose leaves share their leading axis) into batches."""
        sizes = {np.shape(x)[0] if np.ndim(x) else None for x in jax.tree.leaves(inputs)}
        if len(sizes) != 1 or None in sizes:
            raise ValueError(
                f"inputs have leading sizes {sizes or 'none'}, expected one number of examples"
            )
        (count,) = sizes
        if not count or batch_size < 1:
            raise ValueError(
                f"got {count} examples in batches of {batch_size}, expected at least one of each"
            )
        batch_size = min(batch_size, count)
        cut = count - count % batch_size
        inputs = jax.tree.map(jnp.asarray, inputs)
        full = jax.tree.map(lambda x: x[:cut].reshape(-1, batch_size, *x.shape[1:]), inputs)
        rest = jax.tree.map(lambda x: x[cut:], inputs) if cut < count else None
        return cls(full, rest, count)

    @property
    def first(self) -> Any:
        """The first batch."""
        return jax.tree.map(lambda x: x[0], self.full)

    def sum(self, fun: Callable[[Any], Any]) -> Any:
        """What fun gives on every batch, a pytree, added up."""
        found, _ = jax.lax.scan(
            lambda total, batch: (jax.tree.map(jnp.add, total, fun(batch)), None),
            fun(self.first),
            jax.tree.map(lambda x: x[1:], self.full),
        )
        return found if self.rest is None else jax.tree.map(jnp.add, found, fun(self.rest))

    def map(self, fun: Callable[[Any], jax.Array]) -> jax.Array:
        """What fun gives on every batch, its results (example, ...) put together."""
        result = jax.lax.map(fun, self.full)
        result = result.reshape(-1, *result.shape[2:])
        return result if self.rest is None else jnp.concatenate([result, fun(self.rest)])

    def moments(self, fun: Callable[[Any], dict[str, jax.Array]]) -> dict[str, Moments]:
        """Moments, over all examples and places, of the arrays (..., unit) that fun gives."""

        def of_batch(batch: Any) -> dict[str, Moments]:
            return {name: Moments.of(values) for name, values in fun(batch).items()}

        def add(found: dict[str, Moments], batch: Any) -> dict[str, Moments]:
            more = of_batch(batch)
            return {name: found[name].merge(more[name]) for name in found}

        found, _ = jax.lax.scan(
            lambda state, batch: (add(state, batch), None),
            of_batch(self.first),
            jax.tree.map(lambda x: x[1:], self.full),
        )
        return found if self.rest is None else add(found, self.rest)
