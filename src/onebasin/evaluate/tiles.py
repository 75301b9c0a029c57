"""All distances between many draws on an engine: a pair of tiles of draws is a task.

Each task reads the columns of its two tiles in blocks and writes one tile of the matrix. Where
tiles begin follows from the number of draws alone.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from onebasin._core.cores import one_blas_thread
from onebasin.engine import Engine, Shared, Task, run_tasks
from onebasin.evaluate import distances
from onebasin.evaluate.populations import Population
from onebasin.store import StoredStream
from onebasin.store.fingerprint import fingerprint
from onebasin.store.sealed import Seals, is_sealed, seal

HEIGHT = 1024


@dataclasses.dataclass(frozen=True)
class Tile:
    """Some draws: stacked parameters, or a stream on disk and which of its draws.

    Attributes:
        source: Stacked parameters of these draws, or a stream.
        first: The first of these draws in the source.
        count: How many draws.
        number: The number of the first of them in its population.
        name: What to call that in an error.
    """

    source: Any
    first: int
    count: int
    number: int
    name: str

    def columns(self, population: Population, start: int, width: int, dtype: Any) -> np.ndarray:
        """Some columns of these draws."""
        block = np.empty((self.count, width), dtype)
        population.fill(block, start, self.first)
        population.check_finite(block, start, self.number)
        return block


def tiled_distances(
    engine: Engine, populations: list[Population], kernel: str, width: int, dtype: Any
) -> np.ndarray:
    """Distances between all draws of all populations, as `distances` has them.

    Args:
        engine: Where the tasks run.
        populations: The draws.
        kernel: "laplace" for L1 distances; squared Euclidean ones otherwise.
        width: Columns that a task reads at a time.
        dtype: In which it computes.
    """
    tiles = list(_tiles(populations))
    shared = [engine.share(tile) for _, tile in tiles]
    prints = [_print(tile) for _, tile in tiles]
    count = sum(p.num_draws for p in populations)
    folder = (engine.directory / "mmd").resolve()
    seals = Seals()
    orders = {}
    for i, j in itertools.combinations_with_replacement(range(len(tiles)), 2):
        question = fingerprint(prints[i], prints[j], i == j, kernel, width, np.dtype(dtype).name)
        orders[i, j] = (str(folder / f"{question[:32]}.safetensors"), question)
    tasks = (
        Task(
            f"mmd/{i}-{j}",
            tile_pair,
            (shared[i], shared[j], i == j, kernel, width, np.dtype(dtype).name, *orders[i, j]),
        )
        for i, j in orders
        if not seals.is_sealed(Path(orders[i, j][0]), orders[i, j][1])
    )
    for _ in run_tasks(engine, tasks, title="distances", total=len(orders)):
        pass
    found = np.zeros((count, count))
    for (i, j), (file, question) in orders.items():
        part = seals.unseal(Path(file), question)[0]["distances"]
        rows, columns = tiles[i][0], tiles[j][0]
        found[rows : rows + part.shape[0], columns : columns + part.shape[1]] = part
        if i != j:
            found[columns : columns + part.shape[1], rows : rows + part.shape[0]] = part.T
    return found


def tile_pair(
    first: Shared[Tile],
    second: Shared[Tile],
    same: bool,
    kernel: str,
    width: int,
    dtype: str,
    file: str,
    question: str,
) -> dict[str, str]:
    """One tile of the matrix of distances, as a file."""
    path = Path(file)
    if is_sealed(path, question):
        return {"file": path.name}
    sides = (first.get(), second.get())
    populations = [Population(side.source, side.name) for side in sides]
    total = populations[0].num_weights
    starts = range(0, total, width)

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in starts:
            wide = min(width, total - start)
            a, b = (
                side.columns(population, start, wide, dtype)
                for side, population in zip(sides, populations, strict=True)
            )
            # Distances do not change when all draws are moved alike, and small numbers cancel less.
            centre = (a.sum(axis=0) + b.sum(axis=0)) / a.dtype.type(len(a) + len(b))
            yield a - centre, b - centre

    compute = distances.manhattan_between if kernel == "laplace" else distances.euclidean_between
    # One thread for a product, here as on a worker: how a sum is cut changes its last digits.
    with one_blas_thread():
        found = compute(blocks, sides[0].count, sides[1].count)
    if same:
        upper = np.triu(found, 1)
        found = upper + upper.T
    seal(path, question, {"distances": found})
    return {"file": path.name}


def _tiles(populations: list[Population]) -> Iterator[tuple[int, Tile]]:
    """The tiles of all populations, each with the place of its first draw."""
    place = 0
    for population in populations:
        for start in range(0, population.num_draws, HEIGHT):
            count = min(HEIGHT, population.num_draws - start)
            if population.stream is not None:
                yield place, Tile(population.stream, start, count, start, population.name)
            else:
                own = population.rows(slice(start, start + count))
                yield place, Tile(own, 0, count, start, population.name)
            place += count


def _print(tile: Tile) -> str:
    if isinstance(tile.source, StoredStream):
        return fingerprint(tile.source.files(), tile.first, tile.count)
    return fingerprint(tile.source)
