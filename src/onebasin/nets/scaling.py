"""Networks that take bytes: inputs are scaled inside, so that data stay small on the device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from onebasin.nets.net import Net, net_of


def scale_inputs(
    net: Net, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0
) -> Net:
    """The network on inputs that are shifted and scaled first: (inputs - mean) / std.

    Bytes become floating point inside: a data set of bytes takes a quarter of the memory, and what
    predicts later scales its inputs alike.

    Args:
        net: The network, a `Net` or a plain pair (init, apply) of functions.
        mean: To be taken away, one number or one for each entry of the last axis.
        std: To be divided by, likewise.

    Returns:
        A `Net` with the same parameters.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.scale_inputs(nets.mlp((4,), 2), mean=127.5, std=63.75)
        >>> images = jnp.arange(12, dtype=jnp.uint8).reshape(2, 6)
        >>> net.apply(net.init(jax.random.key(0), images), images).shape
        (2, 2)
    """
    shift, scale = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    if not np.all(np.isfinite(shift)) or not np.all(np.isfinite(scale)) or np.any(scale <= 0):
        raise ValueError(f"got mean={mean} and std={std}, expected finite numbers and positive std")
    whole = net_of(net)

    def scaled(inputs: Any) -> Any:
        return (jnp.asarray(inputs, jnp.float32) - shift) / scale

    @functools.wraps(whole.apply)
    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return whole.apply(params, scaled(inputs), **kwargs)

    return Net(lambda key, inputs: whole.init(key, scaled(inputs)), apply)
