"""Whole chains in one basin: one element for all draws of a chain.

The squared distances of a chain's draws from a reference sum to that of their mean, up to what no
element changes: matching the mean is the assignment over costs that are summed over the draws. The
element takes no account of where a single draw went, so that it cannot undo that a chain moves
slowly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.checks import check_population
from onebasin.align.gauge import root_mean_square
from onebasin.align.many import ManyAlignment, align_population
from onebasin.align.population import Population
from onebasin.posterior import Draws, push_forward
from onebasin.posterior.trees import is_float
from onebasin.symmetry import Symmetry


def align_chains(
    symmetry: Symmetry,
    draws: Draws,
    *,
    cost: str = "weights",
    apply_fn: Callable[[Any, Any], Any] | None = None,
    inputs: Any = None,
    scaling: str | None = "min-mass",
    batch_size: int = 1000,
    **options: Any,
) -> ManyAlignment:
    """Brings chains into one basin, all draws of a chain by the same element.

    Args:
        symmetry: The model's group.
        draws: The draws; their modes are the chains.
        cost: As for `align_many`; costs on data compare the mean networks of the chains.
        apply_fn: The model, for costs that look at data.
        inputs: Data for such costs.
        scaling: How scalings are removed, by the root mean square of each weight over the chain;
            None leaves them.
        batch_size: Examples at a time for costs that look at data.
        options: Further arguments of `align_many`.

    Returns:
        The aligned draws, each with the element of its chain; costs, rounds and `first` are those
        of chains.
    """
    check_population(symmetry, draws)
    symmetry.flatten(draws[0])
    means, sizes = _summary(draws)
    population = Population.of(
        symmetry, means, cost, apply_fn, inputs, scaling, batch_size, sizes=sizes
    )
    found = align_population(
        population,
        apply_fn=apply_fn,
        inputs=inputs,
        scaling=scaling,
        batch_size=batch_size,
        **options,
    )
    chain = np.unique(np.asarray(draws.mode), return_inverse=True)[1]
    elements = jax.tree.map(lambda x: x[chain], found.elements)
    moved = push_forward(symmetry, elements, draws)
    return dataclasses.replace(found, draws=moved, elements=elements)


def _summary(draws: Draws) -> tuple[Any, Any]:
    """The means of the chains and the root mean squares of their weights, stacked."""
    chains = [draws.of_mode(mode) for mode in draws.modes]
    means = [chain.mean() for chain in chains]
    sizes = [
        jax.tree.map(_size, mean, chain.std()) if len(chain) > 1 else mean
        for mean, chain in zip(means, chains, strict=True)
    ]
    return _stacked(means), _stacked(sizes)


def _size(mean: Any, std: Any) -> Any:
    return root_mean_square(mean, std**2) if is_float(mean) else mean


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
