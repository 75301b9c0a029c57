"""Aligning one network, or one posterior, to another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onebasin.align import channels
from onebasin.align.assignment import Assignment, margin
from onebasin.align.canonical import SCALINGS
from onebasin.align.certificate import Alignment
from onebasin.align.checks import check_choice, check_pair
from onebasin.align.data_cost import DataCost
from onebasin.align.descent import Objective
from onebasin.align.gauge import scaling_element, size_of
from onebasin.align.nearest import gain_of_scales
from onebasin.align.pairing import Pairing
from onebasin.align.paths import PATHS
from onebasin.align.search import STARTS, Found
from onebasin.align.signs import best_signs
from onebasin.align.solvers import SEARCHES, SOLVERS, solve
from onebasin.align.state import State
from onebasin.align.task import Task, leaves_of, mean_of, push
from onebasin.posterior import Gaussian
from onebasin.symmetry import Element, Symmetry, transpositions

WEIGHT_COSTS = ("weights", *channels.GAUSSIAN_COSTS)
DATA_COSTS = ("activations", "correlation", "contributions", "preactivations")
COSTS = (*WEIGHT_COSTS, *DATA_COSTS)
DISTANCES = ("weights", "wasserstein")
AUTO = "auto"
ROUNDING = 1e-6
# The part of a distance that scales must promise to take away.
WORTHWHILE = 1e-3
LAST_BITS = 1e-9


def align(
    symmetry: Symmetry,
    params: Any,
    to: Any,
    cost: str = "weights",
    *,
    apply_fn: Callable[[Any, Any], Any] | None = None,
    inputs: Any = None,
    scaling: str | None = "auto",
    starts: Sequence[str | State] = STARTS,
    restarts: int = 0,
    seed: int = 0,
    max_sweeps: int = 100,
    solver: str = "descent",
    search: str | None = None,
    loss_fn: Callable[[Any], Any] | None = None,
    path: str = "geodesic",
    steps: int | None = None,
    assignment: str | None = None,
    batch_size: int = 1000,
) -> Alignment:
    """Moves a network, or a Gaussian posterior, into the basin of a reference.

    Permutations and signs are found by exact assignments, and scales beside them: for params =
    g . reference, the result is the reference.

    Args:
        symmetry: The model's group, from `onebasin.discover`.
        params: What is to be moved: parameters, or a `Gaussian`.
        to: The reference: parameters, or a `Gaussian`.
        cost: "weights" (squared distance), "wasserstein", "kl" ("kl-forward", "kl-reverse",
            "kl-mean") for Gaussians; "activations", "correlation", "contributions" or
            "preactivations", which need `apply_fn` and `inputs`. Units that no product reads go by
            what makes them, and the other way round.
        apply_fn: The model, for costs that look at data.
        inputs: Data for such costs; the leading axis is the example.
        scaling: What becomes of scalings. "auto": costs that are distances ("weights",
            "wasserstein") match as they are and, where scales keep matched units apart, in
            canonical scales too, and keep what is nearer; other costs go by "min-mass". "min-mass" (least expected mass of a Gaussian) and
            "unit-norm" remove scalings from both sides, match there (and count the cost there), and
            give the result the reference's scale. None leaves them, as before `reset_batch_norm`:
            BatchNorm's hold only while its running statistics stay.
        starts: Where coordinate descent starts from; the best is kept.
        restarts: Number of further random starts.
        seed: Seed of all random choices.
        max_sweeps: Most rounds of coordinate descent.
        solver: "descent" (coordinate descent), "frank-wolfe" (on the relaxed problem), or, on
            `loss_fn`, "straight-through" and "sinkhorn".
        search: "thorough" for hard problems, as narrow residual networks are: many candidates, the
            best by `loss_fn` half way, then refined by `solver` if that goes by the loss.
        loss_fn: Training loss of what lies between the two, for solvers and searches that ask for
            it; `losses` makes one.
        path: The path of `interpolate` on which `loss_fn` meets the two half way.
        steps: Most steps of any solver but "descent"; enough if left out.
        assignment: Assignment solver, "lapx" or "scipy"; None takes the fastest there is.
        batch_size: Examples at a time for costs that look at data.

    Returns:
        The aligned parameters with a certificate.

    Example:
        >>> import jax, jax.numpy as jnp, onebasin as ob
        >>> def model(params, x):
        ...     return jax.nn.relu(x @ params["inner"]) @ params["outer"]
        >>> keys = jax.random.split(jax.random.key(0), 3)
        >>> params = {
        ...     "inner": jax.random.normal(keys[0], (3, 5)),
        ...     "outer": jax.random.normal(keys[1], (5, 2)),
        ... }
        >>> symmetry = ob.discover(model, params, jnp.ones((1, 3)))
        >>> moved = symmetry.act(symmetry.random(keys[2]), params)
        >>> bool(ob.align(symmetry, moved, to=params).cost < 1e-8)
        True
    """
    check_pair(symmetry, params, to, cost, apply_fn, inputs, COSTS, DATA_COSTS)
    check_choice("solver", solver, tuple(SOLVERS))
    check_choice("search", search, (None, *SEARCHES))
    check_choice("path", path, tuple(PATHS))
    check_choice("scaling", scaling, (AUTO, *SCALINGS, None))
    if restarts < 0:
        raise ValueError(f"got restarts={restarts}, expected none or more")
    shared = {
        "symmetry": symmetry,
        "assignment": Assignment(assignment),
        "cost": cost,
        "starts": starts,
        "restarts": restarts,
        "seed": seed,
        "max_sweeps": max_sweeps,
        "loss_fn": loss_fn,
        "path": path,
        "apply_fn": apply_fn,
        "inputs": inputs,
        "batch_size": batch_size,
    }
    joint = scaling == AUTO and cost in DISTANCES and solver == "descent" and search is None
    if scaling == AUTO:
        scaling = None if joint else "min-mass"
    scalings = symmetry.scaling_dimension() > 0
    match = Match.under(scaling, params, to, shared)
    found = solve(match.task, solver, search, steps)
    before = match.cost(State.identity(symmetry))
    element, moved = match.moved(found.best.state)
    if joint and scalings and scales_matter(match, found, moved):
        match, found = nearest(match, found, Match.under("min-mass", params, to, shared))
        element, moved = match.moved(found.best.state)
    objective, state = match.task.objective, found.best.state
    reached = match.price(found.best.objective)
    if -ROUNDING * abs(before) < reached < 0:
        # A difference of large numbers: what is left of it is rounding.
        reached = 0.0
    bound = None if joint and scalings else match.bound
    return Alignment(
        params=moved,
        element=element,
        cost=reached,
        cost_before=before,
        bound=None if bound is None else min(bound, reached),
        exact=objective.exact() and search is None and solver in ("descent", "frank-wolfe"),
        sweeps=found.best.sweeps,
        solver=f"{found.start}, {match.task.assignment.name}",
        transpositions=count_transpositions(state),
        margin=margins(objective, state),
        cost_name=cost,
        fallbacks=objective.fallbacks(state),
        candidates=found.candidates,
        skipped=found.skipped,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Match:
    """An alignment problem under scales that were taken off both sides.

    Attributes:
        params: What is moved, and `to` the reference, as they came.
        gauge: The scales that `params` has in the task; None for its own.
        own_gauge: The scales that the reference has there; None for its own.
        task: The problem under these scales.
        price: The cost as a function of the objective.
        bound: A lower bound of the cost, if a cheap one is known.
        shared: What tasks under all scales have in common.
    """

    params: Any
    to: Any
    gauge: Element | None
    own_gauge: Element | None
    task: Task
    price: Callable[[float], float]
    bound: float | None
    shared: dict[str, Any]

    @classmethod
    def under(cls, scaling: str | None, params: Any, to: Any, shared: dict[str, Any]) -> Match:
        """The problem in canonical scales, or as it is."""
        symmetry = shared["symmetry"]
        if scaling is None or not symmetry.scaling_dimension():
            return cls._made(params, to, None, None, shared)
        gauges = [scaling_element(symmetry, size_of(q), scaling) for q in (params, to)]
        return cls._made(params, to, gauges[0], gauges[1], shared)

    @classmethod
    def _made(
        cls,
        params: Any,
        to: Any,
        gauge: Element | None,
        own_gauge: Element | None,
        shared: dict[str, Any],
    ) -> Match:
        symmetry = shared["symmetry"]
        scaled = params if gauge is None else push(symmetry, gauge, params)
        target = to if own_gauge is None else push(symmetry, own_gauge, to)
        options = (shared[name] for name in ("cost", "apply_fn", "inputs", "batch_size"))
        objective, price, bound = objective_for(symmetry, scaled, target, *options)
        task = Task(objective=objective, moving=scaled, reference=target, **shared)
        return cls(params, to, gauge, own_gauge, task, price, bound, shared)

    def element(self, state: State) -> Element:
        """What moves the parameters as they came onto the reference as it came."""
        symmetry = self.task.symmetry
        element = state.element(symmetry)
        if self.gauge is not None:
            element = symmetry.compose(element, self.gauge)
        if self.own_gauge is not None:
            element = symmetry.compose(symmetry.inverse(self.own_gauge), element)
        return element

    def moved(self, state: State) -> tuple[Element, Any]:
        """That element, and what it makes of the parameters."""
        element = self.element(state)
        return element, push(self.task.symmetry, element, self.params)

    def cost(self, state: State) -> float:
        """The cost of a state."""
        return self.price(self.task.objective.objective(state))

    def unscaled(self, state: State) -> Match:
        """The problem with the reference as it came, under the scales that take a state there."""
        symmetry = self.task.symmetry
        back = symmetry.inverse(state.element(symmetry))
        gauge = symmetry.compose(back, self.element(state))
        return self._made(self.params, self.to, gauge, None, self.shared)


def scales_matter(match: Match, found: Found, moved: Any) -> bool:
    """Whether scales keep what was moved from its reference."""
    pairs = list(zip(_parts(moved), _parts(match.to), strict=True))
    gain = gain_of_scales(match.task.symmetry, pairs)
    rounding = LAST_BITS * abs(match.price(0.0))
    return gain > WORTHWHILE * match.price(found.best.objective) + rounding


def nearest(match: Match, found: Found, canonical: Match) -> tuple[Match, Found]:
    """The nearest of what was matched as it is, and what is matched in canonical scales."""
    ended = [(match, found)]
    for each in (solve(canonical.task, "descent", None, None), found):
        back = canonical.unscaled(each.best.state)
        ended.append((back, back.task.found(each.best.state, each.start, each.best.sweeps)))
    return min(ended, key=lambda each: each[0].price(each[1].best.objective))


def _parts(posterior: Any) -> list[list[np.ndarray]]:
    """Weights, or means and standard deviations, in NumPy."""
    if not isinstance(posterior, Gaussian):
        return [leaves_of(posterior)]
    return [
        leaves_of(posterior.mean),
        [np.sqrt(leaf) for leaf in leaves_of(posterior.variance())],
    ]


def objective_for(
    symmetry: Symmetry,
    moving: Any,
    reference: Any,
    cost: str,
    apply_fn: Callable[[Any, Any], Any] | None,
    inputs: Any,
    batch_size: int,
) -> tuple[Objective, Callable[[float], float], float | None]:
    """The objective of a cost, the cost as a function of it, and a lower bound of the cost."""
    if cost in DATA_COSTS:
        assert apply_fn is not None
        at_work = DataCost(symmetry, cost, apply_fn, mean_of(moving), inputs, batch_size)
        data = at_work.objective(mean_of(reference), mean_of(moving))
        return data, data.cost, None
    mean0, mean1 = leaves_of(mean_of(reference)), leaves_of(mean_of(moving))
    if cost == "weights":
        found = channels.weights(mean0, mean1)
        pairs = zip(mean0, mean1, strict=True)
        bound = float(sum((np.linalg.norm(a) - np.linalg.norm(b)) ** 2 for a, b in pairs))
    else:
        std0, std1 = leaves_of(reference.variance()), leaves_of(moving.variance())
        std0, std1 = [np.sqrt(v) for v in std0], [np.sqrt(v) for v in std1]
        found = channels.GAUSSIAN_COSTS[cost](mean0, std0, mean1, std1)
        bound = None
    squared = cost in ("weights", "wasserstein")
    return Pairing(symmetry, found.channels, squared, found.most), found.cost, bound


def count_transpositions(state: State) -> dict[str, int]:
    return {name: int(np.sum(transpositions(p))) for name, p in state.permutations.items()}


def margins(objective: Objective, state: State) -> dict[str, np.ndarray]:
    """Per factor and unit, how much closer its match is than the best other partner, others held.

    Closeness is the cost's own: a large partner is no better for being large.
    """
    symmetry = objective.symmetry
    found = {}
    for name in objective.factors():
        if name not in state.permutations:
            continue
        totals, _ = best_signs(objective.gains(name, state), symmetry.factor(name).signs)
        norms = objective.moving_norms(name)
        columns = state.permutations[name]
        for axis, parent in enumerate(symmetry.parents[name]):
            if parent in state.permutations and state.permutations[parent].ndim == 1:
                norms = np.take(norms, state.permutations[parent], axis=axis)
        found[name] = margin(2 * totals - norms[..., None, :], columns)
    return found
