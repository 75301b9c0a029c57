"""What is paired block by block, and how the arrays of a block are laid out for products."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from onebasin.symmetry.elements import Block


@dataclasses.dataclass(frozen=True, slots=True)
class Channel:
    """Arrays to be paired, leaf by leaf; `signed` when sign flips reach the moving side."""

    reference: list[np.ndarray]
    moving: list[np.ndarray]
    signed: bool = True


@dataclasses.dataclass(eq=False, slots=True)
class Term:
    """One block of one channel, both sides reshaped to one axis per index set."""

    block: Block
    reference: np.ndarray
    moving: np.ndarray
    signed: bool

    @property
    def sides(self) -> tuple[str, ...]:
        return self.block.sides


def inner_product(a: np.ndarray, b: np.ndarray) -> float:
    """The inner product in double precision, without BLAS: its threads cost more than the sum."""
    return float(np.einsum("i,i->", a.ravel(), b.ravel(), dtype=np.float64))


def take(
    b: np.ndarray, permutation: np.ndarray, signs: np.ndarray | None, at: np.ndarray
) -> np.ndarray:
    taken = b[:, permutation[at]]
    return taken if signs is None else taken * signs[at][None, :, None].astype(b.dtype)


def take_all(
    array: np.ndarray,
    axis: int,
    permutation: np.ndarray,
    signs: np.ndarray | None = None,
    room: np.ndarray | None = None,
) -> np.ndarray:
    """An array permuted along one axis, in `room` if given, and flipped; itself if none moves."""
    taken = array
    if not (permutation == np.arange(len(permutation))).all():
        # "clip" as "raise" would go over a copy.
        taken = np.take(array, permutation, axis, out=room, mode="clip")
    if signs is None:
        return taken
    return taken * spread(signs, [axis], array.ndim).astype(array.dtype)


def two_sided(array: np.ndarray, axis: int, other: int) -> np.ndarray:
    moved = np.moveaxis(array, (axis, other), (0, 1))
    return moved.reshape(*moved.shape[:2], -1)


def flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(array.shape[0], -1)


def front(array: np.ndarray, parents: list[int], axis: int) -> np.ndarray:
    """[parents flattened, units, everything else]."""
    moved = np.moveaxis(array, [*parents, axis], range(len(parents) + 1))
    copies = math.prod(moved.shape[: len(parents)])
    return moved.reshape(copies, array.shape[axis], -1)


def spread(values: np.ndarray, places: list[int] | tuple[int, ...], ndim: int) -> np.ndarray:
    order = np.argsort(places)
    shape = [1] * ndim
    for i in places:
        shape[i] = -1
    laid = values.transpose(order)
    return laid.reshape([n if s == -1 else 1 for s, n in _sizes(shape, laid.shape)])


def _sizes(shape: list[int], sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    following = iter(sizes)
    return [(s, next(following) if s == -1 else 1) for s in shape]
