"""Discovery: reads a model's symmetry group off its jaxpr, and proves it before handing it out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from onebasin.symmetry import interpret
from onebasin.symmetry.assemble import assemble
from onebasin.symmetry.blocks import Planner
from onebasin.symmetry.degrees import Exponents
from onebasin.symmetry.dependence import parents
from onebasin.symmetry.errors import SymmetryError, UnknownPrimitiveWarning
from onebasin.symmetry.group import Symmetry, path_name
from onebasin.symmetry.program import Program, trace
from onebasin.symmetry.steps import Recorder, Value
from onebasin.symmetry.verify import check_symmetry


def discover(apply_fn: Callable[[Any, Any], Any], params: Any, inputs: Any) -> Symmetry:
    """Finds the weight changes that leave a model's function alone.

    The model is traced once; its program is interpreted three times: on axes (which index sets may
    be permuted, and which depend on which), on exponents over the rationals (positive rescalings)
    and on parities (sign flips). The group is then checked on random parameters in double precision.

    Args:
        apply_fn: The model, `apply_fn(params, inputs) -> outputs`: any function that JAX can trace.
        params: Its parameters, any pytree of arrays (or shapes). Integer leaves are left alone.
        inputs: An example of its inputs: arrays or `jax.ShapeDtypeStruct`s, in any pytree.

    Returns:
        The group, verified.

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
    found = jax.tree_util.tree_leaves_with_path(params)
    paths = [path_name(path) for path, _ in found]
    leaves = [leaf for _, leaf in found]
    for path, leaf in zip(paths, leaves, strict=True):
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise SymmetryError(
                f"parameter {path!r} is a {type(leaf).__name__}, expected an array; keep "
                "everything else out of the tree (equinox.partition, nnx.split and the like do so)"
            )
    program = _trace(apply_fn, params, inputs)
    recorder = Recorder()
    values, unused = _arguments(recorder, program, leaves, paths)
    for value in interpret.run(recorder, program, [v for v in values if v is not None]):
        recorder.result(value)
    if recorder.unknown_primitives:
        warnings.warn(
            "no rule for the primitives "
            + ", ".join(sorted(recorder.unknown_primitives))
            + ": the axes they touch are held fixed, so some symmetries may be missed",
            UnknownPrimitiveWarning,
            stacklevel=2,
        )
    planner = Planner()
    scalings, signs = Exponents(planner, None), Exponents(planner, 2)
    scalings.run(recorder.steps)
    signs.run(recorder.steps)
    symmetry = assemble(
        paths=paths,
        shapes=[tuple(leaf.shape) for leaf in leaves],
        values=dict(enumerate(values[: len(leaves)])),
        order=_order_of_use(program, len(leaves)),
        planner=planner,
        parents=parents(recorder.steps, planner),
        scalings=scalings,
        signs=signs,
        unused=unused,
    )
    check_symmetry(symmetry, apply_fn, params, inputs, power=False)
    return symmetry


def _trace(apply_fn: Callable[..., Any], params: Any, inputs: Any) -> Program:
    if not callable(apply_fn):
        raise SymmetryError(
            f"apply_fn is a {type(apply_fn).__name__}, expected a function (params, inputs) -> outputs"
        )
    try:
        program, _ = trace(apply_fn, params, inputs)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise SymmetryError(
            f"apply_fn(params, inputs) could not be traced: {type(error).__name__}: {first}"
        ) from error
    return program


def _arguments(
    recorder: Recorder, program: Program, leaves: list[Any], paths: list[str]
) -> tuple[list[Value], tuple[str, ...]]:
    """Typed program inputs: unknown for the floating parameters that are used, fixed for the rest."""
    used = {id(v) for equation in program.equations for v in equation.inputs}
    used |= {id(v) for v in program.outputs}
    values, unused = [], []
    for number, variable in enumerate(program.inputs):
        if number >= len(leaves):
            values.append(interpret.fixed(variable.shape))
            continue
        is_float = jax.dtypes.issubdtype(leaves[number].dtype, np.inexact)
        if id(variable) not in used and variable.aval.size:
            unused.append(paths[number])
        if id(variable) in used and is_float:
            values.append(recorder.unknown(variable.shape, leaf=number))
        else:
            values.append(interpret.fixed(variable.shape))
    return values, tuple(unused)


def _order_of_use(program: Program, count: int) -> list[int]:
    numbers = {id(v): i for i, v in enumerate(program.inputs[:count])}
    order: dict[int, None] = {}
    for equation in program.equations:
        for variable in equation.inputs:
            if id(variable) in numbers:
                order[numbers[id(variable)]] = None
    return [*order, *(i for i in range(count) if i not in order)]
