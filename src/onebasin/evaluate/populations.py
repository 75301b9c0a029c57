"""Populations of networks as tables (draw, weight), of which a few columns or rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.posterior.trees import is_float, named_leaves, with_arrays
from onebasin.store import StoredStream


class Population:
    """Draws as a table with a row for each draw and a column for each weight.

    What lies on disk stays there: `fill` reads some columns of all rows, `rows` some rows as a
    stacked tree. Leaves that are not floating point are left out of the table.

    Args:
        source: `Draws`, a stream of a run, a tree of stacked parameters, or an array (draw, ...).
        name: What to call it in an error.
    """

    def __init__(self, source: Any, name: str) -> None:
        self.name = name
        if isinstance(source, Gaussian | Mixture):
            raise TypeError(
                f"{name} is {source!r}, expected draws: those of its method sample, for instance"
            )
        self.stream = source if isinstance(source, StoredStream) else None
        if self.stream is not None:
            self._inside = "params" if _holds_draws(self.stream) else ""
            leaves = _of_stream(self.stream, self._inside)
            self.num_draws = len(self.stream)
        else:
            tree = source.params if isinstance(source, Draws) else source
            self._tree = with_arrays(tree, name)
            leaves, self.num_draws = _of_tree(self._tree, name)
        if not leaves or not self.num_draws:
            raise ValueError(
                f"{name} holds {self.num_draws} draws of {len(leaves)} floating-point leaves, "
                "expected at least one of each"
            )
        self.shapes = {path: shape for path, shape, _, _ in leaves}
        self.dtype = np.result_type(np.float32, *(dtype for _, _, dtype, _ in leaves))
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        self._starts = np.cumsum([0, *sizes]).tolist()
        self._readers = [reader for _, _, _, reader in leaves]
        self.num_weights = self._starts[-1]

    def fill(self, out: np.ndarray, start: int, draw: int = 0) -> None:
        """Reads the columns from `start` on, of the draws from `draw` on, into (draw, column)."""
        stop = start + out.shape[1]
        for reader, first, last in zip(self._readers, self._starts, self._starts[1:], strict=False):
            low, high = max(start, first), min(stop, last)
            if low < high:
                reader(out[:, low - start : high - start], low - first, high - first, draw)

    def rows(self, index: Any) -> Any:
        """Some draws, by a slice or by numbers, as a stacked tree."""
        if self.stream is None:
            return jax.tree.map(lambda leaf: leaf[index], self._tree)
        tree = self.stream[index]
        return tree["params"] if self._inside else tree

    def check_like(self, other: Population) -> None:
        """Raises unless both are populations of the same model, naming the first odd leaf."""
        paths = [*self.shapes, *(path for path in other.shapes if path not in self.shapes)]
        for path in paths:
            own, its = self.shapes.get(path), other.shapes.get(path)
            if own != its:
                has = [f"has it with shape {s}" if s is not None else "has not" for s in (own, its)]
                raise ValueError(
                    f"{self.name} and {other.name} are of different models: leaf {path!r}, "
                    f"{self.name} {has[0]}, {other.name} {has[1]}; expected networks of one "
                    "architecture"
                )

    def check_finite(self, block: np.ndarray, start: int, first: int = 0) -> None:
        """Raises if columns that were read hold NaN or infinity, naming leaf and draw."""
        bad = ~np.isfinite(block)
        if not bad.any():
            return
        draw, column = (int(x) for x in np.argwhere(bad)[0])
        leaf = int(np.searchsorted(self._starts, start + column, side="right")) - 1
        raise ValueError(
            f"{self.name} holds NaN or infinite values, first in draw {first + draw} at leaf "
            f"{list(self.shapes)[leaf]!r}; leave out the networks that diverged"
        )


Reader = Callable[[np.ndarray, int, int, int], None]
Leaf = tuple[str, tuple[int, ...], Any, Reader]


def blocks(populations: list[Population], width: int, dtype: Any) -> Iterator[np.ndarray]:
    """The columns of all populations under each other, `width` at a time and centred.

    Distances do not change when all draws are moved alike, and small numbers cancel less.
    """
    count = sum(p.num_draws for p in populations)
    total = populations[0].num_weights
    space = np.empty((count, min(width, total)), dtype)
    for start in range(0, total, width):
        block = space[:, : min(width, total - start)]
        first = 0
        for p in populations:
            p.fill(block[first : first + p.num_draws], start)
            first += p.num_draws
        centre = block.mean(axis=0)
        if not np.isfinite(centre).all():
            first = 0
            for p in populations:
                p.check_finite(block[first : first + p.num_draws], start)
                first += p.num_draws
        block -= centre
        yield block


def _holds_draws(stream: StoredStream) -> bool:
    return any(path == "params" or path.startswith("params/") for path in stream.paths)


def _of_stream(stream: StoredStream, inside: str) -> list[Leaf]:
    found: list[Leaf] = []
    for path in stream.paths if len(stream) else ():
        if inside and path != inside and not path.startswith(f"{inside}/"):
            continue
        one = stream.leaf(path, 0)
        if is_float(one):
            name = path.removeprefix(f"{inside}/") if inside else path
            found.append((name, np.shape(one), one.dtype, _row_reader(stream, path)))
    return found


def _row_reader(stream: StoredStream, path: str) -> Reader:
    def read(out: np.ndarray, low: int, high: int, first: int) -> None:
        stream.fill(out, path, low, first)

    return read


def _of_tree(tree: Any, name: str) -> tuple[list[Leaf], int]:
    found: list[Leaf] = []
    counts: dict[int, str] = {}
    for path, leaf in named_leaves(tree):
        if not np.shape(leaf):
            raise ValueError(
                f"leaf {path!r} of {name} is a scalar, expected a leading axis of draws; stack "
                "single networks with Draws.stack"
            )
        counts.setdefault(np.shape(leaf)[0], path)
        if is_float(leaf):
            count, *shape = np.shape(leaf)
            table = _on_host(leaf).reshape(count, int(np.prod(shape)))
            found.append((path, tuple(shape), jnp.result_type(leaf), _column_reader(table)))
    if len(counts) > 1:
        said = " and ".join(f"{count} in {path!r}" for count, path in list(counts.items())[:2])
        raise ValueError(
            f"leaves of {name} differ in their number of draws, {said}; the first axis of every "
            "leaf is the draw"
        )
    return found, next(iter(counts), 0)


def _on_host(leaf: Any) -> Any:
    """A NumPy array where that costs nothing; what lies on another device stays there."""
    if isinstance(leaf, jax.Array) and any(d.platform != "cpu" for d in leaf.devices()):
        return leaf
    return np.asarray(leaf)


def _column_reader(table: Any) -> Reader:
    def read(out: np.ndarray, low: int, high: int, first: int) -> None:
        out[...] = table[first : first + len(out), low:high]

    return read
