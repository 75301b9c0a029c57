"""Where a model's running statistics are: leaves that are subtracted, and leaves divided by.

Flax and PyTorch name them. Other libraries do not, or otherwise: there a layer is what the program
shows, (x - mean) / sqrt(variance + epsilon) with a mean and a variance that are leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from onebasin.align.layers import Producers, producers, repeated_vector
from onebasin.posterior import trees
from onebasin.symmetry.program import Equation, Program, Variable, trace

COLLECTION = "batch_stats"
# How the running mean and variance are called: by Flax, in their collection, and by PyTorch.
ENDINGS = (("/mean", "/var"), ("running_mean", "running_var"))
ROOTS = ("sqrt", "rsqrt")
# What a variance goes through before and after its root.
PASSED = ("broadcast_in_dim", "convert_element_type", "reshape", "copy", "squeeze")
ARITHMETIC = ("add", "mul", "div", "max")
HOPS = 4


class Layer(NamedTuple):
    """A BatchNorm layer: where its statistics stand, and the value that they describe."""

    mean: int
    variance: int
    value: Variable
    axis: int


def has_names(params: Any) -> bool:
    """Whether running statistics are named as Flax Linen or PyTorch names them."""
    return isinstance(params, Mapping) and (
        COLLECTION in params or any(str(name).endswith(ENDINGS[1][0]) for name in params)
    )


def find_running(apply_fn: Any, params: Any, inputs: Any) -> tuple[Program, list[Layer]]:
    """The model's program and its BatchNorm layers, in order of execution."""
    statistics = _statistics_leaves(params) if has_names(params) else None
    program = trace(apply_fn, params, inputs)
    if statistics is not None:
        return program, _by_name(program, statistics)
    return program, _by_structure(program, [path for path, _ in trees.named_leaves(params)])


def _by_name(program: Program, statistics: dict[int, tuple[str, int]]) -> list[Layer]:
    made_by = producers(program)
    means = {id(program.inputs[number]): number for number in statistics}
    layers: dict[int, Layer] = {}
    for equation in program.equations:
        if equation.name != "sub":
            continue
        value, subtracted = equation.inputs
        origin = repeated_vector(subtracted, made_by)
        if origin is None or id(origin[0]) not in means:
            continue
        number = means[id(origin[0])]
        path, variance = statistics[number]
        if number in layers:
            raise _subtracted_twice(path)
        layers[number] = Layer(number, variance, value, origin[1])
    for number, (path, _) in statistics.items():
        if number not in layers:
            raise ValueError(
                f"{path!r} is not subtracted from anything in this model's program (it may run in "
                "training mode, or inside a loop); pass statistics_fn"
            )
    return list(layers.values())


def _statistics_leaves(params: Any) -> dict[int, tuple[str, int]]:
    """For the place of each running mean among the leaves, its path and that of its variance."""
    paths = [path for path, _ in trees.named_leaves(params)]
    places = {path: number for number, path in enumerate(paths)}
    found = {}
    for number, path in enumerate(paths):
        for mean, var in ENDINGS:
            variance = path.removesuffix(mean) + var
            ours = path.startswith(f"{COLLECTION}/") or mean == ENDINGS[1][0]
            if ours and path.endswith(mean) and variance in places:
                found[number] = path, places[variance]
    if not found:
        raise ValueError(
            f"{COLLECTION!r} has no leaves 'mean' and 'var' beside each other, expected those of "
            "Flax's BatchNorm; pass statistics_fn"
        )
    return found


def _by_structure(program: Program, paths: list[str]) -> list[Layer]:
    made_by, users = producers(program), _users(program)
    leaves = {id(v): number for number, v in enumerate(program.inputs[: len(paths)])}
    layers: dict[int, Layer] = {}
    for equation in program.equations:
        if equation.name != "sub":
            continue
        value, subtracted = equation.inputs
        divided_by = _divisors(equation.outputs[0], made_by, users)
        variances = {leaves[key] for key in divided_by if key in leaves}
        if not variances:
            continue
        origin = repeated_vector(subtracted, made_by)
        if origin is None or id(origin[0]) not in leaves or len(variances) > 1:
            named = ", ".join(repr(paths[number]) for number in sorted(variances))
            raise ValueError(
                f"something is divided by the root of {named} that no single leaf is subtracted "
                "from, expected a running mean and a running variance as they are; pass "
                "statistics_fn"
            )
        number, (variance,) = leaves[id(origin[0])], variances
        if number in layers:
            raise _subtracted_twice(paths[number])
        layers[number] = Layer(number, variance, value, origin[1])
    if not layers:
        raise ValueError(
            f"the parameters have no {COLLECTION!r} and no 'running_mean', and in this model's "
            "program no leaf is subtracted from what is divided by the root of another (it may run "
            "in training mode, or inside a loop): pass statistics_fn; networks without BatchNorm "
            "take repair"
        )
    return list(layers.values())


def _subtracted_twice(path: str) -> ValueError:
    return ValueError(
        f"{path!r} is subtracted in two places, expected one layer for each running mean; pass "
        "statistics_fn"
    )


def _users(program: Program) -> dict[int, list[Equation]]:
    users: dict[int, list[Equation]] = {}
    for equation in program.equations:
        for variable in equation.inputs:
            users.setdefault(id(variable), []).append(equation)
    return users


def _divisors(
    centred: Variable, made_by: Producers, users: dict[int, list[Equation]], hops: int = HOPS
) -> set[int]:
    """What lies under the roots that a value is soon divided by."""
    found: set[int] = set()
    for user in users.get(id(centred), ()):
        if user.name in ("mul", "div"):
            for other in user.inputs:
                if other is not centred:
                    found |= _under_roots(other, made_by)
        if not found and hops and user.name in (*PASSED, "mul"):
            found |= _divisors(user.outputs[0], made_by, users, hops - 1)
    return found


def _under_roots(variable: Variable, made_by: Producers, inside: bool = False) -> set[int]:
    """The variables that nothing makes, out of which a root in a factor is taken."""
    equation = made_by.get(id(variable))
    if equation is None:
        return {id(variable)} if inside else set()
    if equation.name not in (*ROOTS, *PASSED, *ARITHMETIC):
        return set()
    inside = inside or equation.name in ROOTS
    return {key for each in equation.inputs for key in _under_roots(each, made_by, inside)}
