"""Discovery: reads a model's symmetry group off its jaxpr, and proves it before handing it out."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from onebasin.symmetry import interpret
from onebasin.symmetry.assemble import Part, assemble
from onebasin.symmetry.axes import Atom
from onebasin.symmetry.blocks import Planner
from onebasin.symmetry.degrees import Exponents
from onebasin.symmetry.dependence import parents
from onebasin.symmetry.errors import SymmetryError, UnknownPrimitiveWarning
from onebasin.symmetry.group import Symmetry, path_name
from onebasin.symmetry.liveness import Live
from onebasin.symmetry.pieces import Cut, Pieces, picked_apart
from onebasin.symmetry.program import Program, trace
from onebasin.symmetry.shuffles import settle
from onebasin.symmetry.steps import Value
from onebasin.symmetry.unroll import unrolled
from onebasin.symmetry.verify import check_discovered, check_symmetry

ROUNDING = 1e-9


def discover(apply_fn: Callable[[Any, Any], Any], params: Any, inputs: Any) -> Symmetry:
    """Finds the weight changes that leave a model's function alone.

    The model is traced once; its program is interpreted three times: on axes (which index sets may
    be permuted, and which depend on which), on exponents over the rationals (positive rescalings)
    and on parities (sign flips). The group is then checked on random parameters, in doubles: on two
    examples where the model looks at them one by one, else on all, so that the time does not grow
    with the batch. What the outputs see of each factor there takes longer to say, and is not asked:
    `check_symmetry` measures it, and refuses a group of which they do not see a factor.

    A model may round: through casts to float16 and bfloat16 (or `jax.lax.reduce_precision` to as
    many bits) scalings hold up to that rounding. Through coarser formats, such as those of eight
    bits, a rescaled unit would be another one, and it is given none.

    Experts, codes and features that are chosen by their scores (argmax, top-k, argsort) can trade
    places where no scores tie: they are taken to if scores have weights of their own and the proof
    on all inputs finds none.

    Args:
        apply_fn: The model, `apply_fn(params, inputs) -> outputs`: any function that JAX can trace.
        params: Its parameters, any pytree of arrays (or shapes). Integer leaves are left alone.
            `onebasin.discover(net, inputs)` needs none for a PyTorch module, or a network with
            `init` and `apply`.
        inputs: An example of its inputs: arrays or `jax.ShapeDtypeStruct`s, in any pytree.

    Returns:
        The group: read off by rules that each hold, and tried on random parameters.

    Raises:
        SymmetryError: If the model cannot be traced, or if the proof fails.

    Example:
        >>> import jax, jax.numpy as jnp, onebasin as ob
        >>> def model(params, x):
        ...     return jax.nn.relu(x @ params["inner"]) @ params["outer"]
        >>> params = {"inner": jnp.ones((3, 5)), "outer": jnp.ones((5, 2))}
        >>> ob.discover(model, params, jnp.ones((1, 3)))
        Symmetry(1 factors, log_copies=4.8, scaling_dimension=5)
    """
    _check_function(apply_fn)
    _check_arrays(params)
    found = understood(apply_fn, params, inputs)
    if found.chosen:
        # Where scores tie the first is chosen, and any input may make them tie.
        try:
            check_symmetry(found.symmetry, apply_fn, params, inputs, power=False)
            return found.symmetry
        except SymmetryError:
            with _known_warnings():
                found = understood(apply_fn, params, inputs, choices=False)
    check_discovered(found.symmetry, found.program, apply_fn, params, inputs)
    return found.symmetry


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Analysis:
    """A group that is not proved yet, and what was learnt of the program on the way."""

    program: Program
    symmetry: Symmetry
    names: dict[Atom, str]
    planner: Planner
    types: dict[int, Value | Pieces]
    chosen: bool


def understood(
    apply_fn: Callable[..., Any], params: Any, inputs: Any, *, choices: bool = True
) -> Analysis:
    """What is found in a model; loops over layers are written out where that shows more."""
    program = read(apply_fn, params, inputs)
    found = analyse(program, params, choices=choices)
    longer = unrolled(program, program.inputs[: len(jax.tree.leaves(params))])
    if longer is None:
        return found
    with _known_warnings():
        other = analyse(longer, params, choices=choices)
    copies, more = (each.symmetry.log_copies() for each in (found, other))
    return other if more > copies * (1 + ROUNDING) else found


@contextlib.contextmanager
def _known_warnings() -> Iterator[None]:
    """What was said of a program is not said again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownPrimitiveWarning)
        yield


def analyse(
    program: Program, params: Any, original: Program | None = None, *, choices: bool = True
) -> Analysis:
    """Everything but the proof.

    Args:
        program: The model.
        params: Its parameters.
        original: The program that it was made from, if any: factors are named in its order.
        choices: Whether what is chosen by value can be permuted, which holds if nothing ties.
    """
    found = jax.tree_util.tree_leaves_with_path(params)
    paths = [path_name(path) for path, _ in found]
    leaves = [leaf for _, leaf in found]
    recorder, parts = _interpret(program, leaves, choices)
    apart = recorder.candidates(), _leaves_apart(parts)
    if any(apart):
        recorder, parts = _interpret(program, leaves, choices, *apart)
    if recorder.unknown_primitives:
        warnings.warn(
            "no rule for the primitives "
            + ", ".join(sorted(recorder.unknown_primitives))
            + ": the axes they touch are held fixed, so some symmetries may be missed",
            UnknownPrimitiveWarning,
            stacklevel=_level(),
        )
    planner = Planner()
    live = Live(recorder.steps, planner)
    scalings, signs = Exponents(planner, live, None), Exponents(planner, live, 2)
    scalings.run(recorder.steps)
    signs.run(recorder.steps)
    used = {part.leaf for part in parts}
    symmetry, names = assemble(
        paths=paths,
        shapes=[tuple(leaf.shape) for leaf in leaves],
        parts=parts,
        order=_order_of_use(original or program, parts),
        planner=planner,
        parents=parents(recorder.steps, planner),
        scalings=scalings,
        signs=signs,
        unused=tuple(
            path
            for number, (path, leaf) in enumerate(zip(paths, leaves, strict=True))
            if number not in used and _is_float(leaf) and 0 not in leaf.shape
        ),
    )
    return Analysis(program, symmetry, names, planner, recorder.types, recorder.chosen)


def _level() -> int:
    """How far above the caller the first line stands that is not of this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "onebasin":
        frame, level = frame.f_back, level + 1
    return level


def _check_function(apply_fn: Any) -> None:
    """A PyTorch module can be called, but not traced: say what to do instead."""
    if any(kind.__module__ == "torch.nn.modules.module" for kind in type(apply_fn).__mro__):
        raise SymmetryError(
            "apply_fn is a PyTorch module: convert it with `net, params = "
            "onebasin.from_torch(module, inputs)`, and pass net.apply and params"
        )


def _check_arrays(params: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise SymmetryError(
                f"parameter {path_name(path)!r} is a {type(leaf).__name__}, expected an array; "
                "keep all else out of the tree (equinox.partition, nnx.split and the like do so)"
            )


def read(apply_fn: Callable[..., Any], params: Any, inputs: Any) -> Program:
    """Traces a model, saying what went wrong if it fails."""
    if not callable(apply_fn):
        raise SymmetryError(
            f"apply_fn is a {type(apply_fn).__name__}, expected a function of (params, inputs)"
        )
    try:
        return trace(apply_fn, params, inputs)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise SymmetryError(
            f"apply_fn(params, inputs) could not be traced: {type(error).__name__}: {first}"
        ) from error


def _is_float(leaf: Any) -> bool:
    return bool(jax.dtypes.issubdtype(leaf.dtype, np.inexact))


def _interpret(
    program: Program,
    leaves: list[Any],
    choices: bool,
    reshapes_apart: dict[int, Cut] | None = None,
    leaves_apart: dict[int, int] | None = None,
) -> tuple[interpret.Interpreter, list[Part]]:
    """Walks the program; floating parameters that are used are unknown, all else is fixed."""
    recorder = interpret.Interpreter(program, reshapes_apart, choices)
    used = {id(v) for equation in program.equations for v in equation.inputs}
    used |= {id(v) for v in program.outputs}
    parts: list[Part] = []
    arguments: list[Value | Pieces] = []
    recorder.parameters.update(map(id, program.inputs[: len(leaves)]))
    for number, variable in enumerate(program.inputs):
        if number >= len(leaves) or id(variable) not in used or not _is_float(leaves[number]):
            arguments.append(interpret.fixed(variable.shape))
            continue
        axis = (leaves_apart or {}).get(number)
        if axis is None:
            value = recorder.unknown(variable.shape, part=len(parts))
            parts.append(Part(number, value))
            arguments.append(value)
            continue
        shape = (*variable.shape[:axis], 1, *variable.shape[axis + 1 :])
        pieces = Pieces(axis, [])
        for place in range(variable.shape[axis]):
            value = recorder.unknown(shape, part=len(parts))
            parts.append(Part(number, value, axis, place))
            pieces.values.append(value)
        arguments.append(pieces)
    for value in interpret.run(recorder, program, arguments):
        recorder.result(value)
    settle(recorder)
    return recorder, parts


def _leaves_apart(parts: list[Part]) -> dict[int, int]:
    axes = {part.leaf: picked_apart(part.value) for part in parts}
    return {leaf: axis for leaf, axis in axes.items() if axis is not None}


def _order_of_use(program: Program, parts: list[Part]) -> list[int]:
    """Parts by where their parameter is first used."""
    first: dict[int, int] = {}
    for equation in program.equations:
        for variable in equation.inputs:
            first.setdefault(id(variable), len(first))
    when = [first.get(id(program.inputs[part.leaf]), len(first)) for part in parts]
    return sorted(range(len(parts)), key=when.__getitem__)
