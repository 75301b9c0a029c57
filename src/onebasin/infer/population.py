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
import jax.numpy as jnp
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


def each_in_place(
    fun: Callable[[Any, Any], tuple[Any, Any]], group: int, stacked: Any, beside: Any
) -> tuple[Any, Any]:
    """What `fun` makes of each member, and something more, as `each` does.

    Members that go one by one take the place of what they were, so that there is one of each.

    Args:
        fun: fun(own, beside) -> (own, more) of one member.
        group: How many are batched.
        stacked: What changes, members stacked.
        beside: What does not.
    """
    count = jax.tree.leaves(stacked)[0].shape[0]
    if group != 1 or count == 1:
        return each(fun, group, stacked, beside)

    def member(tree: Any, i: Any) -> Any:
        return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, 0, False), tree)

    def turn(i: Any, carry: Any) -> Any:
        found = fun(member(carry[0], i), member(beside, i))
        return jax.tree.map(lambda whole, x: whole.at[i].set(x), carry, found)

    more = jax.eval_shape(lambda: fun(member(stacked, 0), member(beside, 0)))[1]
    empty = jax.tree.map(lambda s: jnp.zeros((count, *s.shape), s.dtype), more)
    return jax.lax.fori_loop(0, count, turn, (stacked, empty))


def group_size(
    fun: Callable[..., Any],
    members: int,
    memory: int | None,
    *arguments: Any,
    weights: int,
    apart: bool = False,
) -> int:
    """How many members to take at a time.

    On a CPU a budget never changes how many that are, since members that are batched round
    otherwise: where they do not fit, it says so.

    Args:
        fun: The step of one member.
        members: How many there are.
        memory: Bytes that the step may take; None for a share of the device.
        *arguments: The step's arguments, arrays or shapes.
        weights: Number of weights of one network.
        apart: Whether members do not see each other.

    Raises:
        MemoryError: If one member does not fit, or those that are batched; it says how many bytes
            are needed.
    """
    platform = jax.default_backend()
    on_cpu = platform == "cpu"
    one_by_one = on_cpu and (apart or weights > SMALL_WEIGHTS)
    budget = DEFAULT_BYTES.get(platform, 2**33) if memory is None or on_cpu else memory
    small = (memory is None or on_cpu) and 4 * weights * members < budget / SAFE_SHARE
    if memory is None and (one_by_one or members == 1):
        return 1
    if memory is None and small:
        return members
    needed = bytes_needed(fun, *arguments)
    check_budget(needed, memory)
    if one_by_one:
        return 1
    group = members if small else min(members, max(1, int(budget // max(needed, 1))))
    if memory is not None and group * needed > memory:
        raise MemoryError(
            f"{group} chains are one program, which needs {group * needed:,} bytes for a step, and "
            f"the budget is {memory:,}: raise `memory`, take fewer chains, or share them out with "
            "`engine` and its networks_per_task"
        )
    return group


def check_budget(needed: int, memory: int | None) -> None:
    """Raises if one member does not fit, saying how many bytes it needs."""
    if memory is not None and needed > memory:
        raise MemoryError(
            f"one network needs {needed:,} bytes for a step and the budget is {memory:,}: raise "
            "`memory`, or take a smaller batch_size"
        )


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
