"""Group elements, their laws and their action, written once for NumPy and for JAX.

An element holds, per factor, a permutation [parents.., n], log-scales [parents.., n, k] and signs
[parents.., n, m]. Acting puts at index i what stood at permutation[i], times its scale and sign;
where a factor depends on parents, the permutation is read at the parents' new indices.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from onebasin.symmetry.keys import described

if TYPE_CHECKING:
    from onebasin.symmetry.group import Symmetry


class Element(NamedTuple):
    """One element of a symmetry group: arrays by factor name, a pytree like any other.

    Where a factor has no array of a kind, the element does nothing of that kind to it.
    """

    permutations: dict[str, Any]
    log_scales: dict[str, Any]
    signs: dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Weighting:
    """Generator `generator` of `factor` acts on a block with the given exponent.

    `places` are the positions of the factor's index sets among the block's sides.
    """

    factor: str
    generator: int
    places: tuple[int, ...]
    exponent: float


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A box of a parameter: where it lies, the index sets of its sides, and what acts on it.

    Along each axis the box is a range (start, stop), or the positions listed in `picks` where an
    index set is interleaved with others, or stands in another order. Reshaped to `shape` it has one
    axis per side.
    """

    ranges: tuple[tuple[int, int], ...]
    picks: tuple[tuple[int, ...] | None, ...]
    sides: tuple[str, ...]
    shape: tuple[int, ...]
    scalings: tuple[Weighting, ...] = ()
    signs: tuple[Weighting, ...] = ()

    @property
    def lengths(self) -> list[int]:
        """How long the box is along each axis."""
        return [
            stop - start if pick is None else len(pick)
            for (start, stop), pick in zip(self.ranges, self.picks, strict=True)
        ]

    def sides_of_axes(self) -> list[list[int]]:
        """Which sides make up each axis."""
        found: list[list[int]] = []
        sides = iter(range(len(self.shape)))
        for length in self.lengths:
            own: list[int] = []
            while math.prod(self.shape[side] for side in own) < length:
                own.append(next(sides))
            found.append(own)
        return found

    def at(self) -> tuple[Any, ...]:
        """The index that takes the box out of its parameter."""
        if all(pick is None for pick in self.picks):
            return tuple(slice(*r) for r in self.ranges)
        return np.ix_(
            *(
                np.arange(*r) if pick is None else np.asarray(pick)
                for r, pick in zip(self.ranges, self.picks, strict=True)
            )
        )


def check_element(g: Any) -> None:
    """Refuses anything but an element, or stacked ones, where these are expected."""
    if not isinstance(g, Element):
        hint = ": pass its .element" if hasattr(g, "element") else ""
        raise TypeError(
            f"got {described(g)}, expected an element of the group, such as symmetry.random(key) "
            f"or what onebasin.align found{hint}"
        )


def check_shapes(sym: Symmetry, g: Element) -> None:
    """Refuses elements of other groups, and stacks of elements, by the shapes of their arrays."""
    check_element(g)
    for kind, values, expected in zip(Element._fields, g, sym.element_shapes, strict=True):
        for name, value in values.items():
            if np.shape(value) != expected.get(name):
                what = f"the {kind.replace('_', '-')} of factor {name!r}"
                raise ValueError(f"{what} {_what_is_odd(sym, name, value, expected)}")


def _what_is_odd(sym: Symmetry, name: str, value: Any, expected: dict[str, Any]) -> str:
    shape = np.shape(value)
    if name not in expected:
        names = [factor.name for factor in sym.factors]
        own = "that factor has none" if name in names else f"its factors: {', '.join(names)}"
        return f"are not of this group ({own}): the element is of another group"
    if shape[1:] == expected[name]:
        return (
            f"are those of {shape[0]} stacked elements, expected one: use symmetry.act_many, or "
            "jax.vmap"
        )
    return f"have shape {shape}, expected {expected[name]}: the element is of another group"


def source_index(sym: Symmetry, element: Element, index: tuple[str, ...], xp: Any = jnp) -> tuple:
    """For every joint index of `index`, where its content comes from, one array per index set."""
    sizes = [sym.sizes[name] for name in index]
    grids = {
        name: xp.arange(n).reshape([-1 if i == j else 1 for j in range(len(index))])
        for i, (name, n) in enumerate(zip(index, sizes, strict=True))
    }
    found = []
    for name in index:
        permutation = element.permutations.get(name)
        if permutation is None:
            found.append(grids[name])
        else:
            at = tuple(grids[parent] for parent in sym.parents[name])
            found.append(permutation[(*at, grids[name])])
    return tuple(found)


def compose(sym: Symmetry, g: Element, h: Element, xp: Any = jnp) -> Element:
    """The element that acts as h first, then g."""
    permutations = {}
    for name, permutation in h.permutations.items():
        *at, own = source_index(sym, g, (*sym.parents[name], name), xp)
        permutations[name] = permutation[(*at, own)]
    log_scales = {
        name: g.log_scales[name] + values[source_index(sym, g, sym.factor(name).index, xp)]
        for name, values in h.log_scales.items()
    }
    signs = {
        name: g.signs[name] * values[source_index(sym, g, sym.factor(name).index, xp)]
        for name, values in h.signs.items()
    }
    return Element(permutations, log_scales, signs)


def inverse(sym: Symmetry, g: Element, xp: Any = jnp) -> Element:
    """The element that undoes g."""
    permutations = {}
    for name in g.permutations:
        back = _inverse_flat(sym, g, (*sym.parents[name], name), xp)
        permutations[name] = (back % sym.sizes[name]).astype(g.permutations[name].dtype)

    def pull(name: str, values: Any) -> Any:
        index = sym.factor(name).index
        back = _inverse_flat(sym, g, index, xp)
        shape = back.shape
        return values.reshape(-1, values.shape[-1])[back.ravel()].reshape(*shape, -1)

    log_scales = {name: -pull(name, values) for name, values in g.log_scales.items()}
    signs = {name: pull(name, values) for name, values in g.signs.items()}
    return Element(permutations, log_scales, signs)


def _inverse_flat(sym: Symmetry, g: Element, index: tuple[str, ...], xp: Any) -> Any:
    shape = tuple(sym.sizes[name] for name in index)
    flat = xp.zeros(shape, xp.int32)
    for source, n in zip(source_index(sym, g, index, xp), shape, strict=True):
        flat = flat * n + source
    return xp.argsort(flat.ravel()).reshape(shape)


def act_on_leaf(
    sym: Symmetry, g: Element, leaf: Any, blocks: tuple[Block, ...], xp: Any = jnp
) -> Any:
    """The action on one parameter."""
    touched = [block for block in blocks if _touched(sym, block)]
    if len(blocks) == 1 and all(pick is None for pick in blocks[0].picks):
        return _act_on_block(sym, g, leaf, touched[0], xp) if touched else leaf
    moved = leaf.copy() if touched else leaf
    for block in touched:
        at = block.at()
        part = _act_on_block(sym, g, leaf[at], block, xp)
        if xp is jnp:
            moved = moved.at[at].set(part)
        else:
            moved[at] = part
    return moved


def _touched(sym: Symmetry, block: Block) -> bool:
    return bool(
        block.scalings or block.signs or any(name in sym.permutable for name in block.sides)
    )


def _act_on_block(sym: Symmetry, g: Element, leaf: Any, block: Block, xp: Any) -> Any:
    shape = leaf.shape
    leaf = leaf.reshape(block.shape)
    # Parents first: a child's permutation is read at its parents' new indices.
    order = sorted(range(len(block.sides)), key=lambda i: len(sym.parents[block.sides[i]]))
    for axis in order:
        name = block.sides[axis]
        if name not in g.permutations:
            continue
        permutation = g.permutations[name]
        if permutation.ndim == 1:
            leaf = xp.take(leaf, permutation, axis=axis)
        else:
            places = [*(block.sides.index(p) for p in sym.parents[name]), axis]
            leaf = xp.take_along_axis(leaf, _spread(permutation, places, leaf.ndim, xp), axis)
    scalings = [w for w in block.scalings if w.factor in g.log_scales]
    if scalings:
        # In the leaf's own precision from the first sum on, so that scales cancel in double.
        total = xp.zeros((1,) * leaf.ndim, leaf.dtype)
        for w in scalings:
            scale = g.log_scales[w.factor][..., w.generator].astype(leaf.dtype)
            total = total + leaf.dtype.type(w.exponent) * _spread(scale, w.places, leaf.ndim, xp)
        leaf = leaf * xp.exp(total)
    for w in (w for w in block.signs if w.factor in g.signs):
        sign = _spread(g.signs[w.factor][..., w.generator], w.places, leaf.ndim, xp)
        leaf = leaf * sign.astype(leaf.dtype)
    return leaf.reshape(shape)


def _spread(values: Any, places: Any, ndim: int, xp: Any) -> Any:
    """Lays the axes of `values` at the given places among `ndim` axes, all others of size 1."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    values = xp.transpose(values, order)
    shape = [1] * ndim
    for i, n in zip(sorted(places), values.shape, strict=True):
        shape[i] = n
    return values.reshape(shape)


def log_order(n: int, copies: int) -> float:
    """Log of the number of elements of copies independent permutations of n."""
    return copies * math.lgamma(n + 1)
