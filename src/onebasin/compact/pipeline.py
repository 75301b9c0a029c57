"""From draws scattered over symmetric copies to one posterior in one basin, in one call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align import align_many, canonicalize
from onebasin.align.checks import check_population
from onebasin.align.many import SETTLED
from onebasin.compact import predictive, selecting
from onebasin.compact.checks import check_distilling, check_fits, check_request, check_used
from onebasin.compact.distilling import SMALL_STD, distil
from onebasin.compact.fitting import COVARIANCES, as_draws, by_mode, fit_gaussian, fit_mixture
from onebasin.compact.result import Compact, Row
from onebasin.compact.ways import NUM_STARTS, settled, wanted, ways
from onebasin.engine import Engine
from onebasin.posterior import Draws, Gaussian, Mixture, moments
from onebasin.symmetry import Symmetry
from onebasin.symmetry.keys import key_or_first

MAX_INPUTS = 2000


def compact(
    symmetry: Symmetry,
    draws: Any,
    *,
    apply_fn: Callable[[Any, Any], Any] | None = None,
    inputs: Any = None,
    cost: str | None = None,
    scaling: str | None = "auto",
    covariance: str | None = None,
    rank: int | None = None,
    shrinkage: float | str | None = None,
    temperature: float | None = None,
    num_starts: int | None = None,
    mixture: bool = False,
    refine: str | None = None,
    starts: Mapping[str, Any] | None = None,
    distilled_rank: int = 0,
    key: jax.Array | None = None,
    engine: Engine | None = None,
    **distilling: Any,
) -> Compact:
    """Removes scaling, aligns to a common mean, fits: the whole way in one call.

    With a model and training inputs, what is not given (cost, scaling, covariance, temperature) is
    chosen by the predictive of held-out draws on these inputs; without them the cost is "weights",
    scalings are removed by minimum mass, and the fit is diagonal at temperature 1. So it is with
    two draws, which leave none to hold out; the print says so. An option that nothing would be
    done with is refused.

    Args:
        symmetry: The model's group.
        draws: `Draws` (of several chains, best), a tree of stacked parameters (leading axis =
            draw), or a `Mixture` of Gaussians, whose components are aligned as distributions and
            whose mean and variances are the result: there is nothing to choose.
        apply_fn: The model of a classification, to logits; of a regression leave it out. With a
            `Mixture`, for costs on data.
        inputs: Training inputs.
        cost: What aligns the draws, as for `align_many`; None chooses.
        scaling: How scalings are removed first, as for `align_many`; "auto" chooses, None leaves
            them.
        covariance: "diagonal", "low-rank" or "unit-blocks", as for `fit_gaussian`; None chooses
            between the first two.
        rank: Rank of a low-rank fit, by default all that the draws (with `mixture`, those of a
            mode) have; of unit blocks the components per unit. One more than they have is refused;
            where draws are held out to choose, the others give as many as they have.
        shrinkage: Shrinkage of its correlations, as for `fit_gaussian`; none if left out. Without
            any, and of full rank, a fit has no spread but that of the draws: fit with "auto" what
            is to have a density (`log_density`, `kl`).
        temperature: Factor of the covariance; None chooses.
        num_starts: With a model, from how many of the draws the alignment is tried, by the cost
            given or by weights; 4 if left out.
        mixture: Whether to fit one Gaussian to each mode of the aligned draws, for what symmetry
            does not explain. Covariance, temperature and stretch are those that were chosen for all
            draws together.
        refine: None, or "distil" to refine mean and spread until the predictive is the draws'.
        starts: Further starts for distilling, by name: Gaussians, or networks (a trained one).
        distilled_rank: Rank of the distilled Gaussian beside its diagonal; it costs the most, and
            brings the most where chains agree closely.
        key: Random key; `jax.random.key(0)` by default.
        engine: Where blocks of draws are aligned as tasks; None for here.
        **distilling: Further options of `distil`: steps, num_samples, extra and so on.

    Returns:
        The posterior, with the alignment and what each step gained.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> net = ob.nets.mlp(hidden=(3,), outputs=2)
        >>> x = jnp.ones((4, 2))
        >>> draws = ob.Draws(
        ...     jax.vmap(lambda k: net.init(k, x))(jax.random.split(jax.random.key(0), 9))
        ... )
        >>> symmetry = ob.discover(net.apply, draws[0], x)
        >>> ob.compact(symmetry, draws).posterior
        Gaussian(17 weights, rank 0)
    """
    if not isinstance(draws, Draws | Mixture):
        check_population(symmetry, draws)
        draws = as_draws(draws)
    check_request(draws, apply_fn, inputs, covariance, refine, mixture)
    beside = {"starts": starts, "distilled_rank": distilled_rank}
    check_distilling(distilling, refine, inspect.signature(compact).parameters, beside)
    if num_starts is not None and num_starts < 1:
        raise ValueError(f"got num_starts={num_starts}, expected at least one")
    seeing = apply_fn is not None and inputs is not None
    fitting = {
        "covariance": covariance,
        "rank": rank,
        "shrinkage": shrinkage,
        "temperature": temperature,
    }
    check_used(draws, seeing, cost, {**fitting, "num_starts": num_starts})
    key = key_or_first(key)
    if isinstance(draws, Mixture):
        return _of_mixture(
            symmetry, draws, cost, settled(scaling), engine, apply_fn=apply_fn, inputs=inputs
        )
    check_fits(draws, mixture, fitting)
    shrinkage, num_starts = shrinkage or 0.0, num_starts or NUM_STARTS
    if not seeing:
        alignment = align_many(
            symmetry, draws, cost=cost or "weights", scaling=settled(scaling), engine=engine
        )
        options: dict[str, Any] = {"temperature": 1.0 if temperature is None else temperature}
        if covariance not in (None, "diagonal"):
            options |= {"rank": rank, "shrinkage": shrinkage, "symmetry": symmetry}
        fit = fit_mixture if mixture else fit_gaussian
        found = fit(alignment.draws, covariance or "diagonal", **options)
        return Compact(found, "moments", found, alignment)
    assert apply_fn is not None
    seen = _some(inputs)
    held_out = selecting.can_hold_out(draws)
    unchosen = () if held_out else wanted(symmetry, cost, scaling, covariance, temperature)
    if not held_out:
        cost, scaling, num_starts = cost or "weights", settled(scaling), 1
    for_choice, for_rows, for_distilling = jax.random.split(key, 3)
    alignments = {
        way: align_many(
            symmetry,
            draws,
            cost=way.cost,
            apply_fn=apply_fn,
            inputs=seen,
            scaling=way.scaling,
            first=way.first,
            tolerance=SETTLED,
            engine=engine,
        )
        for way in ways(symmetry, len(draws), cost, scaling, num_starts)
    }
    way = next(iter(alignments))
    if held_out:
        tried = {w: a.draws for w, a in alignments.items()}
        way, _ = selecting.best_way(apply_fn, tried, seen)
        choice = selecting.choose(
            apply_fn,
            way,
            alignments[way].draws,
            seen,
            COVARIANCES if covariance is None else (covariance,),
            for_choice,
            symmetry,
            rank=rank,
            shrinkage=shrinkage,
            temperatures=selecting.TEMPERATURES if temperature is None else (temperature,),
        )
    else:
        warmth = 1.0 if temperature is None else temperature
        choice = selecting.Choice(way, covariance or "diagonal", warmth, 1.0, np.nan)
    alignment = alignments[way]
    aligned = alignment.draws

    def moments_of(part: Draws) -> selecting.Fitter:
        return selecting.Fitter.of(part, choice.covariance, rank, shrinkage, symmetry)

    def fit_of(part: Draws) -> Gaussian:
        return moments_of(part).fit(choice.temperature, choice.stretch)

    fitted = by_mode(aligned, fit_of) if mixture else fit_of(aligned)
    target = predictive.of_draws(apply_fn, draws.params, seen)

    def row(step: str, posterior: Any) -> Row:
        probs = _predictive(apply_fn, posterior, seen, jax.random.clone(for_rows))
        return Row(
            step,
            predictive.agreement(target, probs),
            predictive.total_variation(target, probs),
            float(predictive.cross_entropy(target, probs)),
        )

    rows = [row("as drawn, diagonal", fit_gaussian(draws))]
    if way.scaling is not None and symmetry.scaling_dimension():
        free = jax.vmap(lambda p: _free(symmetry, p, way.scaling))
        rows.append(
            row(f"scaling removed ({way.scaling})", fit_gaussian(Draws(free(draws.params))))
        )
    rows.append(row(f"aligned by {way.cost}", fit_gaussian(aligned)))
    if choice.covariance != "diagonal":
        rows.append(row(choice.covariance.replace("-", " "), moments_of(aligned).fit(1.0, 1.0)))
    each = ", of each mode" if mixture else ""
    rows.append(
        row(
            f"moments{each}: covariance x {choice.temperature:g}, mean x {choice.stretch:g}",
            fitted,
        )
    )
    if refine is None:
        return Compact(fitted, "moments", fitted, alignment, tuple(rows), choice, unchosen=unchosen)
    single = fitted if isinstance(fitted, Gaussian) else moments(fitted)
    given = {name: _start(s) for name, s in (starts or {}).items()}
    distilled = distil(
        apply_fn,
        draws,
        inputs,
        {
            "moments": single,
            "aligned mean": Gaussian(single.mean, SMALL_STD),
            "one draw": Gaussian(jax.tree.map(jnp.asarray, aligned[0]), SMALL_STD),
            **given,
        },
        key=for_distilling,
        rank=distilled_rank,
        **distilling,
    )
    rows.append(row(f"distilled from {distilled.start}", distilled.posterior))
    return Compact(
        distilled.posterior,
        "distilled",
        fitted,
        alignment,
        tuple(rows),
        choice,
        distilled,
        unchosen,
    )


def _free(symmetry: Symmetry, params: Any, scaling: Any) -> Any:
    return canonicalize(symmetry, params, scaling=scaling, order=None)


def _start(given: Any) -> Gaussian:
    return given if isinstance(given, Gaussian) else Gaussian(given, SMALL_STD)


def _predictive(apply_fn: Any, posterior: Any, inputs: Any, key: jax.Array) -> jax.Array:
    if isinstance(posterior, Mixture):
        parts = [_predictive(apply_fn, c, inputs, key) for c in posterior.components]
        return jnp.tensordot(jnp.asarray(posterior.weights), jnp.stack(parts), 1)
    return predictive.of_gaussian(apply_fn, posterior, inputs, jax.random.clone(key), 64)


def _some(inputs: Any) -> Any:
    """At most MAX_INPUTS of the inputs, evenly spread."""
    count = len(jax.tree.leaves(inputs)[0])
    rows = np.unique(np.linspace(0, count - 1, min(count, MAX_INPUTS)).astype(int))
    return jax.tree.map(lambda x: jnp.asarray(x)[rows], inputs)


def _of_mixture(
    symmetry: Symmetry,
    mixture: Mixture,
    cost: str | None,
    scaling: str | None,
    engine: Engine | None,
    **model: Any,
) -> Compact:
    """Components aligned as distributions, and their common mean and spread."""
    alignment = align_many(
        symmetry, mixture, cost=cost or "wasserstein", scaling=scaling, engine=engine, **model
    )
    found = moments(alignment.draws)
    return Compact(found, "moments", found, alignment)
