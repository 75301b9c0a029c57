"""The plane through three networks: a grid of losses, ready to plot."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.barrier import as_pytree, loss_of
from onebasin.align.checks import check_unwrapped
from onebasin.align.telling import by_name, highest, lowest, table
from onebasin.posterior import Draws, Gaussian, Mixture, trees


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Plane:
    """Losses on a grid in the plane through three networks; made by `plane`.

    Attributes:
        x: Coordinates along the way from a to b, (columns,), in units of distance between weights.
        y: Coordinates across it, towards c, (rows,).
        values: The loss at each point, (rows, columns), as `plt.contourf(x, y, values)` takes it;
            a dictionary where the loss function gives one.
        corners: Where a, b and c lie, (3, 2).
        origin: The network a.
        basis: The two orthonormal directions, parameter trees.
    """

    x: jax.Array
    y: jax.Array
    values: Any
    corners: jax.Array
    origin: Any
    basis: tuple[Any, Any]

    def point(self, x: Any, y: Any) -> Any:
        """The parameters at a point of the plane."""
        return _point(self.origin, self.basis, x, y)

    def __str__(self) -> str:
        """The size of the grid, and a line per loss: its lowest and its highest point."""
        rows = [("loss", "lowest", "highest")]
        rows += [(name, lowest(v), highest(v)) for name, v in by_name(self.values).items()]
        return f"{self._size()} points in the plane through three networks\n{table(rows)}"

    def __repr__(self) -> str:
        losses = by_name(self.values).items()
        told = ", ".join(f"{name} {lowest(v)} to {highest(v)}" for name, v in losses)
        return f"Plane({self._size()} points, {told})"

    def _size(self) -> str:
        return " x ".join(str(np.size(side)) for side in (self.x, self.y))


def plane(
    loss_fn: Any,
    a: Any,
    b: Any,
    c: Any,
    resolution: int | tuple[int, int] = 21,
    margin: float = 0.2,
) -> Plane:
    """Evaluates a loss on the plane a + x u + y v through three networks.

    u is the unit vector along b - a, v that along c - a once its part along u is taken out
    (Gram-Schmidt), so that distances in the picture are distances between weights.

    Args:
        loss_fn: `loss_fn(params) -> scalar`, or a dictionary of scalars; `losses` makes one.
        a: Parameters; the origin.
        b: Parameters, on the x axis.
        c: Parameters, above it.
        resolution: Points along each side, or (columns, rows).
        margin: How far the grid reaches beyond the three, as a fraction of their extent.

    Returns:
        A `Plane`.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.align.plane import plane
        >>> a, b, c = jnp.array([0.0, 0, 1]), jnp.array([3.0, 0, 1]), jnp.array([1.0, 4, 1])
        >>> found = plane(lambda w: jnp.sum(w**2), a, b, c, resolution=5)
        >>> found.corners.tolist(), found.values.shape
        ([[0.0, 0.0], [3.0, 0.0], [1.0, 4.0]], (5, 5))
    """
    columns, rows = (resolution, resolution) if isinstance(resolution, int) else resolution
    if min(columns, rows) < 2 or margin < 0:
        raise ValueError(
            f"got resolution={resolution} and margin={margin}, expected at least 2 points along "
            "each side and no negative margin"
        )
    for name, network in (("a", a), ("b", b), ("c", c)):
        check_unwrapped(name, network)
        if isinstance(network, Gaussian | Draws | Mixture):
            raise TypeError(
                f"{name} is a {type(network).__name__}, expected parameters: pass its mean"
            )
        trees.check_same(a, network, "a", name)
    basis, corners = _basis(a, b, c)
    if not isinstance(corners, jax.core.Tracer):
        (_, _), (width, _), (_, height) = corners.tolist()
        if not (width > 0 and height > 1e-5 * width):
            raise ValueError(
                "the three networks lie on one line (or hold NaN), expected three that span a "
                "plane; use barrier for two"
            )
    x, y = (
        jnp.linspace(low - margin * (high - low), high + margin * (high - low), n)
        for low, high, n in zip(corners.min(0), corners.max(0), (columns, rows), strict=True)
    )
    return Plane(x, y, _grid(as_pytree(loss_fn), a, basis, x, y), corners, a, basis)


@jax.jit
def _basis(a: Any, b: Any, c: Any) -> tuple[tuple[Any, Any], jax.Array]:
    to_b, to_c = (
        jax.tree.map(lambda x, y: y - x if trees.is_float(x) else jnp.zeros(()), a, end)
        for end in (b, c)
    )
    width = jnp.sqrt(_dot(to_b, to_b))
    u = jax.tree.map(lambda x: x / width, to_b)
    along = _dot(u, to_c)
    across = jax.tree.map(lambda x, y: x - along * y, to_c, u)
    # Once more: a single pass leaves rounding errors along u where c is close to the line.
    again = _dot(u, across)
    across = jax.tree.map(lambda x, y: x - again * y, across, u)
    height = jnp.sqrt(_dot(across, across))
    v = jax.tree.map(lambda x: x / height, across)
    zero = jnp.zeros_like(width)
    corners = jnp.array([[zero, zero], [width, zero], [along + again, height]])
    return (u, v), corners


def _dot(x: Any, y: Any) -> jax.Array:
    products = jax.tree.map(lambda p, q: jnp.sum(p * q), x, y)
    return sum(jax.tree.leaves(products), start=jnp.zeros(()))


def _point(origin: Any, basis: tuple[Any, Any], x: Any, y: Any) -> Any:
    def leaf(o: Any, u: Any, v: Any) -> Any:
        return (o + x * u + y * v).astype(o.dtype) if trees.is_float(o) else o

    return jax.tree.map(leaf, jax.tree.map(jnp.asarray, origin), *basis)


@jax.jit
def _grid(loss_fn: Any, origin: Any, basis: Any, x: jax.Array, y: jax.Array) -> Any:
    def at(place: tuple[jax.Array, jax.Array]) -> Any:
        # Networks need no random numbers.
        return loss_of(loss_fn, _point(origin, basis, *place), jax.random.key(0))

    across, up = jnp.meshgrid(x, y)
    values = jax.lax.map(at, (across.ravel(), up.ravel()))
    return jax.tree.map(lambda v: v.reshape(across.shape), values)
