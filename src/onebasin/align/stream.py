"""Data in batches: what runs over all examples without holding all activations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry.host import widened


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


class Products(NamedTuple):
    """Products [p, q, i, j] of two networks' units, of deviations from the `means` over `count`.

    For each p of the parents there are as many q as these have combinations that roam.
    """

    count: Any
    means: tuple[Any, Any]
    squares: tuple[Any, Any]
    product: Any

    @classmethod
    def of(cls, x: Any, y: Any, centred: bool, roam: int) -> Products:
        """Those of values [parents flattened, units, everything else]; about 0 unless centred."""
        x, y = widened(x), widened(y)
        means = jnp.zeros(()), jnp.zeros(())
        if centred:
            means = x.mean(-1), y.mean(-1)
            x, y = x - means[0][..., None], y - means[1][..., None]
        squares = jnp.square(x).sum(-1), jnp.square(y).sum(-1)
        count = jnp.asarray(float(x.shape[-1]))
        apart = (v.reshape(-1, roam, *v.shape[1:]) for v in (x, y))
        product = jnp.einsum("spir,sqjr->spqij", *apart)
        return cls(count, means, squares, product.reshape(-1, *product.shape[2:]))

    def merge(self, other: Products) -> Products:
        """Products over both sets of values (Chan's rule, which does not cancel)."""
        count = self.count + other.count
        share = other.count / count
        ahead = [b - a for a, b in zip(self.means, other.means, strict=True)]
        between = [self.count * share * d**2 for d in ahead]
        return Products(
            count,
            (self.means[0] + share * ahead[0], self.means[1] + share * ahead[1]),
            (
                self.squares[0] + other.squares[0] + between[0],
                self.squares[1] + other.squares[1] + between[1],
            ),
            self.product
            + other.product
            + self.count * share * outer(ahead[0], ahead[1], self.product.shape[1]),
        )


def outer(a: Any, b: Any, roam: int) -> Any:
    """Products [p, q, i, j] of [p, i] and [q, j], q of those that roam; plain ones of numbers."""
    if a.ndim == 0:
        return a * b
    left, right = (x.reshape(-1, roam, x.shape[-1]) for x in (a, b))
    found = left[:, :, None, :, None] * right[:, None, :, None, :]
    return found.reshape(-1, *found.shape[2:])


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
        if None in sizes:
            raise ValueError(
                "inputs hold single numbers, expected arrays whose first axis is the example (a "
                "list is read as a tree of leaves): pass np.asarray(inputs)"
            )
        if len(sizes) != 1:
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
    def num_batches(self) -> int:
        """How many batches there are, with the rest."""
        return len(jax.tree.leaves(self.full)[0]) + (self.rest is not None)

    @property
    def first(self) -> Any:
        """The first batch."""
        return jax.tree.map(lambda x: x[0], self.full)

    def fold(self, fun: Callable[[Any], Any], merge: Callable[[Any, Any], Any]) -> Any:
        """What fun gives on every batch, a pytree, merged from the first to the last."""
        found = fun(self.first)
        further = jax.tree.map(lambda x: x[1:], self.full)
        if len(jax.tree.leaves(further)[0]):
            # Else a second copy of fun would be compiled, and never run.
            found, _ = jax.lax.scan(
                lambda held, batch: (merge(held, fun(batch)), None), found, further
            )
        return found if self.rest is None else merge(found, fun(self.rest))

    def map(self, fun: Callable[[Any], jax.Array]) -> jax.Array:
        """What fun gives on every batch, its results (example, ...) put together."""
        result = jax.lax.map(fun, self.full)
        result = result.reshape(-1, *result.shape[2:])
        return result if self.rest is None else jnp.concatenate([result, fun(self.rest)])

    def moments(self, fun: Callable[[Any], dict[str, jax.Array]]) -> dict[str, Moments]:
        """Moments, over all examples and places, of the arrays (..., unit) that fun gives."""

        def of_batch(batch: Any) -> dict[str, Moments]:
            return {name: Moments.of(values) for name, values in fun(batch).items()}

        def merge(a: dict[str, Moments], b: dict[str, Moments]) -> dict[str, Moments]:
            return {name: a[name].merge(b[name]) for name in a}

        return self.fold(of_batch, merge)
