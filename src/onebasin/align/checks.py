"""Bad input, said in one sentence before any work is done."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from onebasin.posterior import Gaussian
from onebasin.symmetry import Symmetry
from onebasin.symmetry.group import path_name
from onebasin.symmetry.host import as_numpy

GAUSSIAN_ONLY = ("wasserstein", "kl", "kl-forward", "kl-reverse", "kl-mean")


def check_choice(what: str, given: Any, known: Sequence[str | None]) -> None:
    """Refuses a name that is not among the known ones, with the nearest."""
    if given in known:
        return
    names = [str(name) for name in known]
    near = difflib.get_close_matches(str(given), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"no {what} {given!r}: there are {', '.join(names)}{hint}")


def check_finite(what: str, tree: Any) -> None:
    """Refuses NaN and infinity, naming the leaf."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = as_numpy(leaf)
        if np.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
            bad = int(np.size(array) - np.isfinite(array).sum())
            raise ValueError(
                f"{what} holds {bad} NaN or infinite values in {path_name(path)!r}; "
                "nothing can be done with those: drop the network or mend the leaf"
            )


def check_same_model(symmetry: Symmetry, what: str, tree: Any) -> None:
    """Refuses parameters of another model, naming the first leaf that differs."""
    symmetry.flatten(tree)
    check_finite(what, tree)


def check_posterior(symmetry: Symmetry, what: str, posterior: Any, cost: str) -> None:
    """Refuses parameters, or a Gaussian, of another model, and a point where none can be."""
    if isinstance(posterior, Gaussian):
        check_same_model(symmetry, f"the mean of {what}", posterior.mean)
        check_same_model(symmetry, f"the std of {what}", posterior.std)
        return
    check_same_model(symmetry, what, posterior)
    if cost in GAUSSIAN_ONLY:
        raise ValueError(
            f"cost {cost!r} compares distributions, and {what} is a point: pass a "
            "onebasin.Gaussian, or use cost='weights'"
        )


def check_pair(
    symmetry: Symmetry,
    moving: Any,
    reference: Any,
    cost: str,
    apply_fn: Callable[..., Any] | None,
    inputs: Any,
    costs: Sequence[str],
    data_costs: Sequence[str],
) -> None:
    """Everything that `align` asks of its arguments."""
    check_choice("cost", cost, costs)
    for what, posterior in (("what is to be aligned", moving), ("the reference", reference)):
        check_posterior(symmetry, what, posterior, cost)
    check_data(cost, apply_fn, inputs, data_costs)


def check_data(
    cost: str, apply_fn: Callable[..., Any] | None, inputs: Any, data_costs: Sequence[str]
) -> None:
    if cost in data_costs and (apply_fn is None or inputs is None):
        raise ValueError(
            f"cost {cost!r} looks at the network at work: pass apply_fn= and inputs= "
            "(some hundred training inputs will do)"
        )
    if cost in data_costs:
        for leaf in jax.tree.leaves(inputs):
            if np.issubdtype(as_numpy(leaf).dtype, np.inexact) and not np.isfinite(leaf).all():
                raise ValueError("the inputs hold NaN or infinite values: drop those examples")
