"""One network out of every orbit: scales, signs and order of the units brought to a normal form."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align import masses, minimum_mass, ordering
from onebasin.align.checks import check_choice, check_real, check_unwrapped
from onebasin.align.touches import Box, boxes_of
from onebasin.align.unit_norm import Anchor, anchors, unit_norm
from onebasin.posterior import Draws, push_forward
from onebasin.symmetry import Element, Symmetry, SymmetryError
from onebasin.symmetry.elements import compose
from onebasin.symmetry.host import each, from_host, on_host, to_host

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
            leaf; or `Draws`.
        scaling: "min-mass" (the smallest sum of squared weights), "unit-norm" (incoming weights of
            norm one) or None (scales are left as they are).
        order: By which of its incoming weights a unit is sorted, the largest first: "max", "mean",
            "median", "first", or None (units stay where they are).
        biases: Whether biases count in the mass and in the norm. A bias is a parameter that runs
            along some of the sides of another one, and changes as that one does.
        signs: Whether signs are fixed: the incoming weight of largest magnitude is positive.

    Returns:
        The parameters in canonical form; of `Draws` again `Draws`, of the same modes.

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
    element, _ = canonical_element(symmetry, params, scaling, order, biases=biases, signs=signs)
    if isinstance(params, Draws):
        return push_forward(symmetry, element, params)
    _, _, stacked = _flatten(symmetry, params)
    return symmetry.act_many(element, params) if stacked else symmetry.act(element, params)


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
    recipe = _recipe(symmetry, scaling, order, biases, signs)
    if isinstance(params, Draws):
        params = params.params
    check_unwrapped("the network", params)
    check_real(params)
    leaves, _, stacked = _flatten(symmetry, params)
    if not stacked:
        leaves = [leaf[None] for leaf in leaves]
    if on_host(leaves):
        with np.errstate(all="ignore"):
            found = from_host(recipe.solve(to_host(leaves), np))
    else:
        found = recipe.compiled(leaves)
    element, report, finite = found if stacked else jax.tree.map(lambda x: x[0], found)
    _check_finite(symmetry, finite)
    return element, report


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """What is to be done for one group and one choice of options, worked out once.

    Attributes:
        symmetry: The group.
        scaling: Which scales are canonical.
        order: Which order is canonical.
        boxes: The boxes of the parameters in order of use.
        counted: The boxes that count in the mass.
        rows: What makes up the mass of each factor.
        norms: Where unit norm is measured.
        leftover: Where it is measured for what minimum mass leaves open.
        flips: Where signs are read off; none leaves them.
        unbounded: The parameters whose mass has no minimum.
    """

    symmetry: Symmetry
    scaling: str | None
    order: str | None
    boxes: tuple[Box, ...]
    counted: tuple[int, ...]
    rows: list[minimum_mass.Row]
    norms: list[Anchor]
    leftover: list[Anchor]
    flips: list[Anchor]
    unbounded: tuple[str, ...]

    def solve(self, leaves: list[Any], xp: Any) -> tuple[Element, CanonicalReport, Any]:
        """Elements and reports of stacked draws, and whether their leaves are finite."""
        finite = xp.stack(
            [xp.all(xp.isfinite(leaf.reshape(len(leaf), -1)), axis=1) for leaf in leaves], axis=1
        )
        scales, report = self._scales(leaves, xp)
        finish = each(functools.partial(self._finish, xp), xp)
        return finish(scales, leaves), report, finite

    @functools.cached_property
    def compiled(self) -> Any:
        """`solve`, with products in full precision, which accelerators do not default to."""

        def traced(leaves: list[Any]) -> Any:
            with jax.default_matmul_precision("highest"):
                return self.solve(leaves, jnp)

        return jax.jit(traced)

    def _scales(self, leaves: list[Any], xp: Any) -> tuple[dict[str, Any], CanonicalReport]:
        boxes, count = self.boxes, len(leaves[0])
        weights = {i: masses.measure(box, leaves, xp) for i, box in enumerate(boxes)}
        dtype = np.result_type(np.float32, *(mass.entries.dtype for mass in weights.values()))
        start = {
            name: xp.zeros((count, *scales.shape), dtype)
            for name, scales in self.symmetry.identity(np).log_scales.items()
        }
        scales, sweeps = start, xp.zeros(count, xp.int32)
        if self.scaling == "unit-norm" or (self.scaling == "min-mass" and self.unbounded):
            scales = unit_norm(boxes, weights, scales, self.norms, xp)
        if self.scaling == "min-mass" and self.rows:
            scales, sweeps = minimum_mass.minimise(boxes, weights, self.rows, scales, xp)
            scales = unit_norm(boxes, weights, scales, self.leftover, xp)
        nothing = xp.zeros(count, dtype)
        gradient, dead = minimum_mass.balance(boxes, weights, self.rows, scales, xp)
        before, after = (
            sum((masses.total_mass(boxes[i], weights[i], s, xp) for i in self.counted), nothing)
            for s in (start, scales)
        )
        report = CanonicalReport(
            mass_before=before,
            mass_after=after,
            sweeps=sweeps,
            gradient=nothing + gradient,
            dead=xp.zeros(count, xp.int32) + dead,
            unbounded=self.unbounded,
        )
        return scales, report

    def _finish(self, xp: Any, scales: dict[str, Any], leaves: list[Any]) -> Element:
        """Signs and order of one network, on top of its scales."""
        identity = self.symmetry.identity(xp)
        element = identity._replace(log_scales=scales)
        if self.flips:
            scaled = self.symmetry.act_on_leaves(element, leaves, xp)
            settled = ordering.settle_signs(self.boxes, scaled, identity.signs, self.flips, xp)
            element = element._replace(signs=settled)
        if self.order:
            moved = self.symmetry.act_on_leaves(element, leaves, xp)
            sort = ordering.sort_units(self.symmetry, self.boxes, moved, self.order, xp)
            element = compose(self.symmetry, identity._replace(permutations=sort), element, xp)
        return element


def minimum_mass_recipe(symmetry: Symmetry) -> Recipe:
    """What minimum mass is of a group: the boxes, what each factor's mass is made of."""
    return _recipe(symmetry, "min-mass", None, True, False)


@functools.lru_cache(maxsize=64)
def _recipe(
    symmetry: Symmetry, scaling: str | None, order: str | None, biases: bool, signs: bool
) -> Recipe:
    if scaling is not None:
        check_choice("scaling", scaling, (*SCALINGS, None))
    if order is not None:
        check_choice("order", order, (*ordering.ORDERS, None))
    boxes = boxes_of(symmetry)
    counted = {i for i, box in enumerate(boxes) if biases or box.kernel is None}
    lost = minimum_mass.vanishing(boxes, counted)
    counted -= lost
    return Recipe(
        symmetry=symmetry,
        scaling=scaling,
        order=order,
        boxes=boxes,
        counted=tuple(sorted(counted)),
        rows=minimum_mass.rows_of(symmetry, boxes, counted),
        norms=anchors(symmetry, boxes, "scalings", biases=biases),
        leftover=anchors(symmetry, boxes, "scalings", biases=biases, settled=counted)
        if lost
        else [],
        flips=anchors(symmetry, boxes, "signs", biases=False) if signs else [],
        unbounded=tuple(dict.fromkeys(symmetry.leaves[boxes[i].leaf].path for i in sorted(lost))),
    )


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
