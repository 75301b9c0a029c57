"""Many networks as one program: all at once, in groups that fit the memory, or one by one.

On a GPU a group is one batched program. On a CPU batched products are slower than plain ones:
members that do not see each other go one by one inside the same compiled loop, and the host loop
gives every core a share of them. Chains that adapt together are batched if they are small, since
there the overhead of each operation counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from onebasin._core.cores import num_cores

DEFAULT_BYTES = {"cpu": 2**32, "gpu": 2**35}
SMALL_WEIGHTS = 4096
# A step takes some times the weights, and its activations: far below the budget none is measured.
SAFE_SHARE = 1000


def each(fun: Callable[..., Any], group: int, *stacked: Any) -> Any:
    """Applies `fun` along the first axis of its arguments, `group` members at a time."""
    count = jax.tree.leaves(stacked)[0].shape[0]
    if group >= count:
        return jax.vmap(fun)(*stacked)
    return jax.lax.map(lambda args: fun(*args), stacked, batch_size=group if group > 1 else None)


def group_size(
    fun: Callable[..., Any],
    members: int,
    memory: int | None,
    *arguments: Any,
    weights: int,
    apart: bool = False,
) -> int:
    """How many members to take at a time.

    Args:
        fun: The step of one member.
        members: How many there are.
        memory: Bytes that the step may take; None for a share of the device.
        *arguments: The step's arguments, arrays or shapes.
        weights: Number of weights of one network.
        apart: Whether members do not see each other.

    Raises:
        MemoryError: If one member does not fit; it says how many bytes are needed.
    """
    platform = jax.default_backend()
    one_by_one = platform == "cpu" and (apart or weights > SMALL_WEIGHTS)
    budget = DEFAULT_BYTES.get(platform, 2**33) if memory is None else memory
    if memory is None and (one_by_one or members == 1):
        return 1
    if memory is None and 4 * weights * members < budget / SAFE_SHARE:
        return members
    needed = bytes_needed(fun, *arguments)
    if memory is not None and needed > memory:
        raise MemoryError(
            f"one network needs {needed:,} bytes for a step and the budget is {memory:,}: raise "
            "`memory`, or take a smaller batch_size"
        )
    fitting = max(1, int(budget // max(needed, 1)))
    return 1 if one_by_one else min(members, fitting)


def shares(members: int) -> int:
    """Into how many equal parts members that go one by one are shared out, at most one a core.

    No part has less than two: a loop over one member is compiled as if there were none, and rounds
    otherwise, but a member must not depend on who is beside it.
    """
    if jax.default_backend() != "cpu":
        return 1
    fitting = range(1, num_cores() + 1)
    return max(n for n in fitting if n == 1 or (members % n == 0 and members >= 2 * n))


def bytes_needed(fun: Callable[..., Any], *arguments: Any) -> int:
    """Bytes of one call: its own arrays, its results and what it keeps in between."""
    compiled = jax.jit(fun).lower(*arguments).compile()
    analysis = compiled.memory_analysis()
    if analysis is None:
        leaves = jax.tree.leaves(jax.eval_shape(fun, *arguments))
        return 4 * sum(int(np.prod(x.shape)) * x.dtype.itemsize for x in leaves)
    return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes)
