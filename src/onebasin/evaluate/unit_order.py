"""How units change their order: along training, and along a path between two networks."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import scipy.stats

from onebasin.align import align, canonical_element, interpolate
from onebasin.evaluate import table
from onebasin.posterior import Draws
from onebasin.symmetry import Symmetry


def order_tau(symmetry: Symmetry, checkpoints: Any, *, order: str = "max") -> dict[str, np.ndarray]:
    """Kendall's tau between the orders of the units at successive checkpoints.

    Units are sorted at each checkpoint as `canonicalize` sorts them; 1 says that no two units
    changed places since, -1 that all did, 0 what chance would give (laurent2024symmetry).

    Args:
        symmetry: The group of the model; factors that depend on others are left out.
        checkpoints: One network at several times: `Draws`, or stacked parameters, in order.
        order: By which of its incoming weights a unit is sorted: "max", "mean", "median", "first".

    Returns:
        By factor, (checkpoint - 1,).

    Example:
        >>> import jax.numpy as jnp
        >>> import onebasin as ob
        >>> model = lambda params, x: jnp.tanh(x @ params["inner"]) @ params["outer"]
        >>> inner = jnp.array([[[1.0, 2.0, 3.0]], [[1.0, 2.0, 4.0]], [[3.0, 2.0, 1.0]]])
        >>> params = {"inner": inner, "outer": jnp.ones((3, 3, 1))}
        >>> one = {name: leaf[0] for name, leaf in params.items()}
        >>> symmetry = ob.discover(model, one, jnp.ones((1, 1)))
        >>> [tau.tolist() for tau in ob.order_tau(symmetry, params).values()]
        [[1.0, -1.0]]
    """
    stacked = checkpoints.params if isinstance(checkpoints, Draws) else checkpoints
    chosen: Any = order
    element, _ = canonical_element(symmetry, stacked, scaling=None, order=chosen, signs=False)
    found = {}
    for factor in symmetry.factors:
        if "permutation" not in factor.kinds or factor.copies > 1:
            continue
        orders = np.asarray(element.permutations[factor.name])
        if orders.ndim != 2 or len(orders) < 2:
            raise ValueError("got one checkpoint, expected at least two, stacked in order")
        ranks = np.argsort(orders, axis=-1)
        found[factor.name] = np.array(
            [scipy.stats.kendalltau(a, b).statistic for a, b in itertools.pairwise(ranks)]
        )
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class PathTranspositions:
    """The outcome of `path_transpositions`.

    Attributes:
        t: Where on the path, from 0 to 1.
        total: The number of transpositions at each point.
        by_factor: The same for every factor.
    """

    t: np.ndarray
    total: np.ndarray
    by_factor: dict[str, np.ndarray]

    def __str__(self) -> str:
        rows = [
            (f"{t:.2f}", str(total), *(str(counts[i]) for counts in self.by_factor.values()))
            for i, (t, total) in enumerate(zip(self.t, self.total, strict=True))
        ]
        return table.render(("t", "transpositions", *self.by_factor), rows)


def path_transpositions(
    symmetry: Symmetry, a: Any, b: Any, *, points: int = 11, cost: str = "weights", **options: Any
) -> PathTranspositions:
    """How many swaps align each network on the line from a to b with a (xiao2023compact).

    Args:
        symmetry: The group of the model.
        a: A network's parameters.
        b: Another's.
        points: Number of points on the line, both ends among them.
        cost: The cost of the alignments, as for `align`.
        options: Further arguments of `align`.

    Returns:
        The number of transpositions at each point.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> net = ob.nets.mlp(hidden=(8,), outputs=2)
        >>> a, b = (net.init(jax.random.key(seed), jnp.ones((1, 3))) for seed in (0, 1))
        >>> symmetry = ob.discover(net.apply, a, jnp.ones((1, 3)))
        >>> found = ob.path_transpositions(symmetry, a, b, points=3)
        >>> int(found.total[0]), bool(found.total[-1] > 0)
        (0, True)
    """
    if points < 2:
        raise ValueError(f"got points={points}, expected at least the two ends")
    places = np.linspace(0, 1, points)
    found = [align(symmetry, interpolate(a, b, t), to=a, cost=cost, **options) for t in places]
    return PathTranspositions(
        t=places,
        total=np.array([each.num_transpositions for each in found]),
        by_factor={
            name: np.array([each.transpositions[name] for each in found])
            for name in found[0].transpositions
        },
    )
