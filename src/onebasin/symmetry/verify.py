"""The proof: f(x) = f(g.x) on random elements, random parameters, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onebasin.symmetry.elements import Element
from onebasin.symmetry.errors import SymmetryError
from onebasin.symmetry.examples import two_examples
from onebasin.symmetry.group import Symmetry
from onebasin.symmetry.power import Power
from onebasin.symmetry.probes import far_element, random_element, times
from onebasin.symmetry.program import Program
from onebasin.symmetry.trial import WAYS, Trial, Unfit


def check_symmetry(
    symmetry: Symmetry,
    apply_fn: Callable[[Any, Any], Any],
    params: Any,
    inputs: Any,
    *,
    tolerance: float | None = None,
    num_elements: int = 2,
    seed: int = 0,
    power: bool = True,
) -> float:
    """Proves a group on a model: the largest relative change of the output over random elements.

    Parameters are randomised first (a bias or head that starts at zero hides errors) and rescaled
    until every layer carries signal; the model runs in double precision where it lets itself, else
    in its own. Beside the random elements there are two with large scales, one way and the other,
    which a clip or an epsilon does not survive.

    Then the check shows that it could have failed: each factor leaves out each parameter that it
    moves, to first order, and where that does not show, in full. What does not show either is tried
    at other parameters: fresh ones, smaller and larger signals, signals around zero.

    Args:
        symmetry: The group to be checked.
        apply_fn: The model, `apply_fn(params, inputs) -> outputs`.
        params: Its parameters; their values only set the scale of the random ones. Of a PyTorch
            module, or a network with `init` and `apply`, they may be left out.
        inputs: Arrays, or shapes for random inputs.
        tolerance: Largest relative change allowed; by default 1e-9 in double precision, 1e-4 in
            single, and more where the model itself rounds to half, by a cast or by
            `jax.lax.reduce_precision`.
        num_elements: Number of random elements.
        seed: Seed of all random numbers.
        power: Also show that the check can fail, which takes about as long again, and longer where
            there are parameters that make no difference (such as the biases of keys).

    Returns:
        The largest change relative to the largest output.

    Raises:
        SymmetryError: If an element changes the output, naming the factor and the parameter; if the
            group is not proved, as the outputs do not see a factor; if the output is not finite or
            not reproducible.
    """
    if num_elements < 1:
        raise ValueError(f"got num_elements={num_elements}, expected at least one")
    model = Trial(symmetry, apply_fn, params, inputs, seed)
    limit = tolerance if tolerance is not None else model.tolerance
    seen, found = Power(symmetry), [0.0]

    def is_enough() -> bool:
        done = not power or seen.look(model, min(limit, model.tolerance))
        if len(found) == 1:
            found.append(_prove_far(model, limit))
        return done

    found.append(_prove_until(is_enough, model, limit, num_elements))
    if power:
        seen.verdict(limit)
    return max(found)


def _prove_until(
    is_enough: Callable[[], bool], model: Trial, limit: float, num_elements: int
) -> float:
    """Proves a group in one way after the other; the largest change on the way.

    Parameters that are not fit for a proof are passed over, as long as there are others.
    """
    largest: list[float] = []
    unfit: list[Unfit] = []
    for way in WAYS:
        try:
            if way is not model.way:
                model.settle(way)
            largest.append(_prove(model, limit, num_elements))
        except Unfit as error:
            unfit.append(error)
            continue
        if is_enough():
            break
    if not largest:
        raise unfit[0]
    return max(largest)


def check_discovered(
    symmetry: Symmetry,
    program: Program,
    apply_fn: Callable[[Any, Any], Any],
    params: Any,
    inputs: Any,
) -> None:
    """The proof of a group that was just read off a program, at no more cost than it needs.

    For a model that looks at its examples one by one, two of them are enough; any other model is
    proved on all.

    Args:
        symmetry: The group.
        program: What it was read off: the model on these inputs.
        apply_fn: The model.
        params: Its parameters.
        inputs: Arrays, or shapes for random inputs.
    """
    few = two_examples(program, apply_fn, params, inputs)
    if few is not None and _holds_on_two(symmetry, apply_fn, params, few):
        return
    model = Trial(symmetry, apply_fn, params, inputs, 0)
    _prove_until(lambda: True, model, model.tolerance, 1)


def _holds_on_two(
    symmetry: Symmetry, apply_fn: Callable[..., Any], params: Any, inputs: Any
) -> bool:
    """Whether a random element leaves the outputs of two examples alone, each by itself.

    Of a model that is not finite on two, or lets them mix, this says nothing.
    """
    try:
        model = Trial(symmetry, apply_fn, params, inputs, 0)
    except SymmetryError:
        return False
    model.look_at_one()
    return model.walk(random_element(symmetry, model.rng, None)) <= model.tolerance


def _prove(model: Trial, limit: float, num_elements: int) -> float:
    """Walks along random elements; the largest change on the way."""
    largest = 0.0
    element: Element | None = None
    for _ in range(num_elements):
        element = random_element(model.symmetry, model.rng, element)
        change = model.walk(element)
        if not change <= limit:
            model.settle(model.way)
            model.expect_steady()
            raise SymmetryError(_blame(model, element, change, limit))
        largest = max(largest, change)
    return largest


def _prove_far(model: Trial, limit: float) -> float:
    """Large scales, both ways: there clips and thresholds are met that small ones leave aside.

    Where the model is no longer finite that far out, nothing is said.
    """
    far = far_element(model.symmetry, model.rng, model.room)
    largest = 0.0
    # The second step goes back through the start and as far again.
    for step, reached in ((1.0, 1.0), (-2.0, -1.0)) if far.log_scales else ():
        change = model.walk(times(far, step))
        if limit < change < np.inf:
            model.settle(model.way)
            raise SymmetryError(_blame(model, times(far, reached), change, limit))
        largest = max(largest, change if change < np.inf else 0.0)
    return largest


def _blame(model: Trial, element: Element, change: float, limit: float) -> str:
    """Which factor breaks the model, and at which parameter."""
    symmetry = model.symmetry
    message = f"the group does not hold: the output changes by {change:.2g} (allowed {limit:.0e})"
    worst = max(
        symmetry.factors,
        key=lambda f: np.nan_to_num(model.difference(model.moved(element, f)), nan=np.inf),
        default=None,
    )
    if worst is None:
        return message
    numbers = {leaf.path: number for number, leaf in enumerate(symmetry.leaves)}
    paths = dict.fromkeys(site.path for site in worst.sites)
    culprit = min(
        paths, key=lambda path: model.difference(model.moved(element, worst, numbers[path]))
    )
    return f"{message}; factor {worst.name!r} breaks it, most likely at parameter {culprit!r}"
