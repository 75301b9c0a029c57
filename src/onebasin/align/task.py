"""What a solver is given: two networks or posteriors, a cost, and perhaps a training loss."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from onebasin.align import channels
from onebasin.align.assignment import Assignment
from onebasin.align.barrier import as_pytree
from onebasin.align.descent import Descent, Objective, descend
from onebasin.align.pairing import Pairing
from onebasin.align.paths import interpolate
from onebasin.align.search import STARTS, Found, search
from onebasin.align.settling import settle
from onebasin.align.state import State
from onebasin.posterior import Gaussian, push_forward, trees
from onebasin.symmetry import Element, Symmetry
from onebasin.symmetry.host import as_numpy, widened


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """One alignment problem, scalings already removed from both sides.

    Attributes:
        symmetry: The model's group.
        objective: The cost, as something to be made large.
        assignment: The assignment solver.
        moving: What is to be moved: parameters, or a `Gaussian`.
        reference: What it is moved to.
        cost: The name of the cost.
        starts: Where coordinate descent starts; solvers that need one start take the first `State`
            among them, or else the outcome of that descent.
        restarts: Number of further random starts of coordinate descent.
        seed: Seed of all random choices.
        max_sweeps: Most rounds of each coordinate descent.
        loss_fn: The training loss, from whatever `interpolate` gives between the two (parameters,
            or a `Gaussian`) to a scalar, or to a dictionary with "train loss" or "loss" as `losses`
            and `marginal_loss` make it. Deterministic, and jittable.
        path: The path of `interpolate` on which the two meet half way.
        apply_fn: The model, for candidates that look at data.
        inputs: Data for those.
        batch_size: Examples at a time for those.
    """

    symmetry: Symmetry
    objective: Objective
    assignment: Assignment
    moving: Any
    reference: Any
    cost: str = "weights"
    starts: Sequence[str | State] = STARTS
    restarts: int = 0
    seed: int = 0
    max_sweeps: int = 100
    loss_fn: Callable[[Any], Any] | None = None
    path: str = "geodesic"
    apply_fn: Callable[[Any, Any], Any] | None = None
    inputs: Any = None
    batch_size: int = 1000

    @property
    def start(self) -> State | None:
        """The first start that is given as a state."""
        return next((start for start in self.starts if isinstance(start, State)), None)

    def first(self) -> State:
        """The given start, or the outcome of coordinate descent."""
        return self.start or self.descent(self.starts, self.restarts).best.state

    def descent(self, starts: Sequence[str | State], restarts: int = 0) -> Found:
        """Coordinate descent on the cost, with the signs that it leaves open settled."""
        found = search(
            self.objective,
            self.assignment,
            starts=starts,
            restarts=restarts,
            seed=self.seed,
            max_sweeps=self.max_sweeps,
        )
        if self.cost.startswith("kl") and not self.objective.exact():
            found = self._from_wasserstein(found)
        settle(self.objective, found.best.state, self.assignment)
        return found

    def _from_wasserstein(self, found: Found) -> Found:
        """The divergence has more local optima; those of the distance are good starts for it."""
        leaves = [*parts_of(self.reference), *parts_of(self.moving)]
        distance = Pairing(self.symmetry, channels.wasserstein(*leaves).channels)
        start = search(distance, self.assignment, seed=self.seed, max_sweeps=self.max_sweeps)
        rng = np.random.default_rng(self.seed)
        state = start.best.state
        last = descend(self.objective, state, self.assignment, rng, max_sweeps=self.max_sweeps)
        return Found(last, "wasserstein") if last.objective > found.best.objective else found

    def found(self, state: State, name: str, sweeps: int = 0) -> Found:
        """An outcome that is not the end of a descent on the cost."""
        return Found(Descent(state, self.objective.objective(state), sweeps, 0, set()), name)

    def loss(self, state: State) -> float:
        """The training loss half way between the reference and what the state makes of moving."""
        value = _loss_half_way(
            as_pytree(self.loss_fn),
            self.symmetry,
            self.path,
            self.reference,
            self.moving,
            state.element(self.symmetry),
        )
        return math.inf if math.isnan(value) else float(value)

    def check_loss(self, what: str) -> None:
        """Refuses a task without a training loss."""
        if self.loss_fn is None:
            raise ValueError(
                f"{what} goes by the training loss half way between the two: pass loss_fn=, a "
                "function from parameters to a scalar (losses(apply_fn, train) makes one)"
            )


class Solver(Protocol):
    """What every solver is."""

    def __call__(self, task: Task) -> Found:
        """The best state that it finds, and in words how."""


def same(a: State, b: State) -> bool:
    """Whether two states are one element."""
    return all(
        np.array_equal(x[name], y[name])
        for x, y in ((a.permutations, b.permutations), (a.signs, b.signs))
        for name in x
    )


def split_floats(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The leaves that can be trained, and what puts others like them in their places."""
    structure: Any
    leaves, structure = jax.tree.flatten(tree)
    trained = [trees.is_float(leaf) for leaf in leaves]

    def whole(floats: list[Any]) -> Any:
        following = iter(floats)
        return structure.unflatten(
            [next(following) if yes else leaf for yes, leaf in zip(trained, leaves, strict=True)]
        )

    return [leaf for yes, leaf in zip(trained, leaves, strict=True) if yes], whole


def mean_of(posterior: Any) -> Any:
    """The parameters that stand for a posterior."""
    return posterior.mean if isinstance(posterior, Gaussian) else posterior


def push(symmetry: Symmetry, element: Element, posterior: Any) -> Any:
    """Moves parameters or a posterior."""
    if isinstance(posterior, Gaussian):
        return push_forward(symmetry, element, posterior)
    return symmetry.act(element, posterior)


def leaves_of(tree: Any) -> list[np.ndarray]:
    """The leaves of a tree in NumPy."""
    return [as_numpy(leaf) for leaf in jax.tree.leaves(tree)]


def parts_of(posterior: Any) -> list[list[np.ndarray]]:
    """The leaves of weights, or of means and standard deviations, as costs compute with them."""
    if not isinstance(posterior, Gaussian):
        return [_wide_leaves(posterior)]
    variance = _wide_leaves(posterior.variance())
    return [_wide_leaves(posterior.mean), [np.sqrt(leaf) for leaf in variance]]


def _wide_leaves(tree: Any) -> list[np.ndarray]:
    return [widened(leaf) for leaf in leaves_of(tree)]


def half_way(loss_fn: Any, path: str, reference: Any, moved: Any) -> jax.Array:
    """The training loss half way between the two, as a scalar."""
    return scalar_loss(loss_fn(interpolate(reference, moved, 0.5, path)))


def scalar_loss(value: Any) -> Any:
    """What a training loss gave, as a scalar: of a dictionary its "train loss", or its "loss"."""
    if isinstance(value, dict):
        name = next((n for n in ("train loss", "loss") if n in value), None)
        if name is None:
            raise ValueError(
                f"loss_fn gave a dictionary of {', '.join(map(repr, value))}, expected a scalar, "
                "or a dictionary with 'train loss' or 'loss'"
            )
        value = value[name]
    if np.shape(value) != ():
        raise ValueError(
            f"loss_fn gave an array of shape {np.shape(value)}, expected a scalar: take the mean "
            "over examples"
        )
    return value


@functools.partial(jax.jit, static_argnames=("symmetry", "path"))
def _loss_half_way(
    loss_fn: Any, symmetry: Symmetry, path: str, reference: Any, moving: Any, element: Element
) -> jax.Array:
    return half_way(loss_fn, path, reference, push(symmetry, element, moving))
