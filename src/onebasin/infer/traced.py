"""The programs of a problem: what its network, its prior and its log density compute."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import jax

from onebasin.store.programs import program

if TYPE_CHECKING:
    from onebasin.infer.problem import Problem

# Beside the problems and not in them: what is in a problem is what tells it from others.
_KNOWN: weakref.WeakKeyDictionary[Problem, tuple[Any, dict[str, str]]]
_KNOWN = weakref.WeakKeyDictionary()


def programs_of(problem: Problem) -> dict[str, str]:
    """A hash of each of a problem's programs, traced once: each chunk of a population may ask."""
    parts = (
        problem.learner,
        problem.augment,
        problem.likelihood,
        problem.prior,
        problem.noise,
        problem.temperature,
        problem.num_effective,
    )
    kind = jax.tree.map(lambda x: (x.shape, x.dtype), (problem.inputs, problem.targets))
    known, found = _KNOWN.get(problem, ((), {}))
    if (
        not known
        or known[1] != kind
        or any(a is not b for a, b in zip(known[0], parts, strict=True))
    ):
        found = _traced(problem)
        _KNOWN[problem] = (parts, kind), found
    return found


def _traced(problem: Problem) -> dict[str, str]:
    key = jax.random.key(0)
    params, batch = problem.shapes(), jax.eval_shape(lambda: (problem.inputs, problem.targets))
    unknowns = jax.eval_shape(problem.join, params)
    further = {}
    if problem.augment is not None:
        further["augmentation"] = program(problem.augment, key, batch[0])
    if problem.has_state:
        whole = problem.network_shapes()
        further["network as it predicts"] = program(problem.net.apply, whole, batch[0])
    return {
        **further,
        "network": program(problem.learner.apply, params, batch[0]),
        "start": program(problem.learner.init, key, jax.eval_shape(problem.example)),
        "prior density": program(problem.prior.log_density, params),
        "prior draw": program(lambda key: problem.prior.sample(key, params), key),
        "log density": program(problem.log_density, unknowns, batch),
        "gradient": _gradient(problem, unknowns, batch),
    }


def _gradient(problem: Problem, unknowns: Any, batch: Any) -> str:
    """The derivative, whose rules a network may make itself; some methods do without one."""
    try:
        return program(jax.grad(problem.log_density), unknowns, batch)
    except Exception as error:
        return f"none: {type(error).__name__}"
