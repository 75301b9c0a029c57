"""The proof: f(x) = f(g.x) on random elements, random parameters, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onebasin.symmetry.elements import Element
from onebasin.symmetry.errors import SymmetryError
from onebasin.symmetry.examples import two_examples
from onebasin.symmetry.group import Factor, Symmetry
from onebasin.symmetry.program import Program
from onebasin.symmetry.trial import Trial

POWER_ELEMENTS = 4
# A factor of 3,000: beyond the clips and below the thresholds and epsilons that models have.
FARTHEST = 8.0


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

    Parameters are randomised first (a bias or head that starts at zero hides errors) and the model
    runs in double precision where it lets itself, else in its own. Beside the random elements there
    are two with large scales, one way and the other, which a clip or an epsilon does not survive.

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
        power: Also show that the check can fail: leave out each site of each factor in turn and see
            that the output changes.

    Returns:
        The largest change relative to the largest output.

    Raises:
        SymmetryError: If an element changes the output, naming the factor and the parameter; if an
            omission goes unnoticed; if the output is not finite or not reproducible.
    """
    if num_elements < 1:
        raise ValueError(f"got num_elements={num_elements}, expected at least one")
    model = Trial(symmetry, apply_fn, params, inputs, seed)
    limit = tolerance if tolerance is not None else model.tolerance
    largest = _prove(model, limit, num_elements)
    if power and symmetry.factors:
        _prove_power(model, limit)
    return max(largest, _prove_far(model, limit))


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
    _prove(model, model.tolerance, 1)


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
    return model.walk(_random_element(symmetry, model.rng, None)) <= model.tolerance


def _prove(model: Trial, limit: float, num_elements: int) -> float:
    """Walks along random elements; the largest change on the way."""
    largest = 0.0
    element: Element | None = None
    for _ in range(num_elements):
        element = _random_element(model.symmetry, model.rng, element)
        change = model.walk(element)
        if not change <= limit:
            raise SymmetryError(_blame(model.afresh(), element, change, limit))
        largest = max(largest, change)
    return largest


def _prove_far(model: Trial, limit: float) -> float:
    """Large scales, both ways: there clips and thresholds are met that small ones leave aside.

    Where the model is no longer finite that far out, nothing is said.
    """
    far = _far_element(model)
    largest = 0.0
    # The second step goes back through the start and as far again.
    for step, reached in ((1.0, 1.0), (-2.0, -1.0)) if far.log_scales else ():
        change = model.walk(_times(far, step))
        if limit < change < np.inf:
            raise SymmetryError(_blame(model.afresh(), _times(far, reached), change, limit))
        largest = max(largest, change if change < np.inf else 0.0)
    return largest


def _random_element(
    symmetry: Symmetry, rng: np.random.Generator, previous: Element | None
) -> Element:
    """Like `Symmetry.random`, in NumPy: nothing to compile for models with many factors.

    The first time a permutation leaves no unit where it was, lest it be one that is not like the
    others; that is one cycle, so the next time it is any but the identity. A sign that was not
    flipped last time is flipped now.
    """
    identity = symmetry.identity(np)

    def permute(plain: np.ndarray) -> np.ndarray:
        drawn = rng.permuted(plain, axis=-1)
        if previous is not None:
            same = np.all(drawn == plain, axis=-1, keepdims=True)
            return np.where(same, np.roll(plain, 1, axis=-1), drawn)
        cycle = np.empty_like(plain)
        np.put_along_axis(cycle, drawn, np.roll(drawn, 1, axis=-1), axis=-1)
        return cycle

    def flip(name: str, plain: np.ndarray) -> np.ndarray:
        if previous is not None:
            return -previous.signs[name]
        if plain.shape[-2:-1] in ((), (1,)):
            return -plain
        return rng.choice(np.array([-1, 1], plain.dtype), plain.shape)

    return Element(
        {k: permute(v) for k, v in identity.permutations.items()},
        {k: 0.5 * rng.standard_normal(v.shape) for k, v in identity.log_scales.items()},
        {k: flip(k, v) for k, v in identity.signs.items()},
    )


def _far_element(model: Trial) -> Element:
    """An element of scales alone, as large as the parameters can take in the model's precision."""
    symmetry = model.symmetry
    degree = max(
        (sum(abs(w.exponent) for w in b.scalings) for leaf in symmetry.leaves for b in leaf.blocks),
        default=0.0,
    )
    most = min(FARTHEST, model.room / max(degree, 1.0))

    def draw(plain: np.ndarray) -> np.ndarray:
        size = model.rng.uniform(0.75 * most, most, plain.shape)
        return size * model.rng.choice([-1, 1], plain.shape)

    identity = symmetry.identity(np)
    return identity._replace(log_scales={k: draw(v) for k, v in identity.log_scales.items()})


def _times(element: Element, times: float) -> Element:
    """An element of scales alone, some times over."""
    scales = {name: times * values for name, values in element.log_scales.items()}
    return element._replace(log_scales=scales)


def _only(symmetry: Symmetry, element: Element, factor: Factor) -> Element:
    """The part of an element that belongs to one factor."""
    identity = symmetry.identity(np)
    name = factor.name
    return Element(
        *(
            {k: (mine if k == name else plain[k]) for k, mine in own.items()}
            for own, plain in zip(element, identity, strict=True)
        )
    )


def _moved(model: Trial, element: Element, left_out: str | None = None) -> list[Any]:
    moved = model.symmetry.act_on_leaves(element, model.leaves, np)
    return [
        old if leaf.path == left_out else new
        for leaf, old, new in zip(model.symmetry.leaves, model.leaves, moved, strict=True)
    ]


def _blame(model: Trial, element: Element, change: float, limit: float) -> str:
    """Which factor breaks the model, and at which parameter."""
    symmetry = model.symmetry
    message = f"the group does not hold: the output changes by {change:.2g} (allowed {limit:.0e})"
    worst = max(
        symmetry.factors,
        key=lambda f: np.nan_to_num(model.change(_only(symmetry, element, f)), nan=np.inf),
        default=None,
    )
    if worst is None:
        return message
    alone = _only(symmetry, element, worst)
    paths = dict.fromkeys(site.path for site in worst.sites)
    culprit = min(paths, key=lambda path: model.difference(_moved(model, alone, path)))
    return f"{message}; factor {worst.name!r} breaks it, most likely at parameter {culprit!r}"


def _prove_power(model: Trial, limit: float) -> None:
    """Leaves out each site of each factor; a dead unit may hide one element, hardly several."""
    symmetry = model.symmetry
    drawn = [_random_element(symmetry, model.rng, None) for _ in range(POWER_ELEMENTS)]
    places = {leaf.path: number for number, leaf in enumerate(symmetry.leaves)}
    for factor in symmetry.factors:
        for path in dict.fromkeys(site.path for site in factor.sites):
            if not any(_noticed(model, e, factor, path, places[path], limit) for e in drawn):
                raise SymmetryError(
                    f"the check has no power: factor {factor.name!r} acts on parameter {path!r}, "
                    "but leaving that out goes unnoticed"
                )


def _noticed(
    model: Trial, element: Element, factor: Factor, path: str, place: int, limit: float
) -> bool:
    """Whether leaving one parameter out shows; or whether moving it alone would not show either."""
    alone = _only(model.symmetry, element, factor)
    if model.difference(_moved(model, alone, path)) > limit:
        return True
    moved = model.symmetry.act_on_leaves(alone, model.leaves, np)
    probe = list(model.leaves)
    probe[place] = moved[place]
    return bool(model.difference(probe) <= limit)
