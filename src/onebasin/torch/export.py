"""A module as a graph of operators, from `torch.export`: functional, the batch free if it can."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from onebasin.torch.errors import ConversionError
from onebasin.torch.modules import Call
from onebasin.torch.names import operator_name, symbolic
from onebasin.torch.state import owners
from onebasin.torch.table import rule_for
from onebasin.torch.tensors import is_float, numpy_dtype, pytorch, to_numpy

# At least three examples: sizes 0 and 1 are special to the exporter, and the check takes two.
FEWEST = 3
# What a mask may go through before it is compared.
MOVES = (
    *("alias", "clone", "contiguous", "detach", "expand", "permute", "reshape", "select", "slice"),
    *("squeeze", "to", "transpose", "unsqueeze", "view", "_to_copy"),
)


@dataclasses.dataclass(frozen=True)
class Exported:
    """A graph and what its placeholders stand for.

    Attributes:
        module: The graph module.
        params: The state-dict name behind each placeholder that is a parameter.
        constants: The array behind each that is constant.
        inputs: The number of the input leaf behind each that is an input.
        shapes: The shape of each input, None where any size will do.
        free: The inputs whose first axes may be of any length, the same for all.
        outputs: The nodes or constants that are returned.
        structure: How torch arranges them.
        dtype: The type in which the module computes.
    """

    module: Any
    params: dict[str, str]
    constants: dict[str, np.ndarray]
    inputs: dict[str, int]
    shapes: dict[int, tuple[int | None, ...]]
    free: frozenset[int]
    outputs: list[Any]
    structure: Any
    dtype: Any


def export(module: Any, call: Call) -> Exported:
    """Exports a module that has been checked.

    Raises:
        ConversionError: If the module does not run on these inputs, or cannot be exported.
    """
    with plain_paths(), _no_traces(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = _dynamic(module, call)
        if program is None:
            program = _static(module, *call.arguments(call.example))
        program = functional(program)
    return _described(program, module, call)


def _dynamic(module: Any, call: Call) -> Any:
    """The program for any number of examples, or None."""
    torch = pytorch()
    leaves = call.example
    ranked = [x for x, data in zip(leaves, call.is_data, strict=True) if data and x.ndim]
    if not ranked:
        return None
    sizes = {x.shape[0] for x in ranked}
    few = len(sizes) == 1 and next(iter(sizes)) in range(1, FEWEST)
    if few:
        leaves = [
            _tiled(x) if data and x.ndim else x
            for x, data in zip(leaves, call.is_data, strict=True)
        ]
    free = [
        {0: torch.export.Dim.AUTO} if data and x.ndim else None
        for x, data in zip(leaves, call.is_data, strict=True)
    ]
    args, kwargs = call.arguments(leaves)
    shapes, named = call.arguments(free)
    # That an axis of length 1 stays so is no news to the user.
    log = logging.getLogger("torch._export.non_strict_utils")
    before, log.disabled = log.disabled, True
    try:
        program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes or named)
    except Exception:
        return None
    finally:
        log.disabled = before
    # More examples than there are stand for any number of them, or for nothing that was given.
    return None if few and not _is_free(program, call) else program


def _is_free(program: Any, call: Call) -> bool:
    """Whether all inputs of a program may be of any number of examples."""
    shapes = _shapes(program, call).values()
    return all(_size(shape[0]) is None for shape in shapes if len(shape))


def _shapes(program: Any, call: Call) -> dict[int, Any]:
    """The shapes of the inputs that are data, by their number."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    names = _inputs(program, call)
    return {number: nodes[name].meta["val"].shape for name, number in names.items()}


def _inputs(program: Any, call: Call) -> dict[str, int]:
    """The numbers of the inputs that are data, by the names of their placeholders."""
    kind = pytorch().export.graph_signature.InputKind.USER_INPUT
    names = [
        getattr(spec.arg, "name", "")
        for spec in program.graph_signature.input_specs
        if spec.kind == kind
    ]
    return {
        name: number
        for name, number in zip(names, call.order(), strict=True)
        if number is not None and call.is_data[number]
    }


def _tiled(x: Any) -> Any:
    return x.repeat(-(-FEWEST // x.shape[0]), *[1] * (x.ndim - 1))[:FEWEST]


def _static(module: Any, args: Any, kwargs: Any) -> Any:
    torch = pytorch()
    try:
        return torch.export.export(module, args, kwargs)
    except Exception as error:
        _run(module, args, kwargs)
        raise ConversionError(
            f"torch.export cannot trace the module ({line_of(error)}): its control flow may not "
            "depend on the values of tensors; use torch.where, or move that part out of forward"
        ) from error


def _run(module: Any, args: Any, kwargs: Any) -> None:
    """Refuses a module that does not even run."""
    try:
        module(*args, **kwargs)
    except Exception as error:
        raise ConversionError(
            f"the module raised {line_of(error)} on the example inputs: check their shapes and "
            "types"
        ) from error


def functional(program: Any) -> Any:
    """The program without writes in place, and with operators that have rules where it can.

    Running PyTorch's decompositions takes longer than the export itself, so that it is done only
    for programs that need it.
    """
    torch = pytorch()
    if _renamed(program.graph_module) and not unknown(program.graph_module):
        return program
    table = torch.export.default_decompositions()
    rest = {op: how for op, how in table.items() if rule_for(operator_name(op)) is None}
    return program.run_decompositions(rest)


def _renamed(module: Any) -> bool:
    """Replaces writes in place that nobody else can see; whether none are left."""
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        written = node.args[0] if node.args else None
        name = operator_name(node.target).split(".")
        plain = ".".join([name[0], name[1].removesuffix("_"), *name[2:]])
        if not name[1].endswith("_") or rule_for(plain) is None or not _unseen(written, node):
            return False
        node.meta["onebasin"] = plain
    return True


def _unseen(written: Any, writer: Any) -> bool:
    """Whether a value is fresh, and the writer is the last to look at it."""
    if written.op != "call_function" or list(written.users) != [writer]:
        return False
    if "onebasin" in written.meta:
        return True
    schema = getattr(written.target, "_schema", None)
    return (
        schema is not None
        and all(r.alias_info is None for r in schema.returns)
        and (
            written.meta.get("val") is not None
            and not isinstance(written.meta["val"], tuple | list)
        )
    )


def unknown(module: Any) -> list[str]:
    """The operators of a graph that have no rule, those of inner graphs included."""
    found: dict[str, None] = {}
    for node in module.graph.nodes:
        if node.op == "call_module":
            found[f"a call of the module {node.target}"] = None
        if node.op != "call_function":
            continue
        name = node_name(node)
        if not symbolic(node.target) and rule_for(name) is None and inner(node) is None:
            found[name] = None
        elif (graph := inner(node)) is not None:
            found.update(dict.fromkeys(unknown(graph)))
    return list(found)


def node_name(node: Any) -> str:
    """The operator of a node; writes in place that nobody sees go by their plain name."""
    return node.meta.get("onebasin") or operator_name(node.target)


def inner(node: Any) -> Any:
    """The graph that a node runs with gradients switched off or on, if that is what it does."""
    if operator_name(node.target) != "higher_order.wrap_with_set_grad_enabled":
        return None
    return getattr(node.graph.owning_module, node.args[1].target)


def _described(program: Any, module: Any, call: Call) -> Exported:
    signature = program.graph_signature
    kinds = pytorch().export.graph_signature.InputKind
    owner = owners(module)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    params, constants = {}, {}
    for spec in signature.input_specs:
        name: str = getattr(spec.arg, "name", "")
        if spec.kind in (kinds.USER_INPUT, kinds.TOKEN):
            continue
        tensor = program.state_dict.get(spec.target, program.constants.get(spec.target))
        if not hasattr(tensor, "dtype"):
            raise ConversionError(
                f"the module holds {spec.target!r}, which is no tensor: keep it out of forward"
            )
        real = is_float(numpy_dtype(tensor.dtype, repr(spec.target)))
        mask = spec.kind == kinds.BUFFER and _only_compared(nodes[name])
        if spec.target in owner and real and not mask:
            params[name] = owner[spec.target]
            continue
        constants[name] = to_numpy(tensor, repr(spec.target))
    sizes = _shapes(program, call)
    free = {n: str(s[0]) for n, s in sizes.items() if s and _size(s[0]) is None}
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    returned = [
        value
        for value, spec in zip(output.args[0], signature.output_specs, strict=True)
        if spec.kind == pytorch().export.graph_signature.OutputKind.USER_OUTPUT
    ]
    floats = [x.dtype for x in module.state_dict().values() if x.is_floating_point()]
    return Exported(
        module=program.graph_module,
        params=params,
        constants=constants,
        inputs=_inputs(program, call),
        shapes={number: tuple(_size(n) for n in shape) for number, shape in sizes.items()},
        free=frozenset(n for n, symbol in free.items() if symbol == next(iter(free.values()))),
        outputs=returned,
        structure=program.call_spec.out_spec,
        dtype=max(set(floats), key=floats.count),
    )


@contextlib.contextmanager
def plain_paths() -> Iterator[None]:
    """Runs attention without its fused paths, which have no plain operators, and no gradients."""
    torch = pytorch()
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


@contextlib.contextmanager
def _no_traces() -> Iterator[None]:
    """Keeps no stack trace for each node, which takes a quarter of an export and is not read."""
    config: Any = getattr(pytorch().fx, "config", None)
    before = getattr(config, "do_not_emit_stack_traces", None)
    if before is None:
        yield
        return
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before


def _size(size: Any) -> int | None:
    """A size, or None where any will do; some symbols stand for a number after all."""
    return size if isinstance(size, int) else size.node.maybe_as_int()


def _only_compared(node: Any) -> bool:
    """Whether a value is a mask: nothing but the outcome of comparisons is used of it."""
    for user in node.users:
        name = node_name(user).split(".")[1]
        boolean = getattr(user.meta.get("val"), "dtype", None) == pytorch().bool
        if not boolean and not (name in MOVES and _only_compared(user)):
            return False
    return bool(node.users)


def line_of(error: BaseException | None, limit: int = 160) -> str:
    """An exception by its type and the first line of its message."""
    lines = str(error).strip().splitlines() or [""]
    first = lines[0].rstrip(".: ")
    first = first if len(first) <= limit else first[: limit - 3] + "..."
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
