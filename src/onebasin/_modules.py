"""PyTorch modules and tensors, where functions, parameters and arrays are asked for."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def takes_modules(function: Callable[P, R]) -> Callable[P, R]:
    """A public function that converts what PyTorch made, and is itself for all else.

    A module stands for its function where an `apply_fn` is asked for, converted with `inputs` or
    the inputs of `train` as its example, and for its parameters everywhere else; a state dict
    stands for its floating-point entries, a tensor for its array.

    Args:
        function: Takes a function by the name `apply_fn`, and a group by the name `symmetry`, if
            it takes them.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        # Without PyTorch in memory there is nothing of it among the arguments.
        if "torch" not in sys.modules or not _any_torch((args, kwargs)):
            return function(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        _convert(bound.arguments)
        return function(*bound.args, **bound.kwargs)

    # Where it is found by this name, for pickle.
    wrapped.__module__ = "onebasin"
    return wrapped


def _any_torch(tree: Any) -> bool:
    try:
        leaves = jax.tree.leaves(tree)
    except (TypeError, ValueError):
        # What is no tree is for the function itself to refuse.
        return False
    return any(_is_tensor(x) or _is_module(x) for x in leaves)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor)


def _is_module(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].nn.Module)


def _convert(arguments: dict[str, Any]) -> None:
    """Converts arguments by name, in place."""
    names: set[str] | None = None
    own: dict[str, Any] = {}
    if arguments.get("symmetry") is not None:
        names = {leaf.path for leaf in arguments["symmetry"].leaves}
    module = arguments.get("apply_fn")
    if _is_module(module):
        from onebasin.torch import from_torch

        inputs = arguments["train"][0] if "train" in arguments else arguments.get("inputs")
        net, own = from_torch(module, inputs)
        arguments["apply_fn"], names = net.apply, names or set(own)
        if "params" in arguments and arguments["params"] is None:
            arguments["params"] = own
    for name, value in arguments.items():
        if own and value is module:
            arguments[name] = own
        elif _is_module(value) or _is_state(value):
            arguments[name] = _params(value, names)
        elif name != "symmetry":
            arguments[name] = jax.tree.map(_array, value)


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(map(_is_tensor, value.values()))


def _params(value: Any, names: set[str] | None) -> dict[str, Any]:
    from onebasin.torch.state import read_params, read_state

    found = read_params(value) if _is_module(value) else read_state(value)
    return {name: x for name, x in found.items() if names is None or name in names}


def _array(leaf: Any) -> Any:
    from onebasin.torch.modules import check_tensor
    from onebasin.torch.tensors import to_numpy

    if not _is_tensor(leaf):
        return leaf
    check_tensor(leaf, "an argument")
    return to_numpy(leaf)
