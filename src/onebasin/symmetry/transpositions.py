"""Number of transpositions: how far a permutation is from the identity."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry.keys import check_key


def transpositions(permutation: Any) -> Any:
    r"""The least number of swaps that make a permutation: n minus its number of cycles.

    NoT(P) of `xiao2023compact`. Leading axes are a batch of permutations.

    Args:
        permutation: Integers [..., n], each row a permutation of 0..n-1.

    Returns:
        An int for one permutation, an integer array for a batch.

    Example:
        >>> from onebasin import transpositions
        >>> transpositions([1, 0, 2, 4, 3])
        2
    """
    array = np.asarray(permutation)
    if array.ndim == 0 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(
            f"a permutation is an array of integers [..., n]; got {array.dtype} {array.shape}"
        )
    n = array.shape[-1]
    if not array.size:
        return 0 if array.ndim == 1 else np.zeros(array.shape[:-1], int)
    rows = array.reshape(-1, n)
    if not np.array_equal(np.sort(rows, axis=-1), np.broadcast_to(np.arange(n), rows.shape)):
        raise ValueError(f"not a permutation: each row must hold 0..{n - 1} once")
    # The least index of each cycle, found by doubling: after k rounds it has looked 2^k steps on.
    least, step = np.broadcast_to(np.arange(n), rows.shape), rows
    for _ in range(max(n - 1, 0).bit_length()):
        least = np.minimum(least, np.take_along_axis(least, step, axis=-1))
        step = np.take_along_axis(step, step, axis=-1)
    swaps = n - np.sum(least == np.arange(n), axis=-1)
    return int(swaps[0]) if array.ndim == 1 else swaps.reshape(array.shape[:-1])


def random_permutation(key: jax.Array, n: int, num_transpositions: int) -> jax.Array:
    """A random permutation of n units with exactly the given number of transpositions.

    Starts from n - k cycles of length one, hands each of the other k units to a cycle at random,
    and rolls every cycle by one.

    Args:
        key: A JAX random key.
        n: Number of units.
        num_transpositions: k, from 0 to n - 1.
    """
    if not 0 <= num_transpositions < max(n, 1):
        raise ValueError(
            f"a permutation of {n} units has between 0 and {max(n - 1, 0)} transpositions; "
            f"got {num_transpositions}"
        )
    check_key(key)
    order_key, cycle_key = jax.random.split(key)
    units = jax.random.permutation(order_key, n)
    cycles = n - num_transpositions
    joined = jax.random.randint(cycle_key, (num_transpositions,), 0, max(cycles, 1))
    cycle = jnp.concatenate([jnp.arange(cycles), joined])
    by_cycle = jnp.argsort(cycle, stable=True)
    members, owner = units[by_cycle], cycle[by_cycle]
    position = jnp.arange(n)
    start = jnp.searchsorted(owner, owner, side="left")
    last = jnp.searchsorted(owner, owner, side="right") - 1
    following = jnp.where(position == last, start, position + 1)
    return jnp.zeros(n, members.dtype).at[members].set(members[following])
