"""What the Flax networks of this room share."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import jax

from onebasin.nets._flax import nn
from onebasin.nets.net import Net

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

    def init(key: Array, inputs: Array) -> Any:
        variables = module.init(key, inputs)
        return variables["params"] if set(variables) == {"params"} else dict(variables)

    def apply(params: Any, inputs: Array) -> Any:
        stateful = isinstance(params, Mapping) and "batch_stats" in params
        return module.apply(params if stateful else {"params": params}, inputs)

    return Net(init, apply)


max_pool = functools.partial(nn.max_pool, padding="VALID")
avg_pool = functools.partial(nn.avg_pool, padding="VALID")
