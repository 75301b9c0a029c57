"""What a method is asked: the same question may be gone on with, and another may not.

One dictionary says it, for runs in folders, which keep it and name the first difference, and for
tasks on engines, which are told apart by its hash.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.infer.problem import Problem
from onebasin.posterior.trees import is_float
from onebasin.store import Run, StoreError
from onebasin.store.errors import ManifestError
from onebasin.store.fingerprint import fingerprint
from onebasin.store.manifest import difference, plain
from onebasin.store.manifest_file import read_manifest

# What is told apart, and how; raised when that changes.
IDENTITY = 2
# None of them changes what comes out, or what they change is looked at elsewhere.
SILENT = ("key", "problem", "progress", "run", "chunk", "memory", "engine")
# Examples on which a density is compared, and by how much of its size two machines may differ.
FEW = 100
ROUNDING = 1e-3
ASKED, DENSITY = "asked", "log density"


def question(
    method: Callable[..., Any], problem: Any, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """What is asked, as JSON can hold it.

    Args:
        method: The method, one of ours with its `version`, or a user's own.
        problem: The problem, or whatever a user's own method is given in its place.
        arguments: All others; those that change nothing are left out.
    """
    asked = {name: _plain(value) for name, value in arguments.items() if name not in SILENT}
    version = getattr(method, "version", None)
    return {
        "identity": IDENTITY,
        "method": getattr(method, "__name__", "method"),
        "version": fingerprint(method) if version is None else version,
        "arguments": asked,
        "problem": problem.fingerprint() if isinstance(problem, Problem) else _plain(problem),
    }


def open_run(
    place: str | Path | Run, asked: dict[str, Any], key: jax.Array, problem: Problem
) -> Run:
    """The run in a folder that was asked the same, or a new one there.

    Args:
        place: The folder, or a run that a user has opened.
        asked: The question.
        key: The random key.
        problem: The problem, whose log density at one point is compared with the run's.

    Raises:
        StoreError: If the run was asked something else, or computes something else.
    """
    # The same numbers are another key to another generator.
    data = np.asarray(jax.random.key_data(key)).tolist()
    seeds = {"key": data, "generator": str(jax.random.key_impl(key))}
    if isinstance(place, Run):
        run = place
        _check_asked(run, {**plain(asked, "config"), "seeds": seeds})
    else:
        _check_identity(Path(place))
        run = Run.continue_or_create(place, config=asked, seeds=seeds)
    _check_density(run, problem)
    return run


def _check_identity(folder: Path) -> None:
    """Refuses a run that an onebasin began which told questions apart by less."""
    try:
        config = read_manifest(folder).config
    except ManifestError:
        # None, or a damaged one: what can be done about it is said where the run is opened.
        return
    if isinstance(config, dict) and "method" in config and config.get("identity") != IDENTITY:
        raise StoreError(
            f"the run in {folder} was begun by another version of onebasin, which told networks, "
            "likelihoods and options apart in another way: what it holds cannot be compared with "
            "this call, name another folder."
        )


def _check_asked(run: Run, asked: dict[str, Any]) -> None:
    """What a run that a user has opened was asked first is all that it is asked."""
    known = run.notes.get(ASKED)
    if known is None and (run.states() or run.streams()):
        raise StoreError(
            f"the run in {run.path} holds what was written without saying what was asked: pass a "
            "run that has not begun, or name another folder."
        )
    if known is None:
        with run.transaction() as t:
            t.note(**{ASKED: asked})
        return
    differs = difference(asked, known, ASKED)
    if differs:
        raise StoreError(
            f"the run in {run.path} was asked to do something else ({differs}): pass another."
        )


def _check_density(run: Run, problem: Problem) -> None:
    """Compares a log density with what it was when the run was begun.

    It notices what no program shows: callbacks, and machines that compute otherwise.
    """
    found = log_density_at_a_point(problem)
    known = run.notes.get(DENSITY)
    if known is None:
        with run.transaction() as t:
            t.note(**{DENSITY: repr(found)})
    elif not np.isclose(float(known), found, rtol=ROUNDING, atol=ROUNDING * FEW, equal_nan=True):
        raise StoreError(
            f"the run in {run.path} was begun with a log density of {float(known):.6g} at a point "
            f"where it is {found:.6g} here: the network, likelihood or prior computes something "
            "else, name another folder."
        )


def log_density_at_a_point(problem: Problem) -> float:
    """The log density on a few examples, at weights as spread as the prior's."""
    rng = np.random.default_rng(0)
    shapes = problem.shapes()

    def filled(scale: Any, leaf: Any) -> Any:
        noise = rng.standard_normal(leaf.shape)
        return np.asarray(scale * noise, leaf.dtype) if is_float(leaf) else np.zeros_like(leaf)

    params = jax.tree.map(filled, problem.prior.spread(shapes), shapes)
    rows = jnp.arange(min(FEW, problem.num_examples))
    return float(_log_density(problem, problem.join(params), problem.take(rows)))


@jax.jit
def _log_density(problem: Problem, unknowns: Any, batch: Any) -> jax.Array:
    return problem.log_density(unknowns, batch)


def _plain(value: Any) -> Any:
    """An argument as it is where JSON can hold it, else what it is and a hash of its content."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list) and all(
        isinstance(x, bool | int | float | str) for x in value
    ):
        return [_plain(x) for x in value]
    # A tree counts as JAX has it: the order in which a dictionary was filled does not.
    with contextlib.suppress(TypeError, ValueError):
        value = jax.tree.map(lambda leaf: leaf, value)
    kind = "function" if inspect.isfunction(value) else type(value).__name__
    return f"{kind} {fingerprint(value)[:32]}"
