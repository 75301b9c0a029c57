"""Whether chains have come together in weight space: R-hat and effective sample size.

Across chains both mean nothing while every chain has labels of its own for the hidden units; with
the group of the model they are shown before and after all chains are brought into one basin, each
by one element: elements of single draws would undo that a chain moves slowly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from onebasin.align import align_many
from onebasin.align.by_chain import align_chains
from onebasin.align.checks import check_choice
from onebasin.evaluate.diagnostic import Diagnostic
from onebasin.evaluate.metrics import checks
from onebasin.posterior import Draws
from onebasin.posterior.trees import is_float, named_leaves
from onebasin.symmetry import Symmetry

LEAST_DRAWS = 4
TAIL = (0.05, 0.95)
RELABELLED = {"chain": align_chains, "draw": align_many}


def rhat(
    draws: Draws,
    *,
    symmetry: Symmetry | None = None,
    method: str = "rank",
    num_weights: int | None = 500,
    seed: int = 0,
    relabel: str = "chain",
    **options: Any,
) -> Diagnostic:
    """R-hat of every weight across chains: near 1 where they cannot be told apart.

    Rank-normalised and split, as vehtari2021rank has it and ArviZ computes it; the chains are the
    modes of the draws.

    With the group of the model it is computed again once every chain was moved by one element into
    the basin of the others, which keeps how the chain moves. An element for each draw would bring
    every draw near to one centre, and chains that never mixed would pass: slow chains of a prior
    whose R-hat is 1.33 come down to 1.03 so, where one element for each leaves
    1.27. What one element per chain cannot repair is a chain
    that changes its labels on its way: such chains look slow, and relabel="draw" shows the rest.

    Args:
        draws: Draws of at least two modes, equally many of each and in order.
        symmetry: The group of the model: R-hat is computed again once all chains are in one basin.
        method: "rank", "split", "folded", "z_scale" or "identity", as in ArviZ.
        num_weights: How many weights of each leaf are looked at, at random; None for all.
        seed: Seed of that choice.
        relabel: "chain", one element (permutation, signs, scales) for all draws of a chain; or
            "draw", one for each, which hides slow chains: no sign that they have converged.
        options: Arguments of `align_many`, as `cost`, `apply_fn` and `inputs`. By chain, costs on
            data compare the chains' mean networks.

    Returns:
        R-hat by leaf, after alignment if there is a group, and before it as `before`; it prints as
        a table. Infinite for a weight that no chain moves where chains have it at different places,
        NaN where all have it at one.

    Raises:
        ValueError: If there is one chain, or chains of different lengths, or NaN.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> weights = jax.random.normal(jax.random.key(0), (200, 3))
        >>> mode = jnp.arange(200) // 50
        >>> bool(ob.rhat(ob.Draws({"w": weights}, mode=mode)).extreme < 1.1)
        True
        >>> bool(ob.rhat(ob.Draws({"w": weights + mode[:, None]}, mode=mode)).median > 1.3)
        True
    """

    def compute(chains: np.ndarray) -> np.ndarray:
        from arviz_stats.base.array import array_stats

        found = np.asarray(array_stats.rhat(chains, chain_axis=0, draw_axis=1, method=method))
        # Of a spread of zero only rounding is left to divide by.
        stuck = (np.ptp(chains, axis=1) == 0).all(axis=0)
        apart = np.ptp(chains[:, 0], axis=0) > 0
        return np.where(stuck, np.where(apart, np.inf, np.nan), found)

    _check(draws, least_chains=2)
    return _diagnose("R-hat", compute, "max", draws, symmetry, num_weights, seed, relabel, options)


def ess(
    draws: Draws,
    *,
    symmetry: Symmetry | None = None,
    method: str = "bulk",
    prob: Any = None,
    num_weights: int | None = 500,
    seed: int = 0,
    relabel: str = "chain",
    **options: Any,
) -> Diagnostic:
    """The effective sample size of every weight: how many independent draws are worth as much.

    Computed by ArviZ as in vehtari2021rank; the chains are the modes of the draws. With the group
    of the model it is computed again once every chain was moved by one element, as for `rhat`: an
    element for each draw would take away what makes draws depend on each other, and count too many.

    Args:
        draws: Draws, equally many of each mode and in order.
        symmetry: The group of the model: it is computed again once all chains are in one basin.
        method: "bulk", "tail", "mean", "sd", "median" and others, as in ArviZ.
        prob: Which quantiles: two for "tail" (5 % and 95 % if left out) and "local", one for
            "quantile".
        num_weights: How many weights of each leaf are looked at, at random; None for all.
        seed: Seed of that choice.
        relabel: "chain" or "draw", as for `rhat`.
        options: Arguments of `align_many`, as `cost`, `apply_fn` and `inputs`. By chain, costs on
            data compare the chains' mean networks.

    Returns:
        Sizes by leaf, after alignment if there is a group, and before it as `before`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> draws = ob.Draws({"w": jax.random.normal(jax.random.key(0), (400, 3))})
        >>> bool(300 < ob.ess(draws).median < 500)
        True
    """
    if prob is None and method in ("quantile", "local"):
        raise ValueError(
            f"method={method!r} is about quantiles: pass prob=, "
            + ("as in prob=0.9" if method == "quantile" else "as in prob=(0.1, 0.2)")
        )
    at = TAIL if prob is None and method == "tail" else prob

    def compute(chains: np.ndarray) -> np.ndarray:
        from arviz_stats.base.array import array_stats

        return np.asarray(
            array_stats.ess(chains, chain_axis=0, draw_axis=1, method=method, prob=at)
        )

    _check(draws, least_chains=1)
    return _diagnose("ESS", compute, "min", draws, symmetry, num_weights, seed, relabel, options)


def functional_rhat(
    probs: Any, mode: Any, *, num_values: int | None = 2000, seed: int = 0
) -> Diagnostic:
    """R-hat of predictions: whether chains agree in what they compute, whatever their weights.

    Args:
        probs: Probabilities of samples, (sample, example, class).
        mode: The chain that each sample came from, (sample,).
        num_values: How many probabilities are looked at, at random; None for all.
        seed: Seed of that choice.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> probs = jax.nn.softmax(jax.random.normal(jax.random.key(0), (80, 5, 3)))
        >>> bool(ob.functional_rhat(probs, jnp.arange(80) // 20).median < 1.1)
        True
    """
    draws = Draws({"predictions": checks.samples(probs)}, mode=mode)
    return dataclasses.replace(rhat(draws, num_weights=num_values, seed=seed), name="R-hat of")


def _diagnose(
    name: str,
    compute: Callable[[np.ndarray], np.ndarray],
    worst: str,
    draws: Draws,
    symmetry: Symmetry | None,
    num_weights: int | None,
    seed: int,
    relabel: str,
    options: dict[str, Any],
) -> Diagnostic:
    check_choice("relabel", relabel, tuple(RELABELLED))
    rng = np.random.default_rng(seed)
    weights = {
        path: _choice(int(np.prod(np.shape(leaf)[1:])), num_weights, rng)
        for path, leaf in named_leaves(draws.params)
        if is_float(leaf)
    }
    found = Diagnostic(name, _values(draws, weights, compute), weights, worst)
    if symmetry is None:
        if options:
            raise TypeError(
                f"got {', '.join(options)} without symmetry=, expected options only for the "
                "alignment of draws"
            )
        return found
    alignment = RELABELLED[relabel](symmetry, draws, **options)
    values = _values(alignment.draws, weights, compute)
    return dataclasses.replace(
        found, values=values, before=found, alignment=alignment, relabel=relabel
    )


def _values(
    draws: Draws, weights: dict[str, np.ndarray], compute: Callable[[np.ndarray], np.ndarray]
) -> dict[str, np.ndarray]:
    mode = np.asarray(draws.mode)
    order = np.argsort(mode, kind="stable").reshape(len(np.unique(mode)), -1)
    found = {}
    for path, leaf in named_leaves(draws.params):
        if path not in weights:
            continue
        size = int(np.prod(np.shape(leaf)[1:]))
        chosen = np.asarray(leaf).reshape(len(mode), size)[:, weights[path]].astype(float)
        if not np.isfinite(chosen).all():
            raise ValueError(
                f"leaf {path!r} of the draws holds NaN or infinite values; leave out the chains "
                "that diverged"
            )
        known = np.ptp(chosen, axis=0) > 0
        values = np.full(chosen.shape[1], np.nan)
        if known.any():
            # A weight that changes in one chain alone has no variance within the others.
            with np.errstate(divide="ignore", invalid="ignore"):
                values[known] = compute(chosen[order][:, :, known])
        found[path] = values
    return found


def _choice(size: int, count: int | None, rng: np.random.Generator) -> np.ndarray:
    if count is not None and count < 1:
        raise ValueError(f"got {count} weights to look at, expected at least one, or None for all")
    if count is None or count >= size:
        return np.arange(size)
    return np.sort(rng.choice(size, count, replace=False))


def _check(draws: Any, least_chains: int) -> None:
    if not isinstance(draws, Draws):
        raise TypeError(
            f"got a {type(draws).__name__}, expected Draws, whose modes are the chains: "
            "onebasin.Draws(params, mode=...)"
        )
    modes, counts = np.unique(np.asarray(draws.mode), return_counts=True)
    if len(modes) < least_chains:
        raise ValueError(
            f"all {len(draws)} draws are of mode {modes[0]}, expected at least {least_chains} "
            "chains: R-hat compares chains; give each draw the number of its chain as mode"
        )
    if len(set(counts.tolist())) > 1:
        said = ", ".join(f"mode {m} has {n}" for m, n in zip(modes, counts, strict=True))
        raise ValueError(
            f"chains have different lengths ({said}), expected equally many draws of each; leave "
            f"some out, as draws.of_mode({modes[counts.argmax()]})[:{counts.min()}]"
        )
    if counts[0] < LEAST_DRAWS:
        raise ValueError(
            f"chains have {counts[0]} draws each, expected at least {LEAST_DRAWS} to see how they "
            "move"
        )
