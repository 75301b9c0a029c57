"""A network as two functions."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Net:
    """A network: a function that makes its parameters, and the function that it computes.

    Args:
        init: `init(key, inputs) -> params`, where `params` is any pytree of arrays and only the
            shapes and types of `inputs` matter.
        apply: `apply(params, inputs) -> outputs`, where `outputs` are logits or means.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin.nets import Net
        >>> def init(key, inputs):
        ...     return jax.random.normal(key, (inputs.shape[-1], 3))
        >>> net = Net(init, lambda params, inputs: inputs @ params)
        >>> params = net.init(jax.random.key(0), jnp.ones((2, 5)))
        >>> net.apply(params, jnp.ones((2, 5))).shape
        (2, 3)
    """

    init: Callable[[jax.Array, Any], Any]
    apply: Callable[[Any, Any], Any]


def net_of(candidate: Any) -> Any:
    """A plain pair (init, apply) of functions as a `Net`; anything else as it is.

    Example:
        >>> from onebasin.nets.net import net_of
        >>> net_of((lambda key, x: 0.0, lambda w, x: w * x)).apply(2.0, 3.0)
        6.0
    """
    pair = isinstance(candidate, tuple | list) and len(candidate) == 2
    if pair and not is_net(candidate) and all(callable(part) for part in candidate):
        return Net(*candidate)
    return candidate


def is_net(candidate: Any) -> bool:
    """Whether something is a network: whatever has the two functions."""
    parts = (getattr(candidate, name, None) for name in ("init", "apply"))
    return all(callable(part) for part in parts)
