"""The axis pass: walks a program once, types every axis, and leaves the steps for later passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from onebasin.symmetry import axes, rules_elementwise, rules_reduce, rules_structure
from onebasin.symmetry.axes import ANY, FIXED
from onebasin.symmetry.choices import without_indices
from onebasin.symmetry.flips import unfolded
from onebasin.symmetry.foreign import implementation, never
from onebasin.symmetry.parity import expanded
from onebasin.symmetry.pieces import (
    Cut,
    joined,
    lift,
    picked_apart,
    reshape_apart,
    reshape_pieces,
    rows_of_sums,
)
from onebasin.symmetry.pieces import Operand as Argument
from onebasin.symmetry.program import (
    MOVES,
    Equation,
    Program,
    Variable,
    flatten,
    scan_counts,
    uniform_axes,
)
from onebasin.symmetry.ragged import without_groups
from onebasin.symmetry.rewrite import rewritten
from onebasin.symmetry.shuffles import SHUFFLE, shuffled
from onebasin.symmetry.steps import Operand, Recorder, Value

Rule = Callable[[Recorder, Equation, list[Value]], list[Value]]

RULES: dict[str, Rule] = {
    **rules_elementwise.RULES,
    **rules_structure.RULES,
    **rules_reduce.RULES,
    SHUFFLE.name: shuffled,
}


def fixed(shape: Sequence[int]) -> Value:
    """A value that is no parameter: told apart along every axis, carrying nothing."""
    return Value(tuple(shape), (FIXED,) * len(shape))


def constant(array: Any) -> Value:
    """A constant: uniform along the axes that cannot tell positions apart."""
    if jax.dtypes.issubdtype(getattr(array, "dtype", np.float32), jax.dtypes.extended):
        return fixed(np.shape(array))
    array = np.asarray(array)
    kinds = tuple(ANY if uniform else FIXED for uniform in uniform_axes(array))
    real = any(jax.dtypes.issubdtype(array.dtype, kind) for kind in (np.floating, np.integer))
    plain = array.size and real and all(k is ANY for k in kinds)
    known = float(array.flat[0]) if plain else None
    if array.size and np.iscomplexobj(array) and not array.any():
        known = 0.0
    return Value(array.shape, kinds, {}, known)


class Interpreter(Recorder):
    """A recorder that knows how to read the program.

    Args:
        main: The program, of which it keeps the types of all values.
        apart: Which reshapes to take apart, by their order in the program, and how.
        choices: Whether indices that are chosen by value are written as rows.
    """

    def __init__(self, main: Program, apart: dict[int, Cut] | None = None, choices: bool = True):
        super().__init__()
        self.main = main
        self.apart = apart or {}
        self.choices = choices
        self.types: dict[int, Argument] = {}
        # Values are known by the ids of variables: these must live as long.
        self.programs: list[Program] = []
        self.parameters: set[int] = set()
        self.chosen = False
        self.reshapes: list[Argument] = []
        self.folded: dict[int, Cut] = {}

    def follow_parameters(self, equation: Equation) -> None:
        """Notes what is a parameter, or a part of one, after an equation."""
        if (
            equation.name in (*MOVES, "slice", "split")
            and id(equation.inputs[0]) in self.parameters
        ):
            self.parameters.update(map(id, equation.outputs))

    def enter(self, body: Program, arguments: Sequence[Variable]) -> Program:
        """A body, its inputs being parameters where its arguments are."""
        pairs = zip(arguments, body.inputs, strict=True)
        self.parameters.update(id(v) for own, v in pairs if id(own) in self.parameters)
        return body

    def candidates(self) -> dict[int, Cut]:
        """Reshapes that had better be taken apart: where results are picked apart, and sums."""
        found = {}
        for number, value in enumerate(self.reshapes):
            axis = picked_apart(value) if isinstance(value, Value) else None
            if axis is not None:
                found[number] = Cut(axis, (1,) * value.shape[axis])
        return self.folded | found

    def shape_anew(self, source: Argument, shape: tuple[int, ...]) -> Argument:
        number = len(self.reshapes)
        if number in self.apart:
            result = reshape_apart(self, joined(self, source), shape, self.apart[number])
        else:
            cut = rows_of_sums(source, shape)
            if cut is not None:
                self.folded[number] = cut
            result = reshape_pieces(self, source, shape)
        self.reshapes.append(result)
        return result


def run(recorder: Interpreter, program: Program, arguments: Sequence[Argument]) -> list[Value]:
    """Interprets a program on typed values."""
    values: dict[int, Argument] = dict(zip(map(id, program.inputs), arguments, strict=True))

    def read(variable: Variable) -> Argument:
        if id(variable) not in values:
            values[id(variable)] = constant(variable.constant)
        return values[id(variable)]

    grouped = without_groups(program)
    chosen = without_indices(grouped, recorder.parameters) if recorder.choices else grouped
    recorder.chosen |= chosen is not grouped
    written = expanded(unfolded(rewritten(chosen)), rules_elementwise.ODD)
    recorder.programs += [program, grouped, chosen, written]
    for equation in written.equations:
        recorder.follow_parameters(equation)
        operands = [read(variable) for variable in equation.inputs]
        values.update(
            zip(map(id, equation.outputs), _step(recorder, equation, operands), strict=True)
        )
    if program is recorder.main:
        recorder.types = values
    return [joined(recorder, read(variable)) for variable in program.outputs]


def _step(recorder: Interpreter, equation: Equation, operands: list[Argument]) -> list[Argument]:
    name = equation.name
    if name in CONTROL:
        return list(CONTROL[name](recorder, equation, [joined(recorder, o) for o in operands]))
    if name == "reshape" and equation.params.get("dimensions") is None:
        return [recorder.shape_anew(operands[0], equation.outputs[0].shape)]
    if name in RULES:
        return lift(recorder, equation, operands, RULES[name])
    whole = [joined(recorder, o) for o in operands]
    raised = never(equation)
    if raised is not None:
        return list(raised)
    body = implementation(equation)
    if body is not None:
        return list(run(recorder, recorder.enter(body, equation.inputs), whole))
    recorder.unknown_primitives.setdefault(name, len(operands))
    return list(recorder.opaque(whole, [v.shape for v in equation.outputs]))


def _link(recorder: Recorder, first: Value, second: Value, loop: str | None = None) -> None:
    """Two values that stand for one another across a loop's edge carry the same."""
    names = tuple(range(first.rank))
    closed = frozenset([loop]) if loop else frozenset()
    recorder.operation(
        [Operand(first, names), Operand(second, names)], [], combine="equal", closed=closed
    )


def _carried(recorder: Recorder, start: Value) -> Value:
    """The state of a loop: nothing is known of it but that it agrees with its start."""
    state = recorder.unknown(start.shape)
    _link(recorder, start, state)
    return state


def scan(recorder: Interpreter, equation: Equation, values: list[Value]) -> list[Value]:
    """The body once; a slice of a stacked operand varies with the loop's own index."""
    params = equation.params
    num_consts, num_carried = scan_counts(equation)
    consts, starts = values[:num_consts], values[num_consts : num_consts + num_carried]
    stacked = values[num_consts + num_carried :]
    loop = recorder.loop_name()
    axes.pin(axes.meet(value.axes[0] for value in stacked))

    slices = []
    for value in stacked:
        names = (loop, *range(1, value.rank))
        slices += recorder.operation([Operand(value, names)], [(value.shape[1:], names[1:])])
    states = [_carried(recorder, start) for start in starts]
    live = [True] * len(states) + equation.live[len(states) :]
    body = recorder.enter(flatten(params["jaxpr"], live), equation.inputs)
    results = run_live(recorder, body, [*consts, *states, *slices], live)
    for state, after in zip(states, results, strict=False):
        assert after is not None
        _link(recorder, state, after, loop)

    outputs = list(states)
    for variable, each in zip(equation.outputs[len(states) :], results[len(states) :], strict=True):
        if each is None:
            outputs.append(fixed(variable.shape))
            continue
        names = tuple(range(1, each.rank + 1))
        named = loop if loop in each.hidden else None
        outputs += recorder.operation(
            [Operand(each, names)], [(variable.shape, (named, *names))], combine="equal"
        )
    return outputs


def run_live(
    recorder: Interpreter, program: Program, arguments: Sequence[Value], live: Sequence[bool]
) -> list[Value | None]:
    """Like `run`, but outputs that nobody reads may not have been computed."""
    kept = [v for v, keep in zip(program.outputs, live, strict=True) if keep]
    trimmed = Program(program.inputs, kept, program.equations)
    results = iter(run(recorder, trimmed, arguments))
    return [next(results) if keep else None for keep in live]


def while_loop(recorder: Interpreter, equation: Equation, values: list[Value]) -> list[Value]:
    params = equation.params
    split = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    cond_consts, body_consts = values[: split[0]], values[split[0] : split[1]]
    states = [_carried(recorder, start) for start in values[split[1] :]]
    body = recorder.enter(flatten(params["body_jaxpr"]), equation.inputs[split[0] :])
    results = run(recorder, body, [*body_consts, *states])
    for state, after in zip(states, results, strict=True):
        _link(recorder, state, after)
    (going,) = run(recorder, flatten(params["cond_jaxpr"]), [*cond_consts, *states])
    recorder.operation([Operand(going, (None,) * going.rank, None)], [])
    return states


def cond(recorder: Interpreter, equation: Equation, values: list[Value]) -> list[Value]:
    which, *operands = values
    branches = [
        run_live(
            recorder,
            recorder.enter(flatten(branch, equation.live), equation.inputs[1:]),
            operands,
            equation.live,
        )
        for branch in equation.params["branches"]
    ]
    outputs = []
    for variable, cases in zip(equation.outputs, zip(*branches, strict=True), strict=True):
        names = tuple(range(len(variable.shape)))
        present = [Operand(case, names) for case in cases if case is not None]
        if not present:
            outputs.append(fixed(variable.shape))
            continue
        outputs += recorder.operation(
            [*present, Operand(which, (), None)], [(variable.shape, names)], combine="equal"
        )
    return outputs


CONTROL: dict[str, Callable[[Interpreter, Equation, list[Value]], list[Value]]] = {
    "scan": scan,
    "while": while_loop,
    "cond": cond,
}
