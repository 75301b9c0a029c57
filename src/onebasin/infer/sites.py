"""Finds the places of a program where a parameter is the matrix of a linear map.

A *site* is a product or a convolution of a value that depends on the inputs with a parameter that
is used nowhere else, seen as rows a_t (t a position in an image or a sequence) times a matrix W.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry.program import (
    MOVES,
    Equation,
    Program,
    Variable,
    depends_on,
    moved,
    moved_index,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """A parameter W and the bias that is added behind it.

    Attributes:
        kernel: Which leaf W is.
        bias: Which leaf its bias is, if there is one.
        kernel_index: (inputs, outputs): where the entries of the matrix lie in the leaf, raveled.
        bias_index: (outputs,): the same for the bias.
        positions: The number of rows of one example.
        equation: The operation.
        moves: What happens to the leaf before.
        side: Which operand of the operation depends on the inputs.
    """

    kernel: int
    bias: int | None
    kernel_index: np.ndarray
    bias_index: np.ndarray | None
    positions: int
    equation: Equation
    moves: tuple[Equation, ...]
    side: int

    def moved(self, leaf: Any) -> Any:
        """The leaf as the operation sees it."""
        return moved(self.moves, leaf)

    def rows(self, operand: Any) -> jax.Array:
        """What enters the operation as rows (positions, inputs), a 1 behind each for the bias."""
        rows = _CONTRACTIONS[self.equation.name].rows(self.equation, self.side, operand)
        if self.bias is not None:
            rows = jnp.concatenate([rows, jnp.ones((len(rows), 1), rows.dtype)], axis=1)
        return rows

    def outputs(self, result: Any) -> jax.Array:
        """The operation's result, or a derivative with respect to it, as (positions, outputs)."""
        return _CONTRACTIONS[self.equation.name].outputs(self.equation, self.side, result)

    def factor_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of factors, the same at all positions, for what enters and for the result.

        Multiplying both is multiplying rows and columns of the matrix.
        """
        return _CONTRACTIONS[self.equation.name].factor_shapes(self.equation, self.side)


def find_sites(program: Program, count: int) -> tuple[tuple[Site, ...], tuple[int, ...]]:
    """The sites of a program whose first `count` inputs are parameters.

    Returns:
        The sites in the order of the program, and the leaves that are used once, in a sum.
    """
    data = depends_on(program, program.inputs[count:])
    uses = _uses(program)
    order = {id(equation): n for n, equation in enumerate(program.equations)}
    kernels, sums = [], {}
    for leaf, variable in enumerate(program.inputs[:count]):
        moves, last, equation = _follow(variable, uses)
        if equation is None or len(equation.inputs) != 2:
            continue
        side = 1 - equation.inputs.index(last)
        if id(equation.inputs[side]) not in data:
            continue
        places = moved_index(variable.shape, moves)
        if equation.name in ("add", "add_any"):
            sums[leaf] = (id(equation.inputs[side]), places)
        elif _linear(equation, side) and len(np.unique(places)) == places.size:
            kernels.append((order[id(equation)], leaf, places, moves, equation, side))
    sites = []
    for _, leaf, places, moves, equation, side in sorted(kernels, key=lambda found: found[0]):
        rule = _CONTRACTIONS[equation.name]
        index = rule.matrix(equation, side, places)
        (result,) = equation.outputs
        added = [i for i, (to, _) in sums.items() if to == id(result)]
        bias, bias_index = None, None
        if len(added) == len(uses[id(result)]) == 1:
            bias_index = _bias_index(equation, side, sums[added[0]][1], index.shape[1])
            bias = None if bias_index is None else added[0]
        positions = int(np.prod(result.shape)) // index.shape[1]
        sites.append(Site(leaf, bias, index, bias_index, positions, equation, tuple(moves), side))
    return tuple(sites), tuple(sums)


def _bias_index(
    equation: Equation, side: int, places: np.ndarray, outputs: int
) -> np.ndarray | None:
    """Which entry of a leaf that is added to a result belongs to each output, if one does."""
    spread = np.broadcast_to(places, equation.outputs[0].shape)
    rows = _CONTRACTIONS[equation.name].outputs(equation, side, spread)
    alike = (rows == rows[0]).all() and len(np.unique(rows[0])) == outputs
    return rows[0] if alike and rows[0].max() + 1 == outputs else None


class _Dense:
    """`dot_general` without batch axes; the contracted axes are the inputs."""

    @staticmethod
    def axes(equation: Equation, side: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        contracted, _ = equation.params["dimension_numbers"]
        return tuple(contracted[side]), tuple(contracted[1 - side])

    @classmethod
    def matrix(cls, equation: Equation, side: int, places: np.ndarray) -> np.ndarray:
        _, inner = cls.axes(equation, side)
        outer = [axis for axis in range(places.ndim) if axis not in inner]
        size = int(np.prod([places.shape[axis] for axis in inner]))
        return places.transpose(*inner, *outer).reshape(size, -1)

    @classmethod
    def rows(cls, equation: Equation, side: int, operand: Any) -> jax.Array:
        inner, _ = cls.axes(equation, side)
        outer = [axis for axis in range(operand.ndim) if axis not in inner]
        size = int(np.prod([operand.shape[axis] for axis in inner]))
        return operand.transpose(*outer, *inner).reshape(-1, size)

    @classmethod
    def outputs(cls, equation: Equation, side: int, result: Any) -> jax.Array:
        _, inner = cls.axes(equation, side)
        kernel = equation.inputs[1 - side].shape
        size = int(np.prod(kernel)) // int(np.prod([kernel[axis] for axis in inner]))
        return result.reshape(-1, size) if side == 0 else result.reshape(size, -1).T

    @classmethod
    def factor_shapes(
        cls, equation: Equation, side: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        inner, kernel_inner = cls.axes(equation, side)
        operand, kernel = equation.inputs[side].shape, equation.inputs[1 - side].shape
        own = [n for axis, n in enumerate(kernel) if axis not in kernel_inner]
        rest = [1] * (len(operand) - len(inner))
        entering = tuple(n if axis in inner else 1 for axis, n in enumerate(operand))
        return entering, tuple([*rest, *own] if side == 0 else [*own, *rest])


class _Convolution:
    """`conv_general_dilated` without groups; a row is the patch that a window sees."""

    @staticmethod
    def matrix(equation: Equation, side: int, places: np.ndarray) -> np.ndarray:
        spec = equation.params["dimension_numbers"].rhs_spec
        return places.transpose(spec).reshape(places.shape[spec[0]], -1).T

    @classmethod
    def rows(cls, equation: Equation, side: int, operand: Any) -> jax.Array:
        params = equation.params
        kernel = equation.inputs[1].shape
        patches = jax.lax.conv_general_dilated_patches(
            operand,
            filter_shape=[kernel[axis] for axis in params["dimension_numbers"].rhs_spec[2:]],
            window_strides=params["window_strides"],
            padding=params["padding"],
            lhs_dilation=params["lhs_dilation"],
            rhs_dilation=params["rhs_dilation"],
            dimension_numbers=params["dimension_numbers"],
            precision=jax.lax.Precision.HIGHEST,
        )
        return cls.outputs(equation, side, patches)

    @staticmethod
    def outputs(equation: Equation, side: int, result: Any) -> jax.Array:
        batch, channel, *spatial = equation.params["dimension_numbers"].out_spec
        rows = result.transpose(batch, *spatial, channel)
        return rows.reshape(-1, rows.shape[-1])

    @staticmethod
    def factor_shapes(equation: Equation, side: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        numbers = equation.params["dimension_numbers"]
        ends = (
            (equation.inputs[side].shape, numbers.lhs_spec[1]),
            (equation.outputs[0].shape, numbers.out_spec[1]),
        )
        entering, result = (
            tuple(n if axis == channel else 1 for axis, n in enumerate(shape))
            for shape, channel in ends
        )
        return entering, result


_CONTRACTIONS: dict[str, Any] = {"dot_general": _Dense, "conv_general_dilated": _Convolution}


def _linear(equation: Equation, side: int) -> bool:
    """Whether an equation makes its operand other than `side` the matrix of a site."""
    params = equation.params
    if equation.name == "dot_general":
        return not any(params["dimension_numbers"][1])
    if equation.name == "conv_general_dilated":
        return side == 0 and params["feature_group_count"] == params["batch_group_count"] == 1
    return False


def _uses(program: Program) -> dict[int, list[Any]]:
    """The equations that read each variable, once for each operand; an output counts as one."""
    uses: dict[int, list[Any]] = {}
    for equation in program.equations:
        for variable in equation.inputs:
            uses.setdefault(id(variable), []).append(equation)
    for variable in program.outputs:
        uses.setdefault(id(variable), []).append(None)
    return uses


def _follow(
    variable: Variable, uses: dict[int, list[Any]]
) -> tuple[list[Equation], Variable, Equation | None]:
    """Goes along with a parameter while it is only moved; the last is the one that uses it."""
    moves: list[Equation] = []
    while len(uses.get(id(variable), ())) == 1:
        (equation,) = uses[id(variable)]
        if equation is None or equation.name not in MOVES:
            return moves, variable, equation
        moves.append(equation)
        (variable,) = equation.outputs
    return moves, variable, None
