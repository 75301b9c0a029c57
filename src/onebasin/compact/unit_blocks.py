"""Covariances of units: the weights of one unit vary together, those of different units apart.

A unit's block holds its incoming weights, its bias, and outgoing weights that end at no other
hidden unit. The block's first principal components over the draws become rows of the Gaussian's
factor that are zero elsewhere, so that a block covariance is an ordinary low-rank Gaussian: it
moves, samples and has a density as every other does. Its rank is components times units.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry import Symmetry

COMPONENTS = 4
MAX_BYTES = 4 * 2**30


def blocks_of(symmetry: Symmetry, params: Any) -> tuple[list[np.ndarray], int]:
    """For each leaf the block that each weight belongs to, -1 for none; and how many there are.

    Factors stand in the order in which the model uses them, so where several act on a leaf, the
    weight belongs to that of the last: the unit that it goes into.
    """
    leaves, _ = symmetry.flatten(params)
    places = {leaf.path: number for number, leaf in enumerate(symmetry.leaves)}
    blocks = [np.full(np.shape(leaf), -1) for leaf in leaves]
    count = 0
    for factor in symmetry.factors:
        if "permutation" not in factor.kinds or factor.copies != 1:
            continue
        used: set[int] = set()
        for site in factor.sites:
            number = places[site.path]
            shape = blocks[number].shape
            if site.axis is None or number in used or shape[site.axis] != factor.size:
                continue
            units = count + np.arange(factor.size)
            along = [1] * len(shape)
            along[site.axis] = factor.size
            blocks[number] = np.broadcast_to(units.reshape(along), shape).copy()
            used.add(number)
        count += factor.size if used else 0
    return blocks, count


def unit_factor(symmetry: Symmetry, stacked: Any, components: int | None) -> Any:
    """The factor of a block covariance of stacked draws, (components x units, ...) per leaf.

    Args:
        symmetry: The model's group, which says what a unit is.
        stacked: Parameters with a leading axis of draws.
        components: Principal components per unit; by default 4, or as many as the draws have.

    Raises:
        ValueError: If the model has no units, or the factor would take too many bytes.
    """
    leaves, structure = jax.tree.flatten(stacked)
    one = jax.tree.unflatten(structure, [leaf[0] for leaf in leaves])
    blocks, _ = blocks_of(symmetry, one)
    flat_blocks = np.concatenate([block.ravel() for block in blocks])
    used = np.unique(flat_blocks[flat_blocks >= 0])
    if not len(used):
        raise ValueError(
            "the model has no hidden units that trade places, so there are no blocks: take "
            "covariance='diagonal' or 'low-rank'"
        )
    draws = len(leaves[0])
    size = min(COMPONENTS if components is None else components, draws - 1)
    needed = 4 * size * len(used) * len(flat_blocks)
    if needed > MAX_BYTES:
        raise ValueError(
            f"blocks of {len(used)} units with {size} components take {needed:,} bytes, expected "
            f"at most {MAX_BYTES:,}: pass a smaller rank, or covariance='low-rank'"
        )
    flat = np.concatenate([np.asarray(leaf, np.float64).reshape(draws, -1) for leaf in leaves], 1)
    flat -= flat.mean(axis=0)
    order = np.argsort(flat_blocks, kind="stable")
    bounds = np.searchsorted(flat_blocks[order], [*used, used[-1] + 1])
    factor = np.zeros((size * len(used), flat.shape[1]), np.float32)
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        own = order[start:stop]
        part = flat[:, own]
        _, vectors = np.linalg.eigh(part @ part.T)
        first = vectors[:, ::-1][:, :size]
        rows = size * number + np.arange(size)
        factor[rows[:, None], own] = first.T @ part / np.sqrt(draws - 1)
    ends = np.cumsum([block.size for block in blocks])[:-1]
    parts = np.split(factor, ends, axis=1)
    shaped = [
        jnp.asarray(p.reshape(len(factor), *b.shape), leaf.dtype)
        for p, b, leaf in zip(parts, blocks, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, shaped)
