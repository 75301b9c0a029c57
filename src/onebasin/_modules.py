"""PyTorch modules, tensors and networks, where functions, parameters and arrays are asked for."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import jax
import numpy as np

from onebasin.symmetry import Symmetry

P = ParamSpec("P")
R = TypeVar("R")

# What is asked of one network. Without parameters, the last two arguments are the other two.
ASKED = ("apply_fn", "params", "inputs")
# Arguments that hold data: a dictionary of tensors is one of named inputs there, no state dict.
DATA = frozenset({"inputs", "labels", "train", "test", "data"})
# Arguments that hold many networks.
MANY = frozenset({"draws", "posterior"})


class Discover(Protocol):
    """The two ways to call `discover`."""

    @overload
    def __call__(self, apply_fn: Any, params: Any, inputs: Any) -> Symmetry: ...
    @overload
    def __call__(self, apply_fn: Any, inputs: Any) -> Symmetry: ...


class Check(Protocol):
    """The two ways to call `check_symmetry`."""

    @overload
    def __call__(
        self, symmetry: Symmetry, apply_fn: Any, params: Any, inputs: Any, **options: Any
    ) -> float: ...
    @overload
    def __call__(self, symmetry: Symmetry, apply_fn: Any, inputs: Any, **options: Any) -> float: ...


def takes_modules(function: Callable[P, R], *, networks: bool = False) -> Callable[P, R]:
    """A public function that converts what PyTorch made, and is itself for all else.

    A module stands for its function where an `apply_fn` is asked for, converted with `inputs` or
    the inputs of `train` as its example, and for its parameters everywhere else; a state dict
    stands for its floating-point entries, a tensor for its array, and a list of modules or state
    dicts for draws.

    Args:
        function: Takes a function by the name `apply_fn`, and a group by the name `symmetry`, if
            it takes them.
        networks: Whether `apply_fn` may be a network too, and the parameters be left out where they
            are known: those of a module, or the shapes that a network's `init` gives.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        completed = _of_network(signature, args, kwargs) if networks else None
        # Without PyTorch in memory there is nothing of it among the arguments.
        modules = "torch" in sys.modules and _any_torch((args, kwargs))
        if completed is None and not modules:
            return function(*args, **kwargs)
        bound = completed or signature.bind(*args, **kwargs)
        if modules:
            _convert(bound.arguments)
        return function(*bound.args, **bound.kwargs)

    # Where it is found by this name, for pickle.
    wrapped.__module__ = "onebasin"
    return wrapped


def _of_network(
    signature: inspect.Signature, args: Any, kwargs: Any
) -> inspect.BoundArguments | None:
    """The arguments of a call that names a network or no parameters; None for all other calls."""
    try:
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError:
        return None
    given = bound.arguments
    missing = len(set(ASKED) - set(given))
    if "apply_fn" not in given or missing > 1 or not (missing or _may_be_net(given["apply_fn"])):
        return None
    if missing:
        given["inputs"] = given.pop("params") if "params" in given else given["inputs"]
    _understand(given)
    # In the order of the signature, without which they would be passed by name.
    bound.arguments = {name: given[name] for name in signature.parameters if name in given}
    return bound


def _may_be_net(value: Any) -> bool:
    """Whether it is worth a look; networks themselves take a while to import."""
    return isinstance(value, tuple | list) or (hasattr(value, "init") and hasattr(value, "apply"))


def _understand(given: dict[str, Any]) -> None:
    """Puts a network's function in its place, and the shapes of its parameters if there are none.

    Raises:
        TypeError: If it is a function, which says nothing of its parameters.
    """
    from onebasin.nets.net import is_net, net_of

    net = net_of(given["apply_fn"])
    if "torch" in sys.modules and _is_module(net):
        given.setdefault("params", None)
    elif is_net(net):
        given["apply_fn"] = net.apply
        if "params" not in given:
            given["params"] = jax.eval_shape(net.init, jax.random.key(0), given["inputs"])
    elif "params" not in given:
        kind = "function" if callable(net) and not isinstance(net, type) else type(net).__name__
        raise TypeError(
            f"apply_fn is a {kind} and there are no parameters: pass "
            "(apply_fn, params, inputs); a PyTorch module, or a network with init and apply, is "
            "enough with its inputs alone"
        )


def _any_torch(tree: Any) -> bool:
    try:
        leaves = jax.tree.leaves(tree, is_leaf=_is_foreign)
    except (TypeError, ValueError):
        # What is no tree is for the function itself to refuse.
        return False
    return any(_is_tensor(x) or _is_module(x) or _is_state(x) for x in leaves)


def _is_foreign(value: Any) -> bool:
    """Whether it is a mapping that JAX does not look into, as a tokenizer gives."""
    return isinstance(value, Mapping) and jax.tree_util.all_leaves([value])


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
        elif name in MANY and _are_networks(value):
            arguments[name] = _stacked([_params(each, names) for each in value])
        elif _is_module(value) or (name not in DATA and _is_state(value)):
            arguments[name] = _params(value, names)
        elif name != "symmetry":
            arguments[name] = jax.tree.map(_array, value, is_leaf=_is_foreign)


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(map(_is_tensor, value.values()))


def _are_networks(value: Any) -> bool:
    several = isinstance(value, Sequence) and bool(value) and not isinstance(value, str)
    return several and all(_is_module(x) or _is_state(x) for x in value)


def _params(value: Any, names: set[str] | None) -> dict[str, Any]:
    from onebasin.torch.prefixes import matched
    from onebasin.torch.state import read_params, read_state

    if _is_module(value):
        found = read_params(value)
    else:
        found = read_state(value)
        if names is not None and not names <= set(found):
            pairs = matched("the state dict", found, sorted(names))
            found = {name: found[key] for name, key in pairs.items()}
    return {name: x for name, x in found.items() if names is None or name in names}


def _stacked(networks: list[dict[str, Any]]) -> Any:
    """Draws, each of a mode of its own."""
    from onebasin.posterior import Draws

    return Draws.stack(networks, mode=np.arange(len(networks), dtype=np.int32))


def _array(leaf: Any) -> Any:
    from onebasin.torch.modules import check_tensor
    from onebasin.torch.tensors import to_numpy

    if _is_foreign(leaf):
        return jax.tree.map(_array, dict(leaf))
    if not _is_tensor(leaf):
        return leaf
    check_tensor(leaf, "an argument")
    return to_numpy(leaf)
