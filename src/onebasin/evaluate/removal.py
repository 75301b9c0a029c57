"""Symmetry taken out of populations before they are compared: sorted, or matched."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from onebasin.align import align_many, canonicalize
from onebasin.evaluate.populations import Population
from onebasin.posterior import Draws
from onebasin.symmetry import Symmetry

REMOVALS = ("sort", "match")
COPIES = 6
"""How many times its own size a block of draws takes while it is moved."""


def remove(
    symmetry: Symmetry,
    populations: list[Population],
    how: str,
    memory: int,
    options: Mapping[str, Any],
) -> list[Population]:
    """The populations in one basin.

    Draws are moved in blocks that fit the memory; what was moved lies in memory if it fits there as
    well, and in files that vanish with it if not.

    Args:
        symmetry: The group.
        populations: Populations of one model.
        how: "sort" or "match".
        memory: Bytes to work in.
        options: For `canonicalize` or `align_many`.
    """
    size = 8 * populations[0].num_weights
    height = memory // (COPIES * size)
    if height < 1:
        raise ValueError(
            f"memory={memory:,} bytes is too little for one block: moving one draw needs "
            f"{COPIES * size:,} bytes; raise memory="
        )
    total = sum(p.num_draws for p in populations)
    move = _sorting(symmetry, options)
    if how == "match":
        move = _matching(symmetry, populations, height, options)
    on_disk = total * size > memory // 2
    return [_moved(p, move, height, on_disk) for p in populations]


Move = Callable[[Any], Any]


def _sorting(symmetry: Symmetry, options: Mapping[str, Any]) -> Move:
    chosen: dict[str, Any] = {"scaling": "unit-norm", "order": "max", **options}
    return lambda stacked: canonicalize(symmetry, stacked, **chosen)


def _matching(
    symmetry: Symmetry, populations: list[Population], height: int, options: Mapping[str, Any]
) -> Move:
    """Matching to one reference: the mean of draws of all sides, as many as fit."""
    chosen = dict(options)
    if not isinstance(chosen.get("reference", "mean"), str):
        return lambda stacked: align_many(symmetry, stacked, **chosen).draws.params
    share = min(1.0, height / sum(p.num_draws for p in populations))
    parts: list[Draws] = []
    for p in populations:
        count = max(1, int(share * p.num_draws))
        spread = np.linspace(0, p.num_draws - 1, count).round().astype(int)
        parts.append(Draws(p.rows(spread)))
    chosen["reference"] = align_many(symmetry, Draws.concatenate(parts), **chosen).reference
    return lambda stacked: align_many(symmetry, stacked, **chosen).draws.params


def _moved(population: Population, move: Move, height: int, on_disk: bool) -> Population:
    found: Any = None
    place = 0
    for stacked in _row_blocks(population, height):
        leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, move(stacked)))
        if found is None:
            spaces = [_space((population.num_draws, *x.shape[1:]), x, on_disk) for x in leaves]
            found = jax.tree.unflatten(structure, spaces)
        for space, leaf in zip(jax.tree.leaves(found), leaves, strict=True):
            space[place : place + len(leaf)] = leaf
        place += len(leaves[0])
    return Population(found, population.name)


def _row_blocks(population: Population, height: int) -> Iterator[Any]:
    for start in range(0, population.num_draws, height):
        yield population.rows(slice(start, start + height))


def _space(shape: tuple[int, ...], like: np.ndarray, on_disk: bool) -> np.ndarray:
    if not on_disk:
        return np.empty(shape, like.dtype)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, like.dtype, "w+", shape=shape)
