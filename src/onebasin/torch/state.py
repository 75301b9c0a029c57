"""Parameters by their state-dict names: out of a module, into one, and as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from onebasin.torch.errors import ConversionError
from onebasin.torch.modules import check_tensor, unwrapped
from onebasin.torch.tensors import is_float, numpy_dtype, pytorch, to_numpy, to_tensor


def entries(module: Any) -> dict[str, Any]:
    """The tensors of a module's state dict, themselves and not copies."""
    tensors = module.state_dict(keep_vars=True)
    return {name: x for name, x in tensors.items() if isinstance(x, pytorch().Tensor)}


def owners(module: Any) -> dict[str, str]:
    """For each name in the state dict, the first name of the same tensor: tied weights are one."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(x), name) for name, x in entries(module).items()}


def read_params(module: Any) -> dict[str, jax.Array]:
    """Floating-point parameters and buffers as arrays, each tied tensor once.

    Of a module that wraps another they have the names that the other gives them.

    Raises:
        ConversionError: If JAX would narrow one of them.
    """
    module = unwrapped(module)
    owner = owners(module)
    params = read_state({name: x for name, x in entries(module).items() if owner[name] == name})
    if not params:
        raise ConversionError(
            "the module has no floating-point parameters: there is nothing to convert"
        )
    return params


def read_state(state: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The floating-point entries of a state dict as arrays.

    Raises:
        ConversionError: If one of them is on another device, or JAX would narrow it.
    """
    params = {}
    for name, tensor in state.items():
        check_tensor(tensor, repr(name))
        if not is_float(numpy_dtype(tensor.dtype, repr(name))):
            continue
        array = to_numpy(tensor, repr(name))
        # JAX may share memory with NumPy: this is a copy of the module's, which training changes.
        # `jnp.asarray` would compile a program for each shape.
        params[name] = jax.device_put(array)
        check_width(name, array, params[name])
    return params


def check_width(name: str, array: np.ndarray, param: jax.Array) -> None:
    """Refuses what JAX made narrower than it was."""
    if param.dtype != array.dtype:
        raise ConversionError(
            f"{name!r} is of type {array.dtype}, which JAX narrows to {param.dtype}: "
            "switch on jax_enable_x64, or call module.float() first"
        )


def state_dict(params: Mapping[str, Any], module: Any = None) -> dict[str, Any]:
    """Parameters as tensors, bit for bit.

    Args:
        params: Arrays by their state-dict names.
        module: If given, the result is complete for `module.load_state_dict`: tied weights stand
            under all their names, and what is not a parameter of ours (integer buffers such as
            counts of batches) is taken from the module.

    Returns:
        Tensors by name, in memory of their own.

    Raises:
        ConversionError: If names or shapes are not those of the module; the first is named.

    Example:
        >>> import onebasin as ob
        >>> net, params = ob.from_torch(module, inputs)  # doctest: +SKIP
        >>> torch.save(ob.torch.state_dict(params), "weights.pt")  # doctest: +SKIP
    """
    _check_mapping(params)
    if module is None:
        return {name: to_tensor(x) for name, x in params.items()}
    bare = unwrapped(module)
    owner = owners(bare)
    check_fits(params, bare)
    # A wrapper has the same entries in the same order, under longer names.
    return {
        name: to_tensor(params[first]) if first in params else x.detach().clone()
        for (name, x), first in zip(entries(module).items(), owner.values(), strict=True)
    }


def to_torch(params: Mapping[str, Any], module: Any) -> Any:
    """Writes parameters into a module, bit for bit where the types are the same.

    Args:
        params: Arrays by the module's state-dict names, as `from_torch` and everything that works
            on parameters gives them.
        module: The module, on any device; changed in place.

    Returns:
        The module.

    Raises:
        ConversionError: If names or shapes are not those of the module; the first is named, and
            the module is left as it was.

    Example:
        >>> import onebasin as ob
        >>> net, params = ob.from_torch(module, inputs)  # doctest: +SKIP
        >>> merged = ob.to_torch(ob.interpolate(params, others, 0.5), module)  # doctest: +SKIP
    """
    torch = pytorch()
    if not isinstance(module, torch.nn.Module):
        raise ConversionError(
            f"the module is a {type(module).__name__}, expected a torch.nn.Module: "
            "write to_torch(params, module)"
        )
    _check_mapping(params)
    bare = unwrapped(module)
    check_fits(params, bare)
    targets = entries(bare)
    with torch.no_grad():
        for name, x in params.items():
            targets[name].copy_(to_tensor(x))
    return module


def check_fits(params: Mapping[str, Any], module: Any) -> None:
    """Refuses parameters that are not those of a module, naming the first that differs."""
    targets = entries(module)
    owner = owners(module)
    # Buffers that are only compared with something are not among the parameters.
    expected = [name for name, _ in module.named_parameters() if owner.get(name) == name]
    for name in [*expected, *params]:
        if name not in params:
            raise ConversionError(
                f"the parameters have no {name!r}, which the module has: they are those of "
                "another module"
            )
        if name not in targets or owner[name] != name:
            other = f", which it ties to {owner[name]!r}" if name in owner else ""
            raise ConversionError(
                f"the parameters have {name!r}, which the module has not{other}: they are those "
                "of another module"
            )
        shape, wanted = np.shape(params[name]), tuple(targets[name].shape)
        if shape != wanted:
            stacked = shape[1:] == wanted
            advice = "pick one of the stacked networks" if stacked else "it is another module's"
            raise ConversionError(
                f"the parameter {name!r} has shape {shape}, and the module expects {wanted}: "
                f"{advice}"
            )


def _check_mapping(params: Any) -> None:
    if not isinstance(params, Mapping):
        raise ConversionError(
            f"the parameters are a {type(params).__name__}, expected a dictionary of arrays by "
            "their state-dict names"
        )
