"""All distances between the rows of a table that is read in blocks of columns."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from onebasin._core.cores import num_cores

Blocks = Callable[[], Iterator[np.ndarray]]
"""A fresh pass over the columns: blocks (row, column), centred."""

Pairs = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]
"""The same of two tables with the same columns."""

TILE = 256
LARGE_TILE = 2048
STRIP = 4096
UNROLL = 16
PAIRS = 1 << 22


def squared_euclidean(blocks: Blocks, count: int) -> np.ndarray:
    """Squared Euclidean distances (row, row) by one matrix product per block.

    With the Gram matrix G they are G_ii + G_jj - 2 G_ij, summed over blocks in double precision.
    That cancels where two rows are much closer to each other than to the centre: those pairs are
    computed again from their differences, in a second pass.
    """
    gram = np.zeros((count, count))
    resolution = 0.0
    for block in blocks():
        gram += _gram(block)
        resolution = 1e4 * float(np.finfo(block.dtype).eps)
    norms = np.diagonal(gram)
    reach = norms[:, None] + norms[None, :]
    gram *= -2
    gram += reach
    close = np.argwhere(np.triu(gram < resolution * reach, 1))
    np.fill_diagonal(gram, 0)
    if len(close):
        rows, columns = close.T
        exact = _direct(blocks, rows, columns)
        gram[rows, columns] = gram[columns, rows] = exact
    return gram


def euclidean_between(pairs: Pairs, rows: int, columns: int) -> np.ndarray:
    """Squared Euclidean distances between the rows of two tables, as `squared_euclidean`."""
    product = np.zeros((rows, columns))
    norms = [np.zeros(rows), np.zeros(columns)]
    resolution = 0.0
    for sides in pairs():
        product += _product(*sides)
        for norm, side in zip(norms, sides, strict=True):
            norm += np.einsum("ij,ij->i", side, side, dtype=np.float64)
        resolution = 1e4 * float(np.finfo(sides[0].dtype).eps)
    reach = norms[0][:, None] + norms[1][None, :]
    product *= -2
    product += reach
    places = np.nonzero(product < resolution * reach)
    if len(places[0]):
        exact = np.zeros(len(places[0]))
        for a, b in pairs():
            step = max(1, PAIRS // a.shape[1])
            for first in range(0, len(exact), step):
                part = slice(first, first + step)
                gap = a[places[0][part]] - b[places[1][part]]
                exact[part] += np.einsum("ij,ij->i", gap, gap)
        product[places] = exact
    return product


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if jax.default_backend() == "cpu":
        return a @ b.T
    found = jnp.matmul(jnp.asarray(a), jnp.asarray(b).T, precision=jax.lax.Precision.HIGHEST)
    return np.asarray(found)


def manhattan_between(pairs: Pairs, rows: int, columns: int) -> np.ndarray:
    """L1 distances between the rows of two tables, as `manhattan`."""
    tile = TILE if jax.default_backend() == "cpu" else LARGE_TILE
    found = np.zeros((rows, columns))
    places = [[slice(i, i + tile) for i in range(0, n, tile)] for n in (rows, columns)]
    for sides in pairs():
        for first in range(0, sides[0].shape[1], STRIP):
            strips = [side[:, first : first + STRIP] for side in sides]
            depth = _multiple(strips[0].shape[1])
            loaded = [
                [_load(strip, depth, tile, place) for place in own]
                for strip, own in zip(strips, places, strict=True)
            ]
            for (i, a), (j, b) in itertools.product(*(enumerate(side) for side in loaded)):
                part = found[places[0][i], places[1][j]]
                part += np.asarray(_tile(a, b))[: part.shape[0], : part.shape[1]]
    return found


def _gram(block: np.ndarray) -> np.ndarray:
    if jax.default_backend() == "cpu":
        # NumPy sees that both sides are the same and computes one half.
        return block @ block.T
    on_device = jnp.asarray(block)
    return np.asarray(jnp.matmul(on_device, on_device.T, precision=jax.lax.Precision.HIGHEST))


def _direct(blocks: Blocks, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    found = np.zeros(len(rows))
    for block in blocks():
        step = max(1, PAIRS // block.shape[1])
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            gap = block[rows[part]] - block[columns[part]]
            found[part] += np.einsum("ij,ij->i", gap, gap)
    return found


def manhattan(blocks: Blocks, count: int) -> np.ndarray:
    """L1 distances (row, row), tile by tile so that all that a tile needs stays in the cache.

    Rows are cut into tiles and columns into strips; each pair of tiles is one compiled loop over a
    strip, summed over strips in double precision. Pairs of tiles run in parallel.
    """
    on_cpu = jax.default_backend() == "cpu"
    # Elsewhere there is no cache to fit, and every step has to be launched.
    tiles = range(-(-count // (TILE if on_cpu else LARGE_TILE)))
    tile = _multiple(-(-count // len(tiles)))
    found = np.zeros((len(tiles) * tile, len(tiles) * tile))
    places = [slice(i * tile, (i + 1) * tile) for i in tiles]
    with concurrent.futures.ThreadPoolExecutor(num_cores() if on_cpu else 1) as pool:
        for block in blocks():
            for first in range(0, block.shape[1], STRIP):
                strip = block[:, first : first + STRIP]
                load = functools.partial(_load, strip, _multiple(strip.shape[1]), tile)
                loaded = list(pool.map(load, places))

                def add(pair: tuple[int, int], loaded: list[jax.Array] = loaded) -> None:
                    i, j = pair
                    found[places[i], places[j]] += np.asarray(_tile(loaded[i], loaded[j]))

                pairs = itertools.combinations_with_replacement(tiles, 2)
                list(pool.map(add, pairs))
    upper = np.triu(found[:count, :count], 1)
    return upper + upper.T


def _load(strip: np.ndarray, depth: int, tile: int, rows: slice) -> jax.Array:
    """A tile of a strip, columns first; zeros fill it up, which add nothing to a distance."""
    part = strip[rows]
    padded = np.zeros((tile, depth), np.float32)
    padded[: len(part), : part.shape[1]] = part
    return _columns_first(padded).block_until_ready()


@jax.jit
def _columns_first(part: jax.Array) -> jax.Array:
    return part.T


@jax.jit
def _tile(a: jax.Array, b: jax.Array) -> jax.Array:
    """Distances between the columns of a and of b.

    Rows of the table are the fast axis, so that sums run side by side; several weights at a time
    keep the running sums in registers.
    """

    def step(total: jax.Array, weights: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        gaps = [jnp.abs(x[:, None] - y[None, :]) for x, y in zip(*weights, strict=True)]
        # Few terms first: rounding grows with the number of additions to the running total.
        return total + functools.reduce(jnp.add, gaps), None

    start = jnp.zeros((a.shape[1], b.shape[1]), a.dtype)
    split = [z.reshape(-1, UNROLL, z.shape[1]) for z in (a, b)]
    return jax.lax.scan(step, start, (split[0], split[1]))[0]


def _multiple(size: int) -> int:
    """The size, filled up to whole vectors."""
    return -(-size // UNROLL) * UNROLL
