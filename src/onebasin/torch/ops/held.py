"""Rows that are sorted by a group, worked on, and put back: held in the order that they came in.

Mixtures of experts sort their tokens by expert, so that the tokens of one lie together for a
grouped product, and undo that at the end. What is done in between is done to each row by itself,
so that the order makes no difference: here it is done to rows in the order that they came in,
where each says which group is its own. Whoever looks at the order gets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from onebasin.torch.ops.layout import ELEMENTWISE, KINDS, Held, family_of
from onebasin.torch.table import Rule


class Order:
    """A stable order of rows by group.

    Args:
        groups: The group of each row, in the order that rows came in.
    """

    def __init__(self, groups: Any):
        self.groups = groups
        self.rows = jnp.arange(groups.shape[0])

    def places(self) -> Any:
        """Which row comes first, second, ..."""
        return jnp.argsort(self.groups)


class Sorted(Held):
    """Rows that count as being sorted, held as they came.

    Args:
        array: The rows as they came.
        order: How they count as being sorted.
        what: "groups" or "rows" if they are those of the order, and no function of them.
    """

    def __init__(self, array: Any, order: Order, what: str = ""):
        super().__init__(array)
        self.order, self.what = order, what

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def whole(self) -> Any:
        return self.array[self.order.places()]

    def each(self, function: Callable[[Any], Any]) -> Sorted:
        return Sorted(function(self.array), self.order, self.what)


class Counting(Held):
    """The numbers 0, 1, 2, ..."""


class Counts(Held):
    """How many rows each group has, or, as `ends`, how many it has with all groups before it."""

    def __init__(self, array: Any, order: Order, ends: bool = False):
        super().__init__(array)
        self.order, self.ends = order, ends

    def each(self, function: Callable[[Any], Any]) -> Counts:
        return Counts(function(self.array), self.order, self.ends)


class Back(Held):
    """Where each row went: looking up sorted rows there puts them back."""

    def __init__(self, array: Any, order: Order):
        super().__init__(array)
        self.order = order

    def whole(self) -> Any:
        return jnp.argsort(self.order.places()).astype(self.array.dtype)

    def each(self, function: Callable[[Any], Any]) -> Back:
        return Back(function(self.array), self.order)


def is_groups(x: Any) -> bool:
    """Whether something may be the groups of rows."""
    return x.ndim == 1 and bool(jnp.issubdtype(x.dtype, jnp.integer))


def by_group(groups: Any) -> tuple[Sorted, Sorted]:
    """The sorted groups of rows, and the rows in that order."""
    order = Order(groups)
    return Sorted(groups, order, "groups"), Sorted(order.rows, order, "rows")


# What is done with sorted rows by rules that look at more than one; it may decline.
SPECIAL: dict[Any, Rule] = {}
# The argument that names the axis that they work along or put in; rows stay apart along others.
_ALONG = {
    **dict.fromkeys(("unsqueeze", "squeeze", "slice", "select", "narrow", "unbind"), 1),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "glu", "unflatten"), 1),
    **dict.fromkeys(("chunk", "split", "split_with_sizes", "tensor_split"), 2),
}
# Operators that leave every entry what it is.
_SAME = ("clone", "contiguous", "alias", "detach", "dropout", "to", "_to_copy")
# Products of rows with a matrix that is the second argument.
_PRODUCTS = ("linear", "matmul", "mm")


def _row_by_row(name: str, rule: Rule, args: list[Any], kwargs: dict[str, Any]) -> Any:
    own = name.split(".")[1]
    if rule in SPECIAL:
        return SPECIAL[rule](*args, **kwargs)
    if not _alike(own, name, args, kwargs):
        return NotImplemented
    order = next(x.order for x in args if isinstance(x, Sorted))
    what = args[0].what if own in _SAME else ""
    result = rule(*(x.array if isinstance(x, Sorted) else x for x in args), **kwargs)
    if isinstance(result, list | tuple):
        return [Sorted(x, order) for x in result]
    return Sorted(result, order, what)


def _alike(own: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether an operator does the same to each row, whatever the others are."""
    found = [x for x in args if isinstance(x, Sorted)]
    named = "dim" in kwargs or any(jnp.ndim(getattr(x, "array", x)) for x in kwargs.values())
    if not found or len({id(x.order) for x in found}) > 1 or named:
        return False
    rank, first = found[0].ndim, args[0] is found[0]
    if own in _SAME:
        return first and len(found) == 1
    if own in _ALONG:
        after = rank + (own == "unsqueeze")
        axis = args[_ALONG[own]] if len(args) > _ALONG[own] else 0
        return first and isinstance(axis, int) and axis % after != 0
    if own in _PRODUCTS:
        plain = not any(isinstance(x, Held) for x in args[1:])
        return first and rank > 1 and plain and args[1].ndim == 2
    return family_of(name) in ELEMENTWISE and all(_fits(x, rank) for x in args)


def _fits(x: Any, rank: int) -> bool:
    """Whether an operand has the rows of another, or is the same for all of them."""
    if isinstance(x, Sorted):
        return x.ndim == rank
    shape: tuple[int, ...] = getattr(x, "shape", ())
    return not isinstance(x, Held | list) and (len(shape) < rank or shape[0] == 1)


for kind in (Sorted, Counts, Back):
    KINDS[kind] = _row_by_row
