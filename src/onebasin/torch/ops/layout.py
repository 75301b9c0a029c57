"""Images whose channels lie last in memory, as XLA's convolutions on CPUs want them.

PyTorch's images are (example, channel, height, width). A convolution leaves its result in the other
order, and what follows works on it there as long as it can: moving the axes back and forth between
layers would cost more than the layers. Nothing of that is seen outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from onebasin.torch.table import FAMILIES, Rule

ELEMENTWISE = ("activation", "elementwise")
# By the rule itself, so that an operator with a new rule loses the old shortcut.
SHORTCUTS: dict[Any, Rule] = {}


class ChannelsLast:
    """An array (example, ..., channel) that counts as (example, channel, ...).

    Args:
        array: In the order in which it lies in memory.
    """

    def __init__(self, array: Any):
        self.array = array

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
    """Calls a rule, on channels that lie last if it can."""
    if any(isinstance(x, ChannelsLast) for x in _flat([*args, *kwargs.values()])):
        result = _short(name, rule, args, kwargs)
        if result is not NotImplemented:
            return result
    args = [whole(x) for x in args]
    return rule(*args, **{key: whole(x) for key, x in kwargs.items()})


def _short(name: str, rule: Rule, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if rule in SHORTCUTS:
        return SHORTCUTS[rule](*args, **kwargs)
    family = FAMILIES.get(name) or FAMILIES.get(name.rpartition(".")[0])
    if family in ELEMENTWISE:
        return _entry_by_entry(rule, args, kwargs)
    return NotImplemented


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


def _flat(values: list[Any]) -> list[Any]:
    return [y for x in values for y in (_flat(x) if isinstance(x, list) else [x])]
