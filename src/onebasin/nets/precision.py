"""Networks whose arithmetic is in half precision while their parameters stay in single."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.nets.net import Net, net_of
from onebasin.nets.state import is_trained_apart, join, split


@functools.lru_cache(maxsize=64)
def in_bfloat16(net: Net) -> Net:
    """The network with its products and activations in bfloat16.

    Parameters, and so their gradients and updates, keep the type that they have: this is for
    training where bytes, not products, take the time. Outputs are in single precision. The same
    network gives the same `Net`, so that programs that were compiled for it are found again.

    Args:
        net: The network, a `Net` or a plain pair (init, apply) of functions.

    Returns:
        A `Net` with the same parameters.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> net = nets.mlp(hidden=(4,), outputs=2)
        >>> params = net.init(jax.random.key(0), jnp.ones((1, 3)))
        >>> outputs = nets.in_bfloat16(net).apply(params, jnp.ones((1, 3)))
        >>> outputs.dtype, bool(jnp.allclose(outputs, net.apply(params, jnp.ones((1, 3))), 0.1))
        (dtype('float32'), True)
    """
    whole = net_of(net)
    return Net(whole.init, _InBfloat16(whole.apply))


@dataclasses.dataclass(frozen=True)
class _InBfloat16:
    apply: Callable[..., Any]

    @property
    def takes_train(self) -> bool:
        return is_trained_apart(self.apply)

    def __call__(self, params: Any, inputs: Any, **kwargs: Any) -> Any:
        # Running statistics are sums of many small steps, which half precision would lose.
        weights, state = split(params)
        half = join(_cast(weights, jnp.bfloat16), state)
        return _cast(self.apply(half, _cast(inputs, jnp.bfloat16), **kwargs), jnp.float32)


def _cast(tree: Any, dtype: Any) -> Any:
    """Floating point leaves in another type, the others as they are."""

    def cast(leaf: Any) -> Any:
        floating = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
        return jnp.asarray(leaf).astype(dtype) if floating else leaf

    return jax.tree.map(cast, tree)
