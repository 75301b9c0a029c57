"""Pruning by a posterior: weights that it is sure of are kept, the others set to zero."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.checks import check_choice
from onebasin.evaluate import table
from onebasin.posterior import Draws, Gaussian, Mixture, moments, trees

RULES = ("std", "signal")
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01)


@dataclasses.dataclass(frozen=True, eq=False)
class Pruned:
    """What `prune` kept.

    Attributes:
        params: What was pruned, with zeros where it was cut.
        mask: A tree like one network, True where weights were kept.
        kept: How many weights were kept.
    """

    params: Any
    mask: Any
    kept: int

    def __repr__(self) -> str:
        return f"Pruned({self.kept:,} of {trees.num_weights(self.mask):,} weights kept)"


@dataclasses.dataclass(frozen=True, eq=False)
class PruneCurve:
    """How good a network is that has lost weights.

    Attributes:
        keep: The shares of weights that were kept.
        score: The score at each.
        by: The rule by which weights were chosen.
    """

    keep: np.ndarray
    score: np.ndarray
    by: str

    def __str__(self) -> str:
        rows = [(f"{100 * k:g} %", f"{s:.4f}") for k, s in zip(self.keep, self.score, strict=True)]
        return table.render((f"kept by {self.by}", "score"), rows)


def prune(
    posterior: Draws | Gaussian | Mixture, keep: float, by: str = "std", *, target: Any = None
) -> Pruned:
    """Keeps a share of the weights of a network and sets the others to zero.

    By "std" those of the lowest standard deviation, as in xiao2023compact: the weights that the
    posterior pins down, whatever their size. It says nothing of what a weight is worth. Those of
    great spread go first, and where they have large means too, as a layer of large weights has, the
    network goes with them: it can fall to chance with most of its weights still there. Such a rule
    needs weights of one scale, with the wide ones around zero. By "signal" those of the largest
    abs(mean) / std, as in graves2011practical: a weight of great spread is kept for a large mean,
    and one that is zero for certain goes. Try both on data. All leaves are ranked together.

    Args:
        posterior: Whose standard deviations decide; draws should lie in one basin.
        keep: The share of weights that is kept, above 0 and up to 1.
        by: "std" or "signal".
        target: What is pruned: parameters of one network, `Draws` or a `Gaussian` (its mean and its
            spread) in the same basin; the posterior's mean by default.

    Returns:
        The pruned target and the mask.

    Example:
        >>> import jax.numpy as jnp
        >>> import onebasin as ob
        >>> q = ob.Gaussian(jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([0.1, 0.4, 0.2, 0.3]))
        >>> ob.prune(q, 0.5).params.tolist()
        [1.0, 0.0, 3.0, 0.0]
        >>> ob.prune(q, 0.5, target=jnp.full(4, 7.0)).params.tolist()
        [7.0, 0.0, 7.0, 0.0]
    """
    ranking = _Ranking(posterior, by)
    return ranking.cut(ranking.mean if target is None else target, keep)


def prune_curve(
    score: Callable[[Any], Any],
    posterior: Draws | Gaussian | Mixture,
    by: str = "std",
    *,
    keep: Sequence[float] = SHARES,
    target: Any = None,
) -> PruneCurve:
    """The score of a network over the share of weights that it keeps.

    Args:
        score: score(pruned) -> number, as accuracy or loss on some data; pruned is the target with
            zeros.
        posterior: Whose standard deviations decide.
        by: "std" or "signal", as for `prune`.
        keep: The shares.
        target: What is pruned; the posterior's mean by default.

    Example:
        >>> import jax.numpy as jnp
        >>> import onebasin as ob
        >>> q = ob.Gaussian(jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([0.1, 0.4, 0.2, 0.3]))
        >>> ob.prune_curve(jnp.sum, q, keep=(1.0, 0.5, 0.25)).score.tolist()
        [10.0, 4.0, 1.0]
    """
    ranking = _Ranking(posterior, by)
    target = ranking.mean if target is None else target
    scores = [float(score(ranking.cut(target, share).params)) for share in keep]
    return PruneCurve(np.asarray(keep, float), np.asarray(scores), by)


class _Ranking:
    """The weights of a posterior in the order in which they are kept."""

    def __init__(self, posterior: Any, by: str) -> None:
        check_choice("rule", by, RULES)
        found = moments(posterior).check_finite()
        self.mean = found.mean
        std = _flat(found.std)
        if by == "std":
            order = np.argsort(std, kind="stable")
        else:
            # A weight that is certainly zero carries no signal; one that is certain, all of it.
            size = np.abs(_flat(found.mean))
            with np.errstate(divide="ignore", invalid="ignore"):
                order = np.argsort(-np.where(size > 0, size / std, 0), kind="stable")
        self._place = np.empty(len(order), int)
        self._place[order] = np.arange(len(order))

    def cut(self, target: Any, keep: float) -> Pruned:
        if not 0 < keep <= 1:
            raise ValueError(
                f"got keep={keep}, expected the share of weights that is kept, above 0 and up to 1"
            )
        kept = max(1, round(keep * len(self._place)))
        mask = self._unflat(self._place < kept)
        return Pruned(self._masked(target, mask), mask, kept)

    def _unflat(self, flat: np.ndarray) -> Any:
        leaves, structure = jax.tree.flatten(self.mean)
        ends = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
        parts = np.split(flat, ends)
        shaped = [
            jnp.asarray(part.reshape(np.shape(leaf)))
            for part, leaf in zip(parts, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, shaped)

    def _masked(self, target: Any, mask: Any) -> Any:
        def zero(tree: Any, what: str, lead: tuple[int, ...] = ()) -> Any:
            trees.check_same(mask, tree, "the posterior", what, lead)
            return jax.tree.map(lambda x, m: jnp.where(m, x, jnp.zeros_like(x)), tree, mask)

        if isinstance(target, Draws):
            params = zero(target.params, "the target", (len(target),))
            return dataclasses.replace(target, params=params, log_density=None)
        if isinstance(target, Gaussian):
            factor = zero(target.factor, "the factor", (target.rank,)) if target.rank else None
            return Gaussian(zero(target.mean, "the target"), zero(target.std, "the std"), factor)
        return zero(target, "the target")


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
