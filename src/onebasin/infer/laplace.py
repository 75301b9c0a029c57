"""Laplace's approximation: a Gaussian around a trained network, as wide as the curvature says.

    q = N(theta*, T (H + D)^-1)

with theta* the maximum a posteriori network, H the generalised Gauss-Newton matrix of the
likelihood there (module `ggn`), D the precision of the prior and T the temperature
(mackay1992practical, ritter2018scalable, daxberger2021laplace). A prior that is not normal counts
by the normal of the same variance (for Student's t without one, of the same scale): where the data
say nothing, the posterior is as wide as the prior. A learned noise stays at its value.

All is computed in units of the prior's scale s, theta = s u, where D is tau times the identity:
then the prior is added to the eigenvalues of any structure exactly. How tau is chosen, module
`multipliers` says.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.engine import Engine
from onebasin.infer import ggn, lanczos, training
from onebasin.infer.chunks import on_engine
from onebasin.infer.cohorts import rows_of
from onebasin.infer.linear_sites import sites_of
from onebasin.infer.loop import DivergenceError, Journal, modes, summary
from onebasin.infer.multipliers import best_multiplier, calibrated_multiplier
from onebasin.infer.population import DEFAULT_BYTES
from onebasin.infer.problem import Problem
from onebasin.infer.spectra import Spectrum
from onebasin.infer.vectors import from_vector, to_vector
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.posterior.trees import num_weights
from onebasin.store import Run

STRUCTURES = ("kron", "diagonal", "low-rank", "last-layer", "full")
EXTRA_ITERATIONS = 20


@on_engine(version=1)
def laplace(
    key: jax.Array,
    problem: Problem,
    *,
    structure: str = "kron",
    prior_precision: float | str | None = "calibrated",
    num_samples: int = 100,
    rank: int = 50,
    probes: int | None = None,
    num_networks: int = 1,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    init: Any = "random",
    memory: int | None = None,
    progress: bool = False,
    run: str | Path | Run | None = None,
    chunk: int | None = None,
    engine: Engine | None = None,
) -> Draws | Gaussian | Mixture:
    """Fits a Gaussian to the curvature around each of several trained networks.

    Args:
        key: Random key.
        problem: What to learn.
        structure: How the curvature is kept: "kron" (a Kronecker product for each layer),
            "diagonal", "low-rank" (the largest eigenvalues; the prior elsewhere), "last-layer" (all
            of the last layer; the rest stays at the trained network) or "full" (tiny networks).
        prior_precision: How narrow the prior is that the curvature is added to: None for the
            problem's own; "calibrated" for the multiple of its precision, from 1 on, at which the
            loss is still quadratic as far as networks are drawn; "marginal-likelihood" for the
            multiple that makes the data most probable, whatever that does to drawn networks; or a
            number, the precision of all weights.
        num_samples: How many networks to draw around each trained one.
        rank: How many eigenvalues "low-rank" keeps.
        probes: How many random directions of its outputs each example's curvature is estimated
            from, without bias; None takes all outputs. With a hundred classes, a few directions
            cost a small part of the time and say as much, summed over the data.
        num_networks: How many networks to train.
        epochs: Epochs of training, by default as for `ensemble`; 0 takes `init` as it stands.
        batch_size: Examples per step of training.
        learning_rate: Of Adam in training, by default as for `ensemble`.
        init: Where training starts, as for `ensemble`.
        memory: Budget in bytes of one step.
        progress: Whether to draw bars.
        run: A folder that keeps the state; the same call continues there.
        chunk: Steps between two saves.
        engine: Where chunks of networks run as tasks; None for here, all as one program.

    Returns:
        For "diagonal" a Gaussian, or a mixture of one for each network; else `Draws` with their log
        densities under the approximation, each network a mode. `info` has the loss curve, and for
        each network the log marginal likelihood and the multiplier of the prior's precision.

    Raises:
        DivergenceError: If the curvature at a network is not finite.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> x = jnp.linspace(-1, 1, 16)[:, None]
        >>> problem = ob.Problem(
        ...     ob.nets.mlp(hidden=(4,), outputs=1), (x, x), likelihood="gaussian", noise=0.1
        ... )
        >>> ob.infer.laplace(jax.random.key(0), problem, structure="diagonal", epochs=2)
        Gaussian(13 weights, rank 0)
    """
    arguments = dict(locals())
    _check(structure, prior_precision, num_samples, rank, probes)
    if problem.has_state:
        raise ValueError(
            "laplace takes the curvature example by example, and the network has running "
            "statistics, in which examples meet: take norm='frn', 'layer' or 'group', or swag"
        )
    journal = Journal.open(laplace, key, problem, arguments, run, progress, chunk)
    for_init, for_training, for_curvature, for_prior, for_draws = jax.random.split(key, 5)
    networks = training.starting_points(for_init, problem, num_networks, init)
    outputs: dict[str, Any] = {"loss": np.zeros((0, num_networks))}
    if epochs != 0:
        networks, outputs = training.train(
            journal,
            "training",
            for_training,
            problem,
            rows_of(networks),
            num_networks,
            training.potential,
            optimizer=None,
            learning_rate=learning_rate,
            epochs=epochs,
            batch_size=batch_size,
            memory=memory,
        )
    scale = _prior_scale(problem, prior_precision)
    spectra, fits = curvature(
        journal, for_curvature, problem, networks, scale, structure, rank, memory, probes
    )
    members = [jax.tree.map(lambda x, i=i: x[i], networks) for i in range(num_networks)]
    multipliers, evidence = zip(
        *(
            _multiplier(problem, own, s, scale, jax.random.fold_in(for_prior, i), prior_precision)
            for i, (own, s) in enumerate(zip(members, spectra, strict=True))
        ),
        strict=True,
    )
    info = summary(
        journal,
        loss=outputs["loss"],
        prior_multiplier=np.array(multipliers),
        log_marginal_likelihood=np.array(evidence) + fits,
    )
    found = list(zip(members, spectra, multipliers, strict=True))
    if structure == "diagonal":
        fitted = [
            problem.gaussian(own, _std(problem, s, scale, t), info=info) for own, s, t in found
        ]
        return fitted[0] if num_networks == 1 else Mixture(fitted, info=info)
    drawn = [
        _draws(problem, own, s, scale, t, jax.random.fold_in(for_draws, i), num_samples)
        for i, (own, s, t) in enumerate(found)
    ]
    stacked, density = jax.tree.map(lambda *x: jnp.concatenate(x), *drawn)
    return problem.draws(stacked, modes(num_samples, num_networks), density, info=info)


def curvature(
    journal: Journal,
    key: jax.Array,
    problem: Problem,
    networks: Any,
    scale: jax.Array,
    structure: str,
    rank: int,
    memory: int | None,
    probes: int | None = None,
) -> tuple[list[Spectrum], list[float]]:
    """The curvature at each of several networks, and their log likelihoods.

    Args:
        journal: Where the phase is run.
        key: Random key.
        problem: The problem.
        networks: Stacked unknowns.
        scale: The prior's standard deviation of every weight, as a vector.
        structure: One of `STRUCTURES`.
        rank: How many eigenvalues to keep where the structure is of low rank.
        memory: Budget in bytes.
        probes: Random directions of the outputs of each example; None for all outputs.

    Returns:
        H in units of the prior's scale, and log p(data | theta), for each network.
    """
    count, size = len(jax.tree.leaves(networks)[0]), len(scale)
    model = sites_of(problem)
    if structure == "low-rank":
        rank = min(rank, size)
        iterations = min(size, rank + max(rank, EXTRA_ITERATIONS))
        step: Any = lanczos.Lanczos(training.checked_batch(problem, None, 1000))
        keys = jax.random.split(key, count)
        start = jax.vmap(lambda k: step.start(k, iterations, size))(keys)
        state, _ = journal.phase(
            "curvature", step, (problem, scale), (networks, start), iterations, show="curvature"
        )
        fits = [float(fit) for fit in _log_likelihoods(problem, networks)]
        members = [jax.tree.map(lambda x, i=i: x[i], state[1]) for i in range(count)]
        return [lanczos.low_rank(own, rank) for own in members], fits
    if structure == "last-layer" and not model.sites:
        raise ValueError(
            "the network has no layer that multiplies by a parameter, so that none is the last: "
            "take structure='diagonal' or 'low-rank'"
        )
    rule = ggn.SUMS[structure]
    shapes = jax.eval_shape(lambda: rule.start(model, size))
    _check_memory(structure, shapes, memory)
    batch = ggn.batch_size(problem, model, structure, memory, probes)
    step = ggn.Batches(structure, batch, probes)
    start = jax.tree.map(lambda x: np.zeros((count, *x.shape), x.dtype), shapes)
    batches = -(-problem.num_examples // step.batch_size)
    state, outputs = journal.phase("curvature", step, (problem, key), (networks, start), batches)
    totals = [jax.tree.map(lambda x, i=i: x[i], state[1]) for i in range(count)]
    _check_finite(totals)
    spectra = [rule.finish(model, total, scale, problem.num_examples) for total in totals]
    return spectra, [-float(np.sum(outputs["loss"][:, i])) for i in range(count)]


@jax.jit
def _log_likelihoods(problem: Problem, networks: Any) -> jax.Array:
    return jax.lax.map(problem.log_likelihood, networks)


def _check_finite(sums: list[Any]) -> None:
    for number, own in enumerate(sums):
        if not all(np.isfinite(x).all() for x in jax.tree.leaves(own)):
            raise DivergenceError(
                f"the curvature at network {number} is not finite: its outputs or their "
                "derivatives overflow, scale the inputs or train it with a smaller learning_rate"
            )


@functools.partial(jax.jit, static_argnames="choice")
def _multiplier(
    problem: Problem,
    unknowns: Any,
    spectrum: Spectrum,
    scale: jax.Array,
    key: jax.Array,
    choice: Any,
) -> tuple[jax.Array, jax.Array]:
    """Tau, and the log marginal likelihood with it without that of the data."""
    values = spectrum.eigenvalues()
    whitened = to_vector(problem.params_of(unknowns)) / scale
    squares = jnp.sum(spectrum.apply(jnp.ones_like, whitened) ** 2)
    tau = jnp.ones(())
    if choice == "marginal-likelihood":
        tau = best_multiplier(values, squares)
    elif choice == "calibrated":
        tau = calibrated_multiplier(problem, unknowns, spectrum, scale, key)
    return tau, -(tau * squares + jnp.sum(jnp.log1p(values / tau))) / 2


@functools.partial(jax.jit, static_argnames="count")
def _draws(
    problem: Problem,
    unknowns: Any,
    spectrum: Spectrum,
    scale: jax.Array,
    tau: jax.Array,
    key: jax.Array,
    count: int,
) -> tuple[Any, jax.Array]:
    """Networks drawn from N(theta*, T (H + D)^-1), and their log densities."""
    params = problem.params_of(unknowns)
    mean = to_vector(params)

    def spread(values: jax.Array) -> jax.Array:
        return jnp.sqrt(problem.temperature / (values + tau))

    def own(x: jax.Array) -> jax.Array:
        return spectrum.apply(jnp.ones_like, x)

    values = spectrum.eigenvalues()
    constant = jnp.sum(jnp.log(spread(values)) + np.log(2 * np.pi) / 2)
    constant += jnp.sum(own(jnp.log(scale)))

    def draw(number: jax.Array) -> tuple[Any, jax.Array]:
        noise = jax.random.normal(jax.random.fold_in(key, number), mean.shape)
        drawn = from_vector(mean + scale * spectrum.apply(spread, noise), params)
        return drawn, -jnp.sum(own(noise) ** 2) / 2 - constant

    drawn, density = jax.lax.map(draw, jnp.arange(count), batch_size=min(count, 10))
    if problem.learns_noise:
        drawn = problem.join(drawn, jnp.full(count, unknowns["log_noise"]))
    return drawn, density


def _std(problem: Problem, spectrum: Any, scale: jax.Array, tau: jax.Array) -> Any:
    std = scale * jnp.sqrt(problem.temperature / (spectrum.values + tau))
    return problem.join(from_vector(std, problem.shapes()))


def _prior_scale(problem: Problem, prior_precision: float | str | None) -> jax.Array:
    shapes = problem.shapes()
    spread = problem.prior.spread(shapes)
    if isinstance(prior_precision, int | float):
        spread = jax.tree.map(lambda _: prior_precision**-0.5, spread)
    return to_vector(jax.tree.map(lambda s, x: jnp.full(x.shape, s, x.dtype), spread, shapes))


def _check(
    structure: str, prior_precision: Any, num_samples: int, rank: int, probes: int | None
) -> None:
    if structure not in STRUCTURES:
        raise ValueError(f"got structure={structure!r}, expected one of {', '.join(STRUCTURES)}")
    number = isinstance(prior_precision, int | float) and 0 < prior_precision < np.inf
    if not (number or prior_precision in (None, "calibrated", "marginal-likelihood")):
        raise ValueError(
            f"got prior_precision={prior_precision!r}, expected a positive number, 'calibrated', "
            "'marginal-likelihood' or None for the problem's prior"
        )
    if probes is not None and structure == "low-rank":
        raise ValueError(
            f"got probes={probes} with structure='low-rank', expected None: products with the "
            "whole matrix cost no more than a few probes"
        )
    for name, value in (("num_samples", num_samples), ("rank", rank), ("probes", probes)):
        if value is not None and value < 1:
            raise ValueError(f"got {name}={value}, expected at least one")


def _check_memory(structure: str, total: Any, memory: int | None) -> None:
    needed = 4 * num_weights(total)
    budget = DEFAULT_BYTES.get(jax.default_backend(), 2**33) if memory is None else memory
    if needed > budget:
        raise MemoryError(
            f"structure={structure!r} needs {needed:,} bytes for this network and the budget is "
            f"{budget:,}: raise `memory`, or take structure='diagonal' or 'low-rank'"
        )
