"""A population that does not fit a budget as a whole: cohorts of it, one after the other.

What a member becomes does not depend on the cohort it is in.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.infer.population import shares

# Of each member, beside what a step takes: as it is, and where it is shared out among cores, as it
# was and as it comes back.
HELD, HELD_BY_CORES = 1, 3
# A loop over one member rounds otherwise than one over several.
FEWEST = 2


def cohorts(members: int, memory: int | None, each: int, step: int, group: int) -> list[slice]:
    """The members that are together, each cohort as large as the budget lets it be.

    Args:
        members: How many there are.
        memory: The budget in bytes; None for one cohort.
        each: Bytes of what is kept of one member from step to step.
        step: Bytes that the step of one member takes beside.
        group: How many are batched.

    Raises:
        MemoryError: If the smallest cohort does not fit.
    """
    if memory is None or members <= 1:
        return [slice(0, members)]
    least = min(members, max(FEWEST, group))
    most = next(
        (n for n in range(members, least, -1) if _bytes(n, each, step, group) <= memory), least
    )
    needed = _bytes(most, each, step, group)
    if needed > memory:
        raise MemoryError(
            f"{most} networks, the fewest that are trained together, need {needed:,} bytes and the "
            f"budget is {memory:,}: raise `memory`, or take a smaller batch_size"
        )
    return _parts(members, most, least)


def _bytes(count: int, each: int, step: int, group: int) -> int:
    parts = shares(count) if group == 1 else 1
    held = HELD if parts == 1 else HELD_BY_CORES
    return held * count * each + parts * group * step


def _parts(members: int, most: int, least: int) -> list[slice]:
    """Parts of nearly the same size, of `least` members or more."""
    number = max(1, min(-(-members // most), members // least))
    ends = [members * k // number for k in range(number + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends)]


class Gathered:
    """Trees of cohorts as one of all members, each put in its place as it comes.

    On the device the place is taken in the array that is there, so that there is one of each.
    """

    def __init__(self, members: int):
        self.members = members
        self.tree: Any = None

    def put(self, rows: slice, part: Any) -> None:
        """Takes the place of some members; arrays have the member as their first axis."""
        if rows == slice(0, self.members):
            self.tree = part
            return
        if self.tree is None:
            self.tree = jax.tree.map(lambda x: _empty(x, self.members), part)
        self.tree = jax.tree.map(lambda whole, x: _placed(whole, x, rows.start), self.tree, part)


def _empty(part: Any, members: int) -> Any:
    library = np if isinstance(part, np.ndarray) else jnp
    return library.zeros((members, *part.shape[1:]), part.dtype)


def _placed(whole: Any, part: Any, first: int) -> Any:
    if isinstance(part, np.ndarray):
        whole[first : first + len(part)] = part
        return whole
    return _placed_on_device(whole, part, first)


@functools.partial(jax.jit, donate_argnums=0)
def _placed_on_device(whole: jax.Array, part: jax.Array, first: Any) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(whole, part, first, axis=0)


def rows_of(stacked: Any) -> Callable[[slice], Any]:
    """Stacked members as a function of some of them: what comes is a copy."""
    return lambda rows: jax.tree.map(lambda x: jnp.array(x[rows], copy=True), stacked)
