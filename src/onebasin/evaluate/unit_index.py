"""Whether draws have seen all labels of the hidden units."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.stats

from onebasin.align import canonical_element
from onebasin.evaluate import table
from onebasin.posterior import Draws
from onebasin.symmetry import Symmetry

SIMULATIONS = 10_000


@dataclasses.dataclass(frozen=True, eq=False)
class IndexTest:
    """The outcome of `index_test`, by factor.

    Attributes:
        counts: How often each unit had the largest incoming weight, (unit,).
        statistic: Pearson's chi-square against equal counts.
        p_value: The chance of at least this statistic if all units were alike.
    """

    counts: dict[str, np.ndarray]
    statistic: dict[str, float]
    p_value: dict[str, float]

    def __str__(self) -> str:
        rows = [
            (name, f"{len(n)}", f"{n.sum()}", f"{self.statistic[name]:.1f}", f"{p:.3g}")
            for (name, n), p in zip(self.counts.items(), self.p_value.values(), strict=True)
        ]
        return table.render(("factor", "units", "draws", "chi-square", "p"), rows)


def index_test(symmetry: Symmetry, draws: Any, *, seed: int = 0) -> IndexTest:
    """Tests whether every unit of a layer is as likely to have the largest incoming weight.

    Under independent priors that are the same for all weights of a layer, the units of a layer have
    the same marginals in the posterior (laurent2024symmetry), so the index of the largest weight is
    uniform over independent draws. Chains that stay in one basin fail.

    Args:
        symmetry: The group of the model; factors that depend on others are left out.
        draws: `Draws`, or stacked parameters.
        seed: Seed of the p-value where a unit is expected fewer than five times: there it comes
            from simulated counts, elsewhere from the chi-square distribution.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> net = ob.nets.mlp(hidden=(4,), outputs=2)
        >>> keys = jax.random.split(jax.random.key(0), 200)
        >>> draws = jax.vmap(lambda key: net.init(key, jnp.ones((1, 3))))(keys)
        >>> params = jax.tree.map(lambda x: x[0], draws)
        >>> symmetry = ob.discover(net.apply, params, jnp.ones((1, 3)))
        >>> [p] = ob.index_test(symmetry, draws).p_value.values()
        >>> p > 0.01
        True
    """
    stacked = draws.params if isinstance(draws, Draws) else draws
    factors = [f for f in symmetry.factors if "permutation" in f.kinds and f.copies == 1]
    if not factors:
        raise ValueError("the group has no units that can change places: there is nothing to test")
    element, _ = canonical_element(symmetry, stacked, scaling=None, order="max", signs=False)
    rng = np.random.default_rng(seed)
    found = IndexTest({}, {}, {})
    for factor in factors:
        order = np.asarray(element.permutations[factor.name])
        if order.ndim != 2:
            raise ValueError("got one network, expected stacked draws: Draws, or Draws.stack")
        counts = np.bincount(order[:, 0], minlength=factor.size)
        found.counts[factor.name] = counts
        found.statistic[factor.name], found.p_value[factor.name] = _chi_square(counts, rng)
    return found


def _chi_square(counts: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    total, units = int(counts.sum()), len(counts)
    statistic, p_value = scipy.stats.chisquare(counts)
    if total >= 5 * units:
        return float(statistic), float(p_value)
    drawn = rng.multinomial(total, np.full(units, 1 / units), SIMULATIONS)
    simulated = np.sum((drawn - total / units) ** 2, axis=1) / (total / units)
    above = np.sum(simulated >= statistic - 1e-9 * max(statistic, 1))
    return float(statistic), float((1 + above) / (1 + SIMULATIONS))
