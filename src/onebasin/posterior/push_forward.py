"""A posterior moved by a group element, whatever its form."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.posterior.draws import Draws
from onebasin.posterior.gaussian import Gaussian
from onebasin.posterior.mixture import Mixture
from onebasin.symmetry import Element, Symmetry

Form = TypeVar("Form", Draws, Gaussian, Mixture)


def push_forward(symmetry: Symmetry, g: Element | Sequence[Element], posterior: Form) -> Form:
    """The distribution of g.x where x follows the posterior.

    Draws are moved one by one. A Gaussian's mean and factor move like parameters; its standard
    deviations take the permutations and the scales but not the signs. A mixture moves component by
    component. A scaling changes volume, so log densities p become p - log|det g|.

    Args:
        symmetry: The group.
        g: An element. For `Draws` also a stacked element, one per draw (every array with a leading
            axis of draws); for a `Mixture` also a sequence of elements, one per component.
        posterior: `Draws`, a `Gaussian` or a `Mixture`.

    Returns:
        The same form, moved.

    Example:
        >>> import jax, jax.numpy as jnp, onebasin as ob
        >>> from onebasin.posterior import Gaussian, push_forward
        >>> def model(params, x):
        ...     return jnp.tanh(x @ params["inner"]) @ params["outer"]
        >>> mean = {"inner": jnp.array([[1.0, 2.0]]), "outer": jnp.ones((2, 1))}
        >>> sym = ob.discover(model, mean, jnp.ones((1, 1)))
        >>> flip = sym.identity()
        >>> flip = flip._replace(signs=jax.tree.map(jnp.negative, flip.signs))
        >>> moved = push_forward(sym, flip, Gaussian(mean, 0.5))
        >>> moved.mean["inner"].tolist(), moved.std["inner"].tolist()
        ([[-1.0, -2.0]], [[0.5, 0.5]])
    """
    if isinstance(posterior, Mixture):
        return _mixture(symmetry, g, posterior)
    if not isinstance(g, Element):
        raise TypeError(
            f"got a {type(g).__name__} for g, expected one Element; only a Mixture takes a "
            "sequence of elements, and Draws take a stacked one"
        )
    if isinstance(posterior, Draws):
        return _draws(symmetry, g, posterior)
    if isinstance(posterior, Gaussian):
        return _gaussian(symmetry, g, posterior)
    raise TypeError(
        f"got a {type(posterior).__name__}, expected Draws, a Gaussian or a Mixture; for one "
        "network use symmetry.act"
    )


def log_volume(symmetry: Symmetry, g: Element, params: Any) -> jax.Array:
    """log|det g|: by how much g expands volume in the space of parameters.

    Exactly 0 for permutations and signs; for scalings the sum of the logs of all factors.

    Args:
        symmetry: The group.
        g: An element.
        params: Parameters of the model, or their shapes; the values do not matter.
    """
    ones = jax.tree.map(lambda x: jnp.ones(x.shape), params)
    return sum(
        (jnp.sum(jnp.log(jnp.abs(x))) for x in jax.tree.leaves(symmetry.act(g, ones))),
        start=jnp.zeros(()),
    )


def _draws(symmetry: Symmetry, g: Element, draws: Draws) -> Draws:
    axis = 0 if _is_stacked(symmetry, g, len(draws)) else None
    if axis is None:
        params = jax.vmap(symmetry.act, (None, 0))(g, draws.params)
    else:
        params = symmetry.act_many(g, draws.params)
    log_density = draws.log_density
    if log_density is not None:
        volume = functools.partial(log_volume, symmetry, params=draws[0])
        log_density = log_density - (volume(g) if axis is None else jax.vmap(volume)(g))
    return dataclasses.replace(draws, params=params, log_density=log_density)


def _gaussian(symmetry: Symmetry, g: Element, q: Gaussian) -> Gaussian:
    if _is_stacked(symmetry, g, None):
        raise ValueError(
            "g is a stack of elements, expected one for a Gaussian; use jax.vmap to push it "
            "forward by each"
        )
    std = jax.tree.map(jnp.abs, symmetry.act(g, q.std))
    factor = None if q.factor is None else jax.vmap(symmetry.act, (None, 0))(g, q.factor)
    return Gaussian(symmetry.act(g, q.mean), std, factor)


def _mixture(symmetry: Symmetry, g: Element | Sequence[Element], q: Mixture) -> Mixture:
    each = [g] * len(q.components) if isinstance(g, Element) else list(g)
    if len(each) != len(q.components):
        raise ValueError(
            f"got {len(each)} elements for {len(q.components)} components, expected one for each, "
            "or one for all"
        )
    moved = [_gaussian(symmetry, h, c) for h, c in zip(each, q.components, strict=True)]
    return dataclasses.replace(q, components=moved)


def _is_stacked(symmetry: Symmetry, g: Element, count: int | None) -> bool:
    """Whether an element has a leading axis of draws."""
    shapes, expected = _shapes(g), _shapes(symmetry.identity(np))
    if shapes == expected:
        return False
    lead = {name: shape[:1] for name, shape in shapes.items()}
    rest = {name: shape[1:] for name, shape in shapes.items()}
    if rest == expected and (count is None or set(lead.values()) == {(count,)}):
        return True
    odd = next((n for n in expected if n not in shapes or shapes[n] != expected[n]), None)
    odd = odd or next(n for n in shapes if n not in expected)
    wanted = f"{expected.get(odd)}" + (f", or with {count} draws in front" if count else "")
    raise ValueError(
        f"the {odd[0]} of factor {odd[1]!r} have shape {shapes.get(odd)}, expected {wanted}; g "
        "must be an element of this group, or one per draw"
    )


def _shapes(g: Element) -> dict[tuple[str, str], tuple[int, ...]]:
    return {
        (kind, name): np.shape(value)
        for kind, values in zip(Element._fields, g, strict=True)
        for name, value in values.items()
    }
