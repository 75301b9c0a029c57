"""Networks that take bytes: inputs are scaled inside, so that data stay small on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.nets.net import Net, net_of
from onebasin.nets.state import is_trained_apart


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
    if max(shift.ndim, scale.ndim) > 1:
        raise ValueError(
            f"got mean of shape {shift.shape} and std of shape {scale.shape}, expected a "
            "number, or one for each entry of the last axis"
        )
    whole, scaling = net_of(net), _Scaling(_plain(shift), _plain(scale))
    return Net(_ScaledInit(whole.init, scaling), _ScaledApply(whole.apply, scaling))


def _plain(array: np.ndarray) -> Any:
    return tuple(array.tolist()) if array.ndim else array.item()


@dataclasses.dataclass(frozen=True)
class _Scaling:
    mean: Any
    std: Any

    def __call__(self, inputs: Any) -> jax.Array:
        shift, scale = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        return (jnp.asarray(inputs).astype(jnp.float32) - shift) / scale


@dataclasses.dataclass(frozen=True)
class _ScaledInit:
    init: Callable[..., Any]
    scaling: _Scaling

    def __call__(self, key: jax.Array, inputs: Any) -> Any:
        return self.init(key, self.scaling(inputs))


@dataclasses.dataclass(frozen=True)
class _ScaledApply:
    apply: Callable[..., Any]
    scaling: _Scaling

    @property
    def takes_train(self) -> bool:
        return is_trained_apart(self.apply)

    def __call__(self, params: Any, inputs: Any, **kwargs: Any) -> Any:
        return self.apply(params, self.scaling(inputs), **kwargs)
