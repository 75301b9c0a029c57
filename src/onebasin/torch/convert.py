"""From a PyTorch module to a network of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.nets.net import Net
from onebasin.torch.check import check
from onebasin.torch.determinism import check_deterministic
from onebasin.torch.export import export
from onebasin.torch.interpreter import Interpreter
from onebasin.torch.modules import Call, check_module, unwrapped
from onebasin.torch.outputs import plainly
from onebasin.torch.state import entries, read_params


def from_torch(module: Any, inputs: Any) -> tuple[Net, dict[str, jax.Array]]:
    """A PyTorch module as a JAX function and its parameters.

    The module is exported, its operators are replaced by rules from one table, and the result is
    compared with the module on the example and on random numbers, in double precision where the
    module lets itself. The module must be in inference mode (`module.eval()`) if dropout or batch
    statistics make a difference; it is left as it is.

    Args:
        module: The module, on the CPU. Of one that is compiled (`torch.compile`) or runs in
            parallel (`DataParallel`) what it wraps is converted.
        inputs: An example of its inputs: a tensor or array, a tuple of positional arguments, or a
            dictionary of named ones. Their first axis may later be of any length, if the module
            lets itself be exported like that.

    Returns:
        The network and its parameters, which are floating-point parameters and buffers (running
        statistics too) by their state-dict names. Tied weights are there once, under the first
        name; buffers that are only compared with something (masks) or not used stay constant.
        `net.init(key, inputs)` fills each parameter with random picks from the entries that the
        module's has, and keeps buffers. Outputs come in dictionaries, lists and tuples, without
        the caches of language models.

    Raises:
        ConversionError: If the module cannot be converted, or the comparison fails; the message
            says what to do.

    Example:
        >>> import onebasin as ob
        >>> module = torch.nn.Linear(3, 2)  # doctest: +SKIP
        >>> net, params = ob.from_torch(module, torch.ones(1, 3))  # doctest: +SKIP
        >>> sorted(params)  # doctest: +SKIP
        ['bias', 'weight']
    """
    module = unwrapped(module)
    check_module(module)
    params = read_params(module)
    call = Call(inputs)
    with plainly(module):
        exported = export(module, call)
        check_deterministic(exported)
        interpreter = Interpreter(exported)
        check(module, call, interpreter)
    used = set(exported.params.values())
    trained = dict(module.named_parameters())
    buffers = frozenset(name for name in entries(module) if name not in trained)
    params = {name: x for name, x in params.items() if name in used or name not in buffers}

    def apply(params: Mapping[str, Any], inputs: Any) -> Any:
        return interpreter(params, call.leaves(inputs))

    def init(key: jax.Array, inputs: Any) -> dict[str, jax.Array]:
        keys = jax.random.split(key, len(params))
        return {
            name: x if name in buffers else _picked(k, x)
            for k, (name, x) in zip(keys, params.items(), strict=True)
        }

    return Net(init, apply), params


def _picked(key: jax.Array, x: jax.Array) -> jax.Array:
    """Entries drawn from those of an array: the distribution that the module started with."""
    if x.size == 0:
        return x
    return jnp.take(x.reshape(-1), jax.random.randint(key, x.shape, 0, x.size))
