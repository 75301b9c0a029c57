"""One network out of every orbit: scales, signs and order of the units brought to a normal form."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align import masses, minimum_mass, ordering
from onebasin.align.checks import check_choice
from onebasin.align.touches import boxes_of
from onebasin.align.unit_norm import anchors, unit_norm
from onebasin.symmetry import Element, Symmetry, SymmetryError

Scaling = Literal["min-mass", "unit-norm"]
Order = Literal["max", "mean", "median", "first"]
SCALINGS = ("min-mass", "unit-norm")


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("mass_before", "mass_after", "sweeps", "gradient", "dead"),
    meta_fields=("unbounded",),
)
@dataclasses.dataclass(frozen=True)
class CanonicalReport:
    """What `canonical_element` did to the scales; arrays with one entry per draw for stacked draws.

    Attributes:
        mass_before: Sum of the squared weights that count: all that the function uses, without
            biases if these were left out, and without what `unbounded` lists.
        mass_after: The same in canonical form.
        sweeps: Number of sweeps over the factors that minimum mass took.
        gradient: Largest abs(in-mass - out-mass) / (in-mass + out-mass) of any canonical unit.
        dead: Number of units with a scale that was left alone, as its in-mass or out-mass is zero.
        unbounded: The parameters whose mass can be driven to zero without raising any other: their
            mass has no minimum, and with scaling="min-mass" they are brought to unit norm instead.
    """

    mass_before: Any
    mass_after: Any
    sweeps: Any
    gradient: Any
    dead: Any
    unbounded: tuple[str, ...]

    @property
    def bounded(self) -> bool:
        """Whether the mass of all weights that count has a minimum."""
        return not self.unbounded

    @property
    def excess_mass(self) -> Any:
        """By how much the mass was above that of the canonical form, as a share of the latter."""
        return self.mass_before / self.mass_after - 1

    def __str__(self) -> str:
        def say(values: Any, form: str) -> str:
            low, high = float(np.min(values)), float(np.max(values))
            return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"

        lines = [
            f"mass      {say(self.mass_before, '.6g')} -> {say(self.mass_after, '.6g')} "
            f"(excess {say(100 * np.asarray(self.excess_mass), '.1f')} %)",
            f"sweeps    {say(self.sweeps, '.0f')}, gradient {say(self.gradient, '.1e')}",
            f"dead      {say(self.dead, '.0f')} units left alone",
        ]
        if self.unbounded:
            lines.append(
                "unbounded " + ", ".join(self.unbounded) + ": no minimum, brought to unit norm"
            )
        return "\n".join(lines)


def canonicalize(
    symmetry: Symmetry,
    params: Any,
    scaling: Scaling | None = "min-mass",
    order: Order | None = "max",
    *,
    biases: bool = True,
    signs: bool = True,
) -> Any:
    """The canonical network among all that compute the same function.

    First the scales are fixed, then the signs, then the order of the units. Networks that differ by
    an element of the group have the same canonical form, up to rounding, unless units are dead or
    alike: a dead unit keeps its scale, and units that are alike keep their order.

    Args:
        symmetry: The group, from `onebasin.discover`.
        params: A network's parameters, or those of stacked draws: one more axis in front of every
            leaf.
        scaling: "min-mass" (the smallest sum of squared weights), "unit-norm" (incoming weights of
            norm one) or None (scales are left as they are).
        order: By which of its incoming weights a unit is sorted, the largest first: "max", "mean",
            "median", "first", or None (units stay where they are).
        biases: Whether biases count in the mass and in the norm. A bias is a parameter that runs
            along some of the sides of another one, and changes as that one does.
        signs: Whether signs are fixed: the incoming weight of largest magnitude is positive.

    Returns:
        The parameters in canonical form.

    Raises:
        ValueError: If a weight is NaN or infinite, or if an option is not known.
        SymmetryError: If the parameters are those of another model.

    Example:
        >>> import jax, jax.numpy as jnp, onebasin as ob
        >>> from onebasin.align.canonical import canonicalize
        >>> def model(params, x):
        ...     return jax.nn.relu(x @ params["inner"]) @ params["outer"]
        >>> params = {
        ...     "inner": jnp.array([[8.0, 1.0, 2.0]]),
        ...     "outer": jnp.array([[2.0], [9.0], [8.0]]),
        ... }
        >>> symmetry = ob.discover(model, params, jnp.ones((1, 1)))
        >>> print(canonicalize(symmetry, params)["inner"].round(4))
        [[4. 4. 3.]]
    """
    program = _program(symmetry, scaling, order, biases, signs)
    leaves, structure, stacked = _flatten(symmetry, params)
    moved, finite = program.stacked_move(leaves) if stacked else program.move(leaves)
    _check_finite(symmetry, finite)
    return jax.tree.unflatten(structure, moved)


def canonical_element(
    symmetry: Symmetry,
    params: Any,
    scaling: Scaling | None = "min-mass",
    order: Order | None = "max",
    *,
    biases: bool = True,
    signs: bool = True,
) -> tuple[Element, CanonicalReport]:
    """The element that takes a network to its canonical form, and what it did to the mass.

    Arguments as in `canonicalize`; for stacked draws the arrays of element and report have the axis
    of the draws in front.

    Returns:
        The element g, with `symmetry.act(g, params)` canonical, and the report.
    """
    program = _program(symmetry, scaling, order, biases, signs)
    leaves, _, stacked = _flatten(symmetry, params)
    element, report, finite = program.stacked_solve(leaves) if stacked else program.solve(leaves)
    _check_finite(symmetry, finite)
    return element, report


@dataclasses.dataclass(frozen=True)
class _Program:
    """Compiled functions of the flat list of leaves, for one network and for stacked draws."""

    solve: Callable[..., Any]
    move: Callable[..., Any]
    stacked_solve: Callable[..., Any]
    stacked_move: Callable[..., Any]


@functools.lru_cache(maxsize=64)
def _program(
    symmetry: Symmetry, scaling: str | None, order: str | None, biases: bool, signs: bool
) -> _Program:
    if scaling is not None:
        check_choice("scaling", scaling, SCALINGS)
    if order is not None:
        check_choice("order", order, ordering.ORDERS)
    boxes = boxes_of(symmetry)
    counted = {i for i, box in enumerate(boxes) if biases or box.kernel is None}
    lost = minimum_mass.vanishing(boxes, counted)
    counted -= lost
    rows = minimum_mass.rows_of(symmetry, boxes, counted)
    norms = anchors(symmetry, boxes, "scalings", biases=biases)
    leftover = anchors(symmetry, boxes, "scalings", biases=biases, settled=counted) if lost else []
    flips = anchors(symmetry, boxes, "signs", biases=False) if signs else []
    unbounded = tuple(dict.fromkeys(symmetry.leaves[boxes[i].leaf].path for i in sorted(lost)))

    def mass(weights: dict[int, masses.Mass], scales: masses.LogScales) -> Any:
        return sum(
            (masses.total_mass(boxes[i], weights[i], scales) for i in counted), jnp.zeros(())
        )

    def solve(leaves: list[Any]) -> tuple[Element, CanonicalReport, Any]:
        dtype = functools.reduce(
            jnp.promote_types, (leaves[box.leaf].dtype for box in boxes), jnp.float32
        )
        weights = {i: masses.measure(box, leaves, dtype) for i, box in enumerate(boxes)}
        identity = symmetry.identity()
        start = {name: jnp.zeros_like(s, dtype) for name, s in identity.log_scales.items()}
        scales, sweeps = start, jnp.zeros((), jnp.int32)
        if scaling == "unit-norm" or (scaling == "min-mass" and lost):
            scales = unit_norm(boxes, weights, scales, norms)
        if scaling == "min-mass":
            tolerance = minimum_mass.tolerance(dtype)
            scales, sweeps = minimum_mass.minimise(boxes, weights, rows, scales, tolerance)
            scales = unit_norm(boxes, weights, scales, leftover)
        gradient, dead = minimum_mass.balance(boxes, weights, rows, scales)
        report = CanonicalReport(
            mass_before=mass(weights, start),
            mass_after=mass(weights, scales),
            sweeps=sweeps,
            gradient=gradient,
            dead=dead,
            unbounded=unbounded,
        )
        element = Element(identity.permutations, scales, identity.signs)
        if signs:
            scaled = symmetry.act_on_leaves(element, leaves)
            settled = ordering.settle_signs(boxes, scaled, identity.signs, flips)
            element = element._replace(signs=settled)
        if order:
            moved = symmetry.act_on_leaves(element, leaves)
            sort = ordering.sort_units(symmetry, boxes, moved, order)
            sorting = identity._replace(permutations=sort)
            element = symmetry.compose(sorting, element)
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves])
        return element, report, finite

    def move(leaves: list[Any]) -> tuple[list[Any], Any]:
        element, _, finite = solve(leaves)
        return symmetry.act_on_leaves(element, leaves), finite

    return _Program(*(_exact(f) for f in (solve, move, jax.vmap(solve), jax.vmap(move))))


def _exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function with products in full precision, which accelerators do not default to."""

    def traced(leaves: list[Any]) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(leaves)

    return jax.jit(traced)


def _flatten(symmetry: Symmetry, params: Any) -> tuple[list[Any], Any, bool]:
    """The leaves as arrays, and whether they are stacked draws."""
    arrays = jax.tree.map(jnp.asarray, params)
    found = jax.tree.leaves(arrays)
    deeper = [
        a.ndim == len(leaf.shape) + 1 for a, leaf in zip(found, symmetry.leaves, strict=False)
    ]
    if len(found) != len(symmetry.leaves) or not found or not all(deeper):
        return *symmetry.flatten(arrays), False
    draws = found[0].shape[0]
    _, structure = symmetry.flatten(
        jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), arrays)
    )
    for leaf, array in zip(symmetry.leaves, found, strict=True):
        if len(array) != draws:
            raise SymmetryError(
                f"parameter {leaf.path!r} has {len(array)} draws, but "
                f"{symmetry.leaves[0].path!r} has {draws}; expected one axis of draws in front of "
                "every parameter, equally long"
            )
    if not draws:
        raise ValueError("there are no draws to canonicalize: the leading axis has length 0")
    return found, structure, True


def _check_finite(symmetry: Symmetry, finite: Any) -> None:
    """Refuses NaN and infinity, naming the leaf; while JAX traces, values cannot be looked at."""
    if isinstance(finite, jax.core.Tracer):
        return
    good = np.asarray(finite).reshape(-1, len(symmetry.leaves)).all(axis=0)
    if not good.all():
        path = symmetry.leaves[int(np.argmin(good))].path
        raise ValueError(
            f"parameter {path!r} holds NaN or infinite values, and has no canonical form; drop "
            "the network or mend the parameter"
        )
