"""Values that are held in another order than PyTorch's, as long as nobody looks at the whole.

PyTorch's images are (example, channel, height, width), and XLA's convolutions on CPUs want channels
last in memory. A convolution leaves its result in that order, and what follows works on it there as
long as it can: moving the axes back and forth between layers would cost more than the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from onebasin.torch.table import FAMILIES, Rule

ELEMENTWISE = ("activation", "elementwise")
# By the rule itself, so that an operator with a new rule loses the old shortcut.
SHORTCUTS: dict[Any, Rule] = {}
# What is done with values of a kind, by the name of the operator; it may decline.
KINDS: dict[type[Held], Callable[[str, Rule, list[Any], dict[str, Any]], Any]] = {}


class Held:
    """A value that counts as `whole()`.

    Args:
        array: What is held in its place.
    """

    def __init__(self, array: Any):
        self.array = array

    def whole(self) -> Any:
        """The array in PyTorch's order."""
        return self.array

    def each(self, function: Callable[[Any], Any]) -> Any:
        """The same after a change of every entry by itself."""
        return type(self)(function(self.array))


class ChannelsLast(Held):
    """An array (example, ..., channel) that counts as (example, channel, ...).

    Args:
        array: In the order in which it lies in memory.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        first, *space, channels = self.array.shape
        return (first, channels, *space)

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def whole(self) -> Any:
        """The array in PyTorch's order."""
        return jnp.moveaxis(self.array, -1, 1)

    def axis(self, axis: int) -> int:
        """Where one of PyTorch's axes lies."""
        axis %= self.ndim
        return axis if axis == 0 else self.ndim - 1 if axis == 1 else axis - 1


def channels_last(x: Any) -> Any:
    """The array of an image, channels last, however it is given."""
    return x.array if isinstance(x, ChannelsLast) else jnp.moveaxis(x, 1, -1)


def shortcut(*rules: Any) -> Callable[[Rule], Rule]:
    """Enters what a rule does with channels last; it may decline with `NotImplemented`."""

    def enter(short: Rule) -> Rule:
        SHORTCUTS.update(dict.fromkeys(rules, short))
        return short

    return enter


def apply(name: str, rule: Rule, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Calls a rule, on what is held if it can."""
    held = {type(x) for x in _flat([*args, *kwargs.values()]) if isinstance(x, Held)}
    for kind in KINDS:
        if kind in held:
            result = KINDS[kind](name, rule, args, kwargs)
            if result is not NotImplemented:
                return result
    args = [whole(x) for x in args]
    return rule(*args, **{key: whole(x) for key, x in kwargs.items()})


def _short(name: str, rule: Rule, args: list[Any], kwargs: dict[str, Any]) -> Any:
    args = [_others_whole(x) for x in args]
    kwargs = {key: _others_whole(x) for key, x in kwargs.items()}
    if rule in SHORTCUTS:
        return SHORTCUTS[rule](*args, **kwargs)
    if family_of(name) in ELEMENTWISE:
        return _entry_by_entry(rule, args, kwargs)
    return NotImplemented


KINDS[ChannelsLast] = _short


def family_of(name: str) -> str | None:
    """The family of an operator, by its own name or that of all overloads."""
    return FAMILIES.get(name) or FAMILIES.get(name.rpartition(".")[0])


def _entry_by_entry(rule: Rule, args: list[Any], kwargs: dict[str, Any]) -> Any:
    ndim = next(x.ndim for x in args if isinstance(x, ChannelsLast))
    moved = []
    for x in args:
        if jnp.ndim(getattr(x, "array", x)) not in (0, ndim) or isinstance(x, list):
            return NotImplemented
        plain = not isinstance(x, ChannelsLast) and jnp.ndim(x) == 0
        moved.append(x if plain else channels_last(x))
    return ChannelsLast(rule(*moved, **kwargs))


def whole(value: Any) -> Any:
    """Values in PyTorch's order and in one piece, lists included."""
    if isinstance(value, list):
        return [whole(x) for x in value]
    return value.whole() if hasattr(value, "whole") else value


def _others_whole(value: Any) -> Any:
    if isinstance(value, list):
        return [_others_whole(x) for x in value]
    return value if isinstance(value, ChannelsLast) else whole(value)


def _flat(values: list[Any]) -> list[Any]:
    return [y for x in values for y in (_flat(x) if isinstance(x, list) else [x])]
