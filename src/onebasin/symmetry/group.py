"""The symmetry group of a model: its factors, its elements and how they act on parameters."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry import elements, saved, table
from onebasin.symmetry.elements import Element, check_element, check_shapes
from onebasin.symmetry.errors import SymmetryError
from onebasin.symmetry.factors import KINDS, Leaf
from onebasin.symmetry.factors import Factor as Factor
from onebasin.symmetry.host import each, from_host, handed_over, on_host, to_host
from onebasin.symmetry.keys import check_key


@dataclasses.dataclass(frozen=True, eq=False)
class Symmetry:
    """The group of weight changes that leave a model's function alone.

    Made by `onebasin.discover`. Elements act on any pytree with the model's parameters; all methods
    can be used under `jax.jit` and `jax.vmap`.
    """

    factors: tuple[Factor, ...]
    leaves: tuple[Leaf, ...]
    sizes: Mapping[str, int]
    parents: Mapping[str, tuple[str, ...]]
    dimensions: tuple[int, int]
    unused: tuple[str, ...] = ()

    @functools.cached_property
    def permutable(self) -> frozenset[str]:
        return frozenset(f.name for f in self.factors if "permutation" in f.kinds)

    @functools.cached_property
    def _by_name(self) -> dict[str, Factor]:
        return {factor.name: factor for factor in self.factors}

    def factor(self, name: str) -> Factor:
        """The factor of that name."""
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(self._by_name) or "none"
            raise KeyError(f"no factor is called {name!r}; there are: {known}") from None

    def log_copies(self) -> float:
        """Natural log of the number of discrete copies of a mode: all permutations and signs."""
        permutations = sum(
            elements.log_order(f.size, f.copies) for f in self.factors if "permutation" in f.kinds
        )
        return permutations + self.dimensions[1] * math.log(2)

    def scaling_dimension(self) -> int:
        """Dimension of the orbit that positive rescalings sweep out."""
        return self.dimensions[0]

    def identity(self, xp: Any = jnp) -> Element:
        """The element that changes nothing, made with the array functions of `xp`."""
        permutations, log_scales, signs = {}, {}, {}
        for f in self.factors:
            shape = self._shape(f)
            if "permutation" in f.kinds:
                permutations[f.name] = xp.broadcast_to(xp.arange(f.size), shape)
            if f.scalings:
                log_scales[f.name] = xp.zeros((*shape, f.scalings))
            if f.signs:
                signs[f.name] = xp.ones((*shape, f.signs), xp.int8)
        return Element(permutations, log_scales, signs)

    def random(
        self, key: jax.Array, kinds: Collection[str] = KINDS, *, spread: float = 0.5
    ) -> Element:
        """A random element: uniform permutations and signs, log-scales normal with std `spread`.

        Args:
            key: A JAX random key.
            kinds: Which kinds of change to draw; the others stay at the identity.
            spread: Standard deviation of the log-scales.
        """
        check_key(key)
        unknown = set(kinds) - set(KINDS)
        if unknown or isinstance(kinds, str):
            raise ValueError(f"kinds are a collection of {', '.join(KINDS)}; got {kinds!r}")
        count = sum(math.prod(self._shape(f)) * (1 + f.scalings + f.signs) for f in self.factors)
        # One draw for all, of a length that groups share, so that little is compiled.
        noise: Any = jax.random.normal(key, (1 << max(count, 1).bit_length(),))
        xp: Any = jnp
        if on_host(noise):
            xp, noise = np, np.asarray(noise)
        found = self._element(noise, kinds, spread, xp)
        return from_host(found) if xp is np else found

    def _element(self, noise: Any, kinds: Collection[str], spread: float, xp: Any) -> Element:
        """An element made of independent normal numbers."""
        permutations, log_scales, signs = self.identity(xp)
        used = 0

        def take(shape: tuple[int, ...]) -> Any:
            nonlocal used
            used += math.prod(shape)
            return noise[used - math.prod(shape) : used].reshape(shape)

        for f in self.factors:
            shape = self._shape(f)
            own, scales, flips = take(shape), take((*shape, f.scalings)), take((*shape, f.signs))
            if "permutation" in kinds and f.name in permutations:
                permutations[f.name] = xp.argsort(own, axis=-1)
            if "scaling" in kinds and f.scalings:
                log_scales[f.name] = spread * scales
            if "sign" in kinds and f.signs:
                signs[f.name] = xp.where(flips < 0, -1, 1).astype(xp.int8)
        return Element(permutations, log_scales, signs)

    def _shape(self, factor: Factor) -> tuple[int, ...]:
        return tuple(self.sizes[name] for name in factor.index)

    @functools.cached_property
    def element_shapes(self) -> Element:
        """The shapes that the arrays of an element have."""
        return Element(*(jax.tree.map(np.shape, kind) for kind in self.identity(np)))

    def compose(self, g: Element, h: Element) -> Element:
        """The element that acts as `h` first, then `g`."""
        check_shapes(self, g)
        check_shapes(self, h)
        if on_host(g, h):
            return from_host(elements.compose(self, to_host(g), to_host(h), np))
        return self._compose(g, h)

    @functools.cached_property
    def _compose(self) -> Any:
        return jax.jit(functools.partial(elements.compose, self))

    def inverse(self, g: Element) -> Element:
        """The element that undoes `g`."""
        check_shapes(self, g)
        if on_host(g):
            return from_host(elements.inverse(self, to_host(g), np))
        return self._inverse(g)

    @functools.cached_property
    def _inverse(self) -> Any:
        return jax.jit(functools.partial(elements.inverse, self))

    def act(self, g: Element, params: Any) -> Any:
        """Moves parameters, or each of stacked ones, by `g`.

        In NumPy where they are on the host, compiled elsewhere. Stacked parameters have one more
        axis in front of every leaf, the axis of the draws.
        """
        check_shapes(self, g)
        if num_stacked(self, params):
            return self._act_on_each(g, params)
        leaves, structure = self.flatten(params)
        if on_host(g, leaves):
            moved = from_host(self.act_on_leaves(to_host(g), to_host(leaves), np))
        else:
            moved = self._act(g, leaves)
        return jax.tree.unflatten(structure, moved)

    @functools.cached_property
    def _act(self) -> Any:
        return jax.jit(lambda g, leaves: self.act_on_leaves(g, leaves, jnp))

    def _act_on_each(self, g: Element, stacked: Any) -> Any:
        leaves, structure = jax.tree.flatten(stacked)
        if on_host(g, leaves):
            act = each(functools.partial(self.act_on_leaves, to_host(g), xp=np), np)
            moved = handed_over(act(to_host(leaves)))
        else:
            moved = self._act_on_stack(g, leaves)
        return jax.tree.unflatten(structure, moved)

    @functools.cached_property
    def _act_on_stack(self) -> Any:
        return jax.jit(jax.vmap(lambda g, leaves: self.act_on_leaves(g, leaves, jnp), (None, 0)))

    def act_many(self, elements: Element, stacked: Any) -> Any:
        """Moves stacked parameters, one element per draw."""

        def one(x: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(x.shape[1:], x.dtype)

        check_element(elements)
        check_shapes(self, jax.tree.map(one, elements))
        shapes = jax.tree.map(one, stacked)
        _, structure = self.flatten(shapes)
        leaves = jax.tree.leaves(stacked)
        if on_host(elements, leaves):
            act = each(functools.partial(self.act_on_leaves, xp=np), np)
            moved = handed_over(act(to_host(elements), to_host(leaves)))
        else:
            moved = self._act_many(elements, leaves)
        return jax.tree.unflatten(structure, moved)

    @functools.cached_property
    def _act_many(self) -> Any:
        return jax.jit(jax.vmap(lambda g, leaves: self.act_on_leaves(g, leaves, jnp)))

    def act_on_leaves(self, g: Element, leaves: list[Any], xp: Any = jnp) -> list[Any]:
        """The action on the flat list of leaves, with the array functions of `xp`."""
        return [
            elements.act_on_leaf(self, g, array, leaf.blocks, xp)
            for leaf, array in zip(self.leaves, leaves, strict=True)
        ]

    def flatten(self, params: Any) -> tuple[list[Any], Any]:
        """The leaves of a parameter tree, after checking that it is this model's."""
        found, structure = jax.tree_util.tree_flatten_with_path(params)
        paths = [path_name(path) for path, _ in found]
        expected = [leaf.path for leaf in self.leaves]
        if paths != expected:
            extra = next((p for p in paths if p not in expected), None)
            missing = next((p for p in expected if p not in paths), None)
            odd = f"{extra!r} is not one of its leaves" if extra else f"{missing!r} is missing"
            if sorted(paths) == sorted(expected):
                odd = "they stand in another order, for which dict(params) will do"
            raise SymmetryError(
                f"these parameters are not of the model that the symmetry was found for: {odd}; "
                f"expected {len(expected)} leaves, {_some(expected)}"
            )
        arrays = [array for _, array in found]
        for leaf, array in zip(self.leaves, arrays, strict=True):
            if tuple(np.shape(array)) != leaf.shape:
                hint = "these parameters are not of the model that the symmetry was found for"
                if np.ndim(array) and np.shape(array)[1:] == leaf.shape:
                    hint = "stacked draws have one more axis in front of every parameter, all alike"
                raise SymmetryError(
                    f"parameter {leaf.path!r} has shape {tuple(np.shape(array))}, expected "
                    f"{leaf.shape}; {hint}"
                )
        return arrays, structure

    def to_json(self) -> str:
        """The group as JSON text, with a checksum; `from_json` reads it back."""
        return saved.write(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Symmetry:
        """Reads what `to_json` wrote.

        Text without a checksum, as older versions wrote it, is read with a warning.

        Raises:
            SymmetryError: If it was changed, or is something else.
        """
        return cls(**saved.read(text))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the group to a JSON file in one step, so that a file of that name is never lost.

        Args:
            path: The file; `Symmetry.load` reads it back.
        """
        saved.save(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Symmetry:
        """Reads a group from a JSON file that `save` wrote, as `from_json` does."""
        return cls(**saved.load(path))

    def __str__(self) -> str:
        return table.render(self)

    def __repr__(self) -> str:
        return (
            f"Symmetry({len(self.factors)} factors, log_copies={self.log_copies():.1f}, "
            f"scaling_dimension={self.scaling_dimension()})"
        )


def _some(names: list[str]) -> str:
    """A few names, for a message."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def num_stacked(symmetry: Symmetry, params: Any) -> int | None:
    """The number of draws, if these are stacked parameters of the model; else None."""
    leaves = jax.tree.leaves(params)
    expected = symmetry.leaves
    # Most are not stacked, which the first leaf tells; names take longer.
    if not leaves or not expected or np.ndim(leaves[0]) != len(expected[0].shape) + 1:
        return None
    count = np.shape(leaves[0])[:1]
    found = jax.tree_util.tree_leaves_with_path(params)
    shapes = [(path_name(path), tuple(np.shape(array))) for path, array in found]
    if shapes != [(leaf.path, (*count, *leaf.shape)) for leaf in expected]:
        return None
    return int(count[0])


def path_name(path: tuple[Any, ...]) -> str:
    """A tree path as people write it: Dense_0/kernel."""
    return jax.tree_util.keystr(path, simple=True, separator="/")
