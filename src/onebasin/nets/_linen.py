"""What the Flax networks of this room share."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import jax

from onebasin.nets._flax import nn
from onebasin.nets.net import Net
from onebasin.nets.state import has_state, join

Array = jax.Array
Activation = Callable[[Array], Array]
Value = TypeVar("Value")

ACTIVATIONS: dict[str, Activation] = {
    "relu": nn.relu,
    "leaky_relu": nn.leaky_relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "silu": nn.silu,
    "softplus": nn.softplus,
    "tanh": nn.tanh,
    "sigmoid": nn.sigmoid,
}

he_normal = nn.initializers.he_normal()


def lookup(what: str, known: Mapping[Any, Value], name: object) -> Value:
    """Return `known[name]`, or say what is known."""
    if name not in list(known):
        raise ValueError(
            f"got {what}={name!r}, expected one of {', '.join(map(repr, known))}: "
            "choose one of these."
        )
    return known[name]


def sequence(**values: object) -> None:
    """Raise unless each argument is a sequence, and not one number."""
    for name, value in values.items():
        if not isinstance(value, Iterable):
            raise ValueError(f"got {name}={value!r}, expected a tuple such as ({value!r},).")


def positive(**values: object) -> None:
    """Raise unless each argument is a positive integer, or a sequence of them."""
    for name, value in values.items():
        several = isinstance(value, tuple | list)
        items = value if several else (value,)
        for item in items:  # type: ignore[attr-defined]
            if not isinstance(item, int) or isinstance(item, bool) or item < 1:
                raise ValueError(
                    f"got {name}={value!r}, expected "
                    f"{'positive integers' if several else 'a positive integer'}."
                )


def as_images(inputs: Array, net: str) -> Array:
    """Give grey images (batch, height, width) their channel axis."""
    if inputs.ndim == 3:
        return inputs[..., None]
    if inputs.ndim != 4:
        raise ValueError(
            f"{net} got inputs of shape {inputs.shape}, expected images of shape "
            "(batch, height, width, channels) or (batch, height, width): reshape them."
        )
    return inputs


def as_net(module: nn.Module) -> Net:
    """Wrap a Flax module: `params` alone where that is its only collection, else all of them."""
    return Net(_Init(module), _Apply(module))


# Objects and not closures, so that networks can be pickled and equal ones share programs.
@dataclasses.dataclass(frozen=True)
class _Init:
    module: nn.Module

    def __call__(self, key: Array, inputs: Array) -> Any:
        variables = self.module.init(key, inputs)
        return variables["params"] if set(variables) == {"params"} else dict(variables)


@dataclasses.dataclass(frozen=True)
class _Apply:
    module: nn.Module

    def __call__(self, params: Any, inputs: Array) -> Any:
        return self.module.apply(params if has_state(params) else {"params": params}, inputs)


def as_trained_net(module: Callable[[bool], nn.Module]) -> Net:
    """Wrap a Flax module that behaves otherwise while it is trained.

    Args:
        module: The module, given whether it is being trained.
    """
    still, training = module(False), module(True)
    return Net(_Init(still), _TrainedApply(still, training))


@dataclasses.dataclass(frozen=True)
class _TrainedApply:
    still: nn.Module
    training: nn.Module

    def __call__(
        self, params: Any, inputs: Array, *, state: Any = None, train: bool = False
    ) -> Any:
        variables = params if state is None else join(params, state)
        if not has_state(variables):
            raise ValueError(
                "the network has running statistics and got weights alone, expected "
                "{'params': ..., 'batch_stats': ...}, or state= beside the weights."
            )
        if not train:
            return self.still.apply(variables, inputs)
        return self.training.apply(variables, inputs, mutable=sorted(set(variables) - {"params"}))


max_pool = functools.partial(nn.max_pool, padding="VALID")
avg_pool = functools.partial(nn.avg_pool, padding="VALID")
