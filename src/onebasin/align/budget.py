"""How much memory an alignment of many draws works in, and what it keeps of them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import jax
import numpy as np

from onebasin._core.cores import num_cores
from onebasin.symmetry import Symmetry

Way = Literal["rows", "chains", "visits"]
KEPT_BYTES = 2**30
# Draws that are matched with one centre, side by side, before the mean follows.
TOGETHER = 4
# What canonical scales of a draw take while they are found, and what a visit does, in its sizes.
GAUGE_COPIES = 24
SCALE_BYTES = 2**10
VISIT_COPIES = 8
ROW_COPIES = 4
# Arrays of the size of a factor's gains that one match takes, in bytes per entry.
GAIN_BYTES = 40


@dataclasses.dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of what an alignment holds.

    Attributes:
        count: How many draws there are.
        draw: One draw, no less than single precision.
        gains: The gains of one draw, all factors together, in entries.
        state: Where one draw stands.
        scales: How many scales one draw has.
    """

    count: int
    draw: int
    gains: int
    state: int
    scales: int

    @classmethod
    def of(cls, symmetry: Symmetry, stacked: Any) -> Sizes:
        """The sizes for stacked parameters, or their shapes."""
        leaves = jax.tree.leaves(stacked)
        weights = [math.prod(x.shape[1:]) * max(np.dtype(x.dtype).itemsize, 4) for x in leaves]
        one = symmetry.identity(np)
        state = sum(x.nbytes for x in jax.tree.leaves((one.permutations, one.signs)))
        scales = symmetry.scaling_dimension()
        return cls(leaves[0].shape[0], sum(weights), _gains(symmetry), state, scales)


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """What an alignment may hold.

    Attributes:
        lean: Whether draws without scalings are made again whenever they are looked at.
        block: Draws whose canonical scales are found together.
        threads: Visits side by side.
        kept: Bytes for products that are kept from round to round.
        part: Draws that are matched as one product.
    """

    lean: bool
    block: int
    threads: int
    kept: int
    part: int


def plan(sizes: Sizes, memory: int, way: Way, scales: bool) -> Budget:
    """How to stay within a number of bytes.

    Args:
        sizes: Of the draws.
        memory: The bytes to work in.
        way: How draws are matched.
        scales: Whether scalings are removed.
    """
    gains = GAIN_BYTES * sizes.gains
    # States before and after a round and on their way, sums in double precision, a centre.
    always = 6 * sizes.count * sizes.state + 8 * sizes.draw
    one = max((VISIT_COPIES if way == "visits" else ROW_COPIES) * sizes.draw + gains, 1)
    together = 2 * TOGETHER * sizes.draw if way == "rows" else 0
    gauge = GAUGE_COPIES * sizes.draw + SCALE_BYTES * sizes.scales if scales else 0
    least = max(always + together + one, gauge)
    if memory < least:
        raise ValueError(
            f"memory={memory:,} bytes is too little: {sizes.count:,} draws of {sizes.draw:,} bytes "
            f"take {least:,} beside themselves while they are aligned; raise memory="
        )
    room = memory - always - together
    whole = sizes.count * sizes.draw * (scales + (way != "visits"))
    if whole + num_cores() * one <= room:
        room -= whole
        threads = num_cores()
    else:
        whole = 0
        threads = max(1, min(num_cores(), room // one))
    return Budget(
        lean=not whole,
        block=max(1, min(sizes.count, memory // max(gauge, 1))),
        threads=threads,
        kept=min(KEPT_BYTES, max(room - threads * one, 0)),
        part=max(1, min(sizes.count, room // one)),
    )


def _gains(symmetry: Symmetry) -> int:
    """Entries of the gains of one draw: with parents, for all pairs of theirs."""
    return sum(
        math.prod(symmetry.sizes[name] ** 2 for name in (*symmetry.parents[f.name], f.name))
        for f in symmetry.factors
        if f.name in symmetry.permutable
    )
