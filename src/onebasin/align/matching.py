"""Aligning one network, or one posterior, to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onebasin._core.cores import threads_for_products
from onebasin.align.assignment import Assignment
from onebasin.align.canonical import SCALINGS
from onebasin.align.certificate import Alignment
from onebasin.align.checks import check_choice, check_pair
from onebasin.align.margins import margins
from onebasin.align.match import (
    COST_OPTIONS,
    COSTS,
    DATA_COSTS,
    DISTANCES,
    Match,
    nearest,
    scales_matter,
)
from onebasin.align.paths import PATHS
from onebasin.align.proof import Proving, largest_product
from onebasin.align.search import STARTS
from onebasin.align.solvers import SEARCHES, SOLVERS, solve
from onebasin.align.state import State
from onebasin.align.task import mean_of, push
from onebasin.posterior import Gaussian
from onebasin.symmetry import Symmetry, transpositions

AUTO = "auto"
ROUNDING = 1e-6


def align(
    symmetry: Symmetry,
    params: Any,
    to: Any,
    cost: str = "weights",
    *,
    apply_fn: Callable[[Any, Any], Any] | None = None,
    inputs: Any = None,
    scaling: str | None = "auto",
    starts: str | State | Sequence[str | State] = STARTS,
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
        to: The reference: parameters, or a `Gaussian`. If only one of the two is a Gaussian, its
            mean stands for it, and what is to be moved is moved whole.
        cost: "weights" (squared distance), "wasserstein", "kl" ("kl-forward", "kl-reverse",
            "kl-mean") for Gaussians; "activations", "correlation", "contributions" or
            "preactivations", which need `apply_fn` and `inputs`. Units that no product reads go by
            what makes them, and the other way round. Costs for Gaussians are those of their means
            and variances: a low-rank part counts by what it adds to the variances, not by its
            covariances.
        apply_fn: The model, for costs that look at data.
        inputs: Data for such costs; the leading axis is the example.
        scaling: What becomes of scalings. "auto": costs that are distances ("weights",
            "wasserstein") match as they are and, where scales keep matched units apart, in
            canonical scales too, and keep what is nearer; other costs go by "min-mass".
            "min-mass" (least expected mass of a Gaussian) and "unit-norm" remove scalings from both
            sides, match there (and count the cost there), and give the result the reference's
            scale. None leaves them, as before `reset_batch_norm`: BatchNorm's hold only while its
            running statistics stay.
        starts: Where coordinate descent starts from, one or more of "identity", "forward" and given
            states; the best is kept.
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
    given = params
    if isinstance(params, Gaussian) != isinstance(to, Gaussian):
        params, to = mean_of(params), mean_of(to)
    shared = {
        "symmetry": symmetry,
        "assignment": Assignment(assignment),
        "cost": cost,
        "starts": (starts,) if isinstance(starts, str | State) else starts,
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
    with threads_for_products(largest_product(symmetry)):
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
        exact = objective.exact() and search is None and solver in ("descent", "frank-wolfe")
        return Alignment(
            params=moved if params is given else push(symmetry, element, given),
            element=element,
            cost=reached,
            cost_before=before,
            exact=exact,
            sweeps=found.best.sweeps,
            solver=f"{found.start}, {match.task.assignment.name}",
            transpositions=count_transpositions(state),
            margin=margins(objective, state),
            prove=Proving(
                symmetry,
                match.task.moving,
                match.task.reference,
                tuple(shared[name] for name in COST_OPTIONS),
                match.task.assignment,
                state,
                reached,
                exact,
            ),
            cost_name=cost,
            fallbacks=objective.fallbacks(state),
            candidates=found.candidates,
            skipped=found.skipped,
        )


def count_transpositions(state: State) -> dict[str, int]:
    return {name: int(np.sum(transpositions(p))) for name, p in state.permutations.items()}
