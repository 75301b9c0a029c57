"""Two posteriors in weight space, before and after one is brought into the other's basin."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax

from onebasin.align import Alignment, align
from onebasin.evaluate import table
from onebasin.evaluate.gaussians import kl, wasserstein
from onebasin.evaluate.mmd import MMD, mmd
from onebasin.posterior import Draws, Gaussian, moments, push_forward
from onebasin.symmetry import Symmetry
from onebasin.symmetry.keys import key_or_first


class Distances(NamedTuple):
    """Distances between two posteriors p and q.

    Attributes:
        wasserstein: Wasserstein-2 distance of the Gaussians.
        kl: KL(p || q) in nats.
        reverse_kl: KL(q || p) in nats.
        mmd: Maximum mean discrepancy of the draws, if there are any.
    """

    wasserstein: float
    kl: float
    reverse_kl: float
    mmd: MMD | None


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """The outcome of `compare`.

    Attributes:
        before: Distances of the posteriors as they are.
        after: Distances once q is in p's basin.
        alignment: The alignment of q's mean to p's.
        moved: q in p's basin, in the form that it came in.
    """

    before: Distances
    after: Distances
    alignment: Alignment
    moved: Any

    def __repr__(self) -> str:
        old, new = (float(d.wasserstein) for d in (self.before, self.after))
        return f"Comparison(Wasserstein-2 {old:.6g} as they are, {new:.6g} in one basin)"

    def __str__(self) -> str:
        rows = [
            (name, f"{float(old):.6g}", f"{float(new):.6g}")
            for name, old, new in zip(Distances._fields, self.before, self.after, strict=True)
            if old is not None and new is not None
        ]
        return table.render(("", "as they are", "in one basin"), rows)


def compare(
    symmetry: Symmetry,
    p: Gaussian | Draws,
    q: Gaussian | Draws,
    *,
    cost: str = "weights",
    num_samples: int = 100,
    key: jax.Array | None = None,
    **options: Any,
) -> Comparison:
    """Distances between two posteriors, before and after q is brought into p's basin.

    The mean of q is aligned to the mean of p, and its spread is carried along by the same element.
    Draws are compared as the Gaussian with their moments, so they should lie in one basin already
    (`align_many`); the maximum mean discrepancy is that of the draws themselves.

    Args:
        symmetry: The group of the model.
        p: A `Gaussian` or `Draws`.
        q: A `Gaussian` or `Draws` of the same model.
        cost: The cost of the alignment, as for `align`.
        num_samples: Draws from a Gaussian for the maximum mean discrepancy; 0 leaves that out.
        key: Random key for those; `jax.random.key(0)` by default.
        options: Further arguments of `align`, as `apply_fn` and `inputs` for costs on data.

    Returns:
        Distances before and after; it prints as a table.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> net = ob.nets.mlp(hidden=(5,), outputs=2)
        >>> params = net.init(jax.random.key(0), jnp.ones((1, 3)))
        >>> symmetry = ob.discover(net.apply, params, jnp.ones((1, 3)))
        >>> p = ob.Gaussian(params, 0.1)
        >>> q = ob.push_forward(symmetry, symmetry.random(jax.random.key(1)), p)
        >>> found = ob.compare(symmetry, p, q)
        >>> bool(found.before.wasserstein > 1), bool(found.after.wasserstein < 1e-3)
        (True, True)
    """
    for name, form in (("p", p), ("q", q)):
        if not isinstance(form, Gaussian | Draws):
            raise TypeError(
                f"{name} is a {type(form).__name__}, expected a Gaussian or Draws; take moments of "
                "a Mixture, and align single networks with onebasin.align"
            )
    if num_samples < 0 or num_samples == 1:
        raise ValueError(f"got num_samples={num_samples}, expected none or at least two")
    keys = jax.random.split(key_or_first(key), 3)
    fixed, moving = _gaussian(p), _gaussian(q)
    alignment = align(symmetry, moving, to=fixed, cost=cost, **options)
    moving_form: Any = q
    moved: Any = push_forward(symmetry, alignment.element, moving_form)
    drawn = [_draws(each, k, num_samples) for each, k in zip((p, q, moved), keys, strict=True)]
    return Comparison(
        before=_distances(fixed, moving, drawn[0], drawn[1]),
        after=_distances(fixed, _gaussian(moved), drawn[0], drawn[2]),
        alignment=alignment,
        moved=moved,
    )


def _gaussian(form: Gaussian | Draws) -> Gaussian:
    return form if isinstance(form, Gaussian) else moments(form)


def _draws(form: Gaussian | Draws, key: jax.Array, count: int) -> Draws | None:
    if isinstance(form, Draws):
        return form
    return form.sample(key, count) if count else None


def _distances(p: Gaussian, q: Gaussian, x: Draws | None, y: Draws | None) -> Distances:
    apart = None if x is None or y is None else mmd(x, y)
    return Distances(wasserstein(p, q), kl(p, q), kl(q, p), apart)
