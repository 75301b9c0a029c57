"""What a module has to be before it can be converted, and how it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from onebasin.torch.errors import ConversionError
from onebasin.torch.tensors import numpy_dtype, pytorch, to_tensor


class Call:
    """A structure of inputs, and how a module takes it.

    A tuple holds the positional arguments, a dictionary the named ones, and anything else is the
    one argument. What is not an array (None, flags, numbers) is part of the structure, not data.
    """

    def __init__(self, inputs: Any):
        leaves, structure = jax.tree.flatten(as_tree(inputs))
        self.structure: Any = structure
        self.is_data = [_is_array(leaf) for leaf in leaves]
        self.example = [
            to_tensor(x) if data else x for x, data in zip(leaves, self.is_data, strict=True)
        ]
        if not any(self.is_data):
            raise ConversionError(
                f"the inputs are {_described(inputs)}, expected a tensor, or a tuple or dictionary "
                "with tensors in it, as the module takes them"
            )

    def arguments(self, leaves: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments, from as many leaves as the example has."""
        tree = jax.tree.unflatten(self.structure, leaves)
        if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
            return tree, {}
        if isinstance(tree, Mapping) and all(isinstance(name, str) for name in tree):
            return (), dict(tree)
        return (tree,), {}

    def order(self) -> list[int | None]:
        """Which leaf each of the arguments is that torch counts; None for those that are None."""
        from torch.utils import _pytree

        numbered = self.arguments(list(range(len(self.example))))
        return _pytree.tree_flatten(numbered)[0]

    def leaves(self, inputs: Any) -> list[Any]:
        """The leaves of inputs that must have the structure of the example."""
        leaves, structure = jax.tree.flatten(as_tree(inputs))
        if structure != self.structure:
            raise ValueError(
                f"the inputs are {structure}, and the module was converted with {self.structure}: "
                "give them in the same form"
            )
        return leaves


def as_tree(inputs: Any) -> Any:
    """Inputs as JAX takes them apart: named ones, such as a tokenizer gives, in a dictionary."""
    return dict(inputs) if isinstance(inputs, Mapping) else inputs


def unwrapped(module: Any) -> Any:
    """The module inside of those that run it in parallel or compile it; else itself."""
    parallel = pytorch().nn.DataParallel, pytorch().nn.parallel.DistributedDataParallel
    if isinstance(module, parallel):
        return unwrapped(module.module)
    return unwrapped(module._orig_mod) if _compiled(module) else module


def _compiled(module: Any) -> bool:
    """Whether it is what `torch.compile` gives, without importing its class, which takes long."""
    return type(module).__name__ == "OptimizedModule" and hasattr(module, "_orig_mod")


def check_module(module: Any) -> None:
    """Refuses what no rule can convert, in one sentence each.

    Raises:
        ConversionError: If it is not a module, is in train mode with something that makes a
            difference, or has tensors on another device or of another kind.
    """
    torch = pytorch()
    if not isinstance(module, torch.nn.Module):
        raise ConversionError(
            f"got {_described(module)}, expected a torch.nn.Module: "
            "write from_torch(module, inputs)"
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise ConversionError(
            "the module is compiled by torch.jit, and cannot be exported: convert the module "
            "that it was made from"
        )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        check_tensor(tensor, repr(name))
    active = [
        name or type(child).__name__ for name, child in module.named_modules() if _active(child)
    ]
    if active:
        raise ConversionError(train_mode(active))


def train_mode(active: list[str]) -> str:
    """What to do about dropout or batch statistics that are at work."""
    names = ", ".join(active[:3]) + (", ..." if len(active) > 3 else "")
    return (
        f"the module is in train mode, with dropout or batch statistics at work ({names}): call "
        "module.eval() first"
    )


def check_tensor(tensor: Any, what: str) -> None:
    """Refuses a tensor on another device, or of a kind that has no rules."""
    torch = pytorch()
    lazy = isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)
    if lazy:
        raise ConversionError(
            f"{what} has no shape yet: run the module once on an example before converting it"
        )
    if tensor.is_quantized or tensor.layout != torch.strided:
        kind = "quantised" if tensor.is_quantized else "sparse"
        raise ConversionError(
            f"{what} is a {kind} tensor, which has no rules: convert the module with plain "
            "floating-point weights"
        )
    if tensor.device.type != "cpu":
        raise ConversionError(
            f"{what} is on the device {str(tensor.device)!r}: call module.cpu() first, and give "
            "inputs on the CPU"
        )
    numpy_dtype(tensor.dtype, what)


def _active(child: Any) -> bool:
    """Whether a module does something else in training than in inference, and is in training."""
    torch = pytorch()
    if not child.training:
        return False
    if isinstance(child, torch.nn.modules.dropout._DropoutNd):
        return child.p > 0
    if isinstance(child, torch.nn.modules.instancenorm._InstanceNorm):
        return child.track_running_stats
    if isinstance(child, torch.nn.modules.batchnorm._BatchNorm | torch.nn.RReLU):
        return True
    if isinstance(child, torch.nn.RNNBase | torch.nn.MultiheadAttention):
        return float(child.dropout) > 0
    return False


def _is_array(leaf: Any) -> bool:
    torch = pytorch()
    if isinstance(leaf, torch.Tensor):
        check_tensor(leaf, "an input")
        return True
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise ConversionError(
            "an input is a shape, and the conversion is checked on numbers: give an example tensor"
        )
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _described(thing: Any) -> str:
    return f"{'an' if type(thing).__name__[0] in 'aeiouAEIOU' else 'a'} {type(thing).__name__}"
