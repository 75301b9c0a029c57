"""Bad input, said in one sentence before any work is done."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.certificate import Outcome
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.symmetry import Symmetry, SymmetryError
from onebasin.symmetry.group import num_stacked, path_name
from onebasin.symmetry.host import as_numpy

# Numbers that are looked at together.
PART = 2**22
GAUSSIAN_ONLY = ("wasserstein", "kl", "kl-forward", "kl-reverse", "kl-mean")


def check_choice(what: str, given: Any, known: Sequence[str | None]) -> None:
    """Refuses a name that is not among the known ones, with the nearest."""
    if given in known:
        return
    names = {str(name): name for name in known}
    near = difflib.get_close_matches(str(given), names, n=1)
    hint = f"; did you mean {names[near[0]]!r}?" if near else ""
    raise ValueError(f"no {what} {given!r}: there are {', '.join(names)}{hint}")


def check_group(symmetry: Any) -> None:
    """Refuses anything but a group where one is expected."""
    if not isinstance(symmetry, Symmetry):
        raise TypeError(
            f"the first argument is a {type(symmetry).__name__}, expected the symmetry that "
            "onebasin.discover found; the parameters come after it"
        )


def check_unwrapped(what: str, given: Any) -> None:
    """Refuses the outcome of a call where what it holds is expected."""
    if isinstance(given, Outcome):
        name = type(given).__name__
        article = "an" if name[0] == "A" else "a"
        raise TypeError(
            f"{what} is {article} {name}, the outcome of {given.made_by}: pass its .{given.holds}"
        )


def check_finite(what: str, tree: Any) -> None:
    """Refuses NaN and infinity, naming the leaf."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = as_numpy(leaf)
        # NumPy alone does not take bfloat16 for a number.
        if not jax.dtypes.issubdtype(array.dtype, np.inexact):
            continue
        bad = sum(int(np.size(part) - np.isfinite(part).sum()) for part in _parts(array))
        if bad:
            raise ValueError(
                f"{what} holds {bad} NaN or infinite values in {path_name(path)!r}; "
                "nothing can be done with those: drop the network or mend the leaf"
            )


def _parts(array: np.ndarray) -> Iterator[np.ndarray]:
    """An array in parts: what is asked of each of its numbers would take a copy of it at once."""
    flat = array.reshape(-1)
    yield from (flat[at : at + PART] for at in range(0, flat.size, PART))


def check_real(tree: Any) -> None:
    """Refuses complex numbers, naming the leaf: masses and distances are those of real ones."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if jax.dtypes.issubdtype(jnp.result_type(leaf), np.complexfloating):
            raise TypeError(
                f"parameter {path_name(path)!r} is complex ({jnp.result_type(leaf)}), expected "
                "real numbers: hold its real and its imaginary part as two leaves"
            )


def check_same_model(symmetry: Symmetry, what: str, tree: Any) -> None:
    """Refuses parameters of another model, naming the first leaf that differs."""
    symmetry.flatten(tree)
    check_real(tree)
    check_finite(what, tree)


def check_posterior(symmetry: Symmetry, what: str, posterior: Any, cost: str) -> None:
    """Refuses all but parameters, or a Gaussian, of this model, and a point where none can be."""
    check_unwrapped(what, posterior)
    if isinstance(posterior, Draws | Mixture):
        one = "Draws.mean() or one draw" if isinstance(posterior, Draws) else "one component"
        raise TypeError(
            f"{what} is {posterior!r}, expected one network or one Gaussian: use align_many to "
            f"bring many together, or pass {one}"
        )
    if isinstance(posterior, Gaussian):
        check_same_model(symmetry, f"the mean of {what}", posterior.mean)
        check_same_model(symmetry, f"the std of {what}", posterior.std)
        return
    check_not_stacked(symmetry, what, posterior)
    check_same_model(symmetry, what, posterior)
    if cost in GAUSSIAN_ONLY:
        raise ValueError(
            f"cost {cost!r} compares distributions, and {what} is a point: pass a "
            "onebasin.Gaussian, or use cost='weights'"
        )


def check_not_stacked(symmetry: Symmetry, what: str, tree: Any) -> None:
    """Refuses a tree of stacked parameters where one network is expected."""
    count = num_stacked(symmetry, tree)
    if count is not None:
        raise SymmetryError(
            f"{what} has one axis more than the model's parameters, as {count} stacked draws "
            "have, expected one network: use align_many for draws"
        )


def check_population(symmetry: Symmetry, draws: Any) -> None:
    """Refuses a list of networks, or of Gaussians, where they belong together in one object."""
    if not isinstance(draws, list | tuple) or not draws:
        return
    if all(isinstance(one, Gaussian) for one in draws):
        raise TypeError(
            f"got a {type(draws).__name__} of {len(draws)} Gaussians, expected one population: "
            "pass Mixture(gaussians)"
        )
    check_unwrapped("the first of the draws", draws[0])
    # The parameters of a model can be a list themselves; those of one are not those of many.
    expected = [leaf.path for leaf in symmetry.leaves]
    if all(_paths(one) == expected for one in draws):
        raise TypeError(
            f"got a {type(draws).__name__} of {len(draws)} networks, expected one population: "
            "pass Draws.stack(networks)"
        )


def _paths(tree: Any) -> list[str]:
    return [path_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


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
    check_group(symmetry)
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
        check_inputs(inputs)


def check_inputs(inputs: Any) -> None:
    """Refuses inputs on which no network can be run."""
    leaves = jax.tree.leaves(inputs)
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        raise ValueError(
            "the inputs are shapes without values, and the networks are run on them: pass arrays "
            "(some hundred training inputs will do)"
        )
    if not leaves or any(np.shape(leaf)[:1] == (0,) for leaf in leaves):
        raise ValueError(
            "the inputs hold no examples: pass at least one (some hundred training inputs will do)"
        )
    for leaf in leaves:
        array = as_numpy(leaf)
        if jax.dtypes.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
            raise ValueError("the inputs hold NaN or infinite values: drop those examples")
