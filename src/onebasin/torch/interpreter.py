"""Runs an exported graph in JAX, node by node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from onebasin.torch import ops
from onebasin.torch.errors import ConversionError
from onebasin.torch.export import Exported, inner, node_name, unknown
from onebasin.torch.names import symbolic
from onebasin.torch.ops import layout
from onebasin.torch.ops.layout import Held, whole
from onebasin.torch.ops.shape import Stacked
from onebasin.torch.table import Rule, rule_for
from onebasin.torch.tensors import canonical, is_float, numpy_dtype, pytorch

__all__ = ["Interpreter", "ops"]

# The operators that take values which are still in parts.
_PATIENT = ("aten.select.int", "_operator.getitem")
# What arrays have not.
_IGNORED = ("device", "layout", "pin_memory", "memory_format")


@dataclasses.dataclass(frozen=True)
class _Step:
    """One node: what it calls, with what, and of which types PyTorch says the results are."""

    node: Any
    name: str
    rule: Rule
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dtypes: Any
    plain: bool


class Interpreter:
    """An exported graph as a function of parameters and input leaves.

    The type in which the module computes is replaced by that of the parameters, so that the same
    graph runs in double precision on double parameters.

    Args:
        exported: The graph.

    Raises:
        ConversionError: If operators have no rule; all of them are named.
    """

    def __init__(self, exported: Exported):
        missing = unknown(exported.module)
        if missing:
            names = ", ".join(missing)
            raise ConversionError(
                f"there is no rule for {names}: give {'it' if len(missing) == 1 else 'each'} one "
                f"with onebasin.torch.register({missing[0].rpartition('.')[0]!r}), or write the "
                "module without"
            )
        self.exported = exported
        self.own = numpy_dtype(exported.dtype, "the module")
        self.steps = _steps(exported.module)

    def __call__(self, params: Mapping[str, Any], leaves: list[Any]) -> Any:
        """What the module returns, arranged as it arranges it."""
        from torch.utils import _pytree

        found = self.exported
        for name in found.params.values():
            if name not in params:
                raise ValueError(
                    f"the parameters have no {name!r}, which the module has: pass parameters as "
                    "from_torch gives them"
                )
        working = _working(self.own, [params[name] for name in set(found.params.values())])
        values: dict[Any, Any] = {}
        for node in found.module.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in found.params:
                values[node] = jnp.asarray(params[found.params[node.name]])
            elif node.name in found.constants:
                constant = found.constants[node.name]
                values[node] = jnp.asarray(constant, self._dtype(constant.dtype, working))
            elif node.name in found.inputs:
                values[node] = self._input(leaves, found.inputs[node.name], working)
        self._run(self.steps, values, working)
        returned = [whole(values[x]) if _is_node(x) else x for x in found.outputs]
        return _plain(_pytree.tree_unflatten(returned, found.structure))

    def _input(self, leaves: list[Any], number: int, working: np.dtype) -> Any:
        value = jnp.asarray(leaves[number])
        wanted = self.exported.shapes[number]
        fits = value.ndim == len(wanted) and all(
            w in (None, n) for w, n in zip(wanted, value.shape, strict=True)
        )
        if not fits:
            sizes = ", ".join("any" if w is None else str(w) for w in wanted)
            free = "" if wanted[:1] == (None,) else ", or for any batch write x.shape[0] for len(x)"
            raise ValueError(
                f"an input has shape {value.shape}, and the module was converted for ({sizes}): "
                f"convert it again with an example of that shape{free}"
            )
        if is_float(value.dtype) and self.own == np.dtype(np.float32):
            return value.astype(working)
        return value

    def _dtype(self, dtype: np.dtype, working: np.dtype) -> np.dtype:
        return working if dtype == self.own else canonical(dtype)

    def _run(self, steps: list[_Step], values: dict[Any, Any], working: np.dtype) -> None:
        torch = pytorch()

        def read(argument: Any) -> Any:
            if _is_node(argument):
                value = values[argument]
                return whole(value) if isinstance(value, Stacked) and not patient else value
            if isinstance(argument, list | tuple):
                return [read(x) for x in argument]
            if isinstance(argument, torch.dtype):
                return self._dtype(numpy_dtype(argument, "a result"), working)
            return argument

        patient = False
        for step in steps:
            patient = step.name in _PATIENT
            args = [read(x) for x in step.args]
            kwargs = {name: read(x) for name, x in step.kwargs.items()}
            if step.plain:
                values[step.node] = step.rule(*args, **kwargs)
                continue
            graph = inner(step.node)
            if graph is not None:
                values[step.node] = self._inner(graph, [whole(x) for x in args], working)
                continue
            try:
                result = layout.apply(step.name, step.rule, args, kwargs)
            except Exception as error:
                first = (str(error).strip().splitlines() or [""])[0]
                raise ConversionError(
                    f"the rule for {step.name} failed at {step.node.name!r} with "
                    f"{type(error).__name__}: {first}"
                ) from error
            values[step.node] = self._as_torch_has_it(result, step.dtypes, working)

    def _inner(self, graph: Any, args: list[Any], working: np.dtype) -> list[Any]:
        enabled, _, *operands = args
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        values = dict(zip(nodes, operands, strict=True))
        self._run(_steps(graph), values, working)
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        results = [whole(values[x]) if _is_node(x) else x for x in output.args[0]]
        return results if enabled else [lax.stop_gradient(x) for x in results]

    def _as_torch_has_it(self, result: Any, dtypes: Any, working: np.dtype) -> Any:
        """Results in the types that PyTorch's promotion gives them."""
        if isinstance(dtypes, list):
            return [
                self._as_torch_has_it(x, d, working) for x, d in zip(result, dtypes, strict=False)
            ]
        if isinstance(result, Held):
            return result.each(lambda x: self._as_torch_has_it(x, dtypes, working))
        if dtypes is None or (not hasattr(result, "dtype") and not np.isscalar(result)):
            return result
        wanted = self._dtype(dtypes, working)
        if isinstance(result, jax.Array) and result.dtype == wanted:
            return result
        return jnp.asarray(result).astype(wanted)


def _steps(module: Any) -> list[_Step]:
    steps = []
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        name = node_name(node)
        plain = symbolic(node.target)
        rule = plain or rule_for(name) or _never
        kwargs = {key: x for key, x in node.kwargs.items() if key not in _IGNORED}
        args = tuple(x for x in node.args if not _is_ignored(x))
        dtypes = _dtypes(node.meta.get("val"))
        steps.append(_Step(node, name, rule, args, kwargs, dtypes, plain is not None))
    return steps


def _dtypes(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_dtypes(x) for x in value]
    dtype = getattr(value, "dtype", None)
    return None if dtype is None else numpy_dtype(dtype, "a result")


def _is_ignored(argument: Any) -> bool:
    torch = pytorch()
    return isinstance(argument, torch.device | torch.layout | torch.memory_format)


def _is_node(argument: Any) -> bool:
    return isinstance(argument, pytorch().fx.Node)


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("a graph is run only when all its operators have rules")


def _working(own: np.dtype, params: list[Any]) -> np.dtype:
    """The type of the parameters, which stands for the module's own."""
    found = [x.dtype for x in params if is_float(x.dtype)]
    if not found or own != np.dtype(np.float32):
        wide = [x for x in found if x == np.dtype(np.float64)]
        return np.dtype(wide[0]) if wide and is_float(own) else own
    return np.dtype(jnp.result_type(*found))


def _plain(outputs: Any) -> Any:
    """Outputs in containers that JAX knows."""
    if isinstance(outputs, Mapping):
        return {name: _plain(x) for name, x in outputs.items()}
    if isinstance(outputs, list):
        return [_plain(x) for x in outputs]
    if isinstance(outputs, tuple):
        items = [_plain(x) for x in outputs]
        return type(outputs)(*items) if hasattr(outputs, "_fields") else tuple(items)
    return outputs
