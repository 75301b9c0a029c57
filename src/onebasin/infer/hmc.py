"""Hamiltonian Monte Carlo.

With momentum p ~ N(0, M) the dynamics of H(theta, p) = U(theta) / T + p^T M^-1 p / 2 is followed
for a trajectory by leapfrog steps of size eps, and its end is accepted with probability
min(1, exp(H before - H after)) (neal2011mcmc). The trajectory length is pi sigma / 2 for a prior of
standard deviation sigma, which takes a draw of the prior to an independent one
(izmailov2021what); with one scale per layer M^-1 is proportional to the prior's variances.
Kernels are blackjax's.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.engine import Engine
from onebasin.infer import chains
from onebasin.infer.checks import check_rates, check_whole_data
from onebasin.infer.chunks import on_engine
from onebasin.infer.loop import Journal
from onebasin.infer.population import each, group_size
from onebasin.infer.problem import Problem
from onebasin.infer.vectors import default_float, from_vector
from onebasin.posterior import Draws
from onebasin.store import Run

JITTER = 0.1


@dataclasses.dataclass(frozen=True)
class Transition:
    """One trajectory of every chain; they share one step size.

    The step size varies by 10 % from one trajectory to the next, lest a trajectory be a whole
    number of periods in some direction.
    """

    max_leapfrogs: int
    target: float
    precision: str
    group: int = 1

    def __call__(self, data: Any, state: Any, number: Any) -> tuple[Any, dict[str, Any]]:
        own, adaptation = state
        # Not static: warm-up and sampling share a program.
        *data, adapt = data
        step_size = jnp.exp(
            jnp.where(adapt, adaptation.log_step_size, adaptation.log_step_size_avg)
        )
        with jax.default_matmul_precision(self.precision):
            own, outputs = each(
                lambda member: self.member(data, member, step_size, number), self.group, own
            )
        update = _dual_averaging(self.target)[1]
        adapted = update(adaptation, jnp.mean(outputs["statistics"]["acceptance"]))
        adaptation = jax.tree.map(lambda a, b: jnp.where(adapt, a, b), adapted, adaptation)
        return (own, adaptation), outputs

    def member(
        self, data: Any, member: Any, step_size: jax.Array, number: Any
    ) -> tuple[Any, dict[str, Any]]:
        """One trajectory of one chain."""
        import blackjax

        problem, inverse_mass, length, shared = data
        chain, key = member
        u = jax.random.uniform(jax.random.fold_in(shared, number), minval=-JITTER, maxval=JITTER)
        leapfrogs = jnp.ceil(length / step_size).astype(jnp.int32)
        like = chains.shapes(problem)
        chain, info = blackjax.hmc.build_kernel()(
            jax.random.fold_in(key, number),
            chain,
            chains.log_density(problem),
            step_size * (1 + u),
            inverse_mass,
            jnp.clip(leapfrogs, 1, self.max_leapfrogs),
        )
        return (chain, key), outputs_of(
            chain,
            like,
            acceptance=info.acceptance_rate,
            divergent=info.is_divergent,
            energy=info.energy,
            leapfrogs=info.num_integration_steps,
            shortened=leapfrogs > self.max_leapfrogs,
        )


def outputs_of(chain: Any, like: Any, **statistics: Any) -> dict[str, Any]:
    """What is kept of a chain's new state."""
    return {
        "unknowns": from_vector(chain.position, like),
        "log_density": chain.logdensity,
        "statistics": statistics,
    }


def _dual_averaging(target: float) -> Any:
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(target)


@on_engine(version=1)
def hmc(
    key: jax.Array,
    problem: Problem,
    *,
    num_chains: int = 4,
    num_samples: int = 100,
    num_warmup: int = 100,
    step_size: float | None = None,
    trajectory_length: float | None = None,
    max_leapfrogs: int = 2000,
    target_acceptance: float = 0.8,
    init: Any = "ensemble",
    precision: str | None = None,
    memory: int | None = None,
    progress: bool = False,
    run: str | Path | Run | None = None,
    chunk: int | None = None,
    engine: Engine | None = None,
) -> Draws:
    """Draws from the posterior with Hamiltonian Monte Carlo on all data.

    Args:
        key: Random key.
        problem: The target.
        num_chains: How many chains; they run as one program.
        num_samples: Kept draws per chain, one per trajectory.
        num_warmup: Trajectories before, in which the step size is adapted if it is not given.
        step_size: Leapfrog step; None adapts one for all chains.
        trajectory_length: None for pi sigma / 2 of the prior.
        max_leapfrogs: Most leapfrog steps of a trajectory.
        target_acceptance: What the step size is adapted to.
        init: "ensemble" (chains start at trained networks), "prior", "random", `Draws` of as many
            networks, or one network's parameters for all.
        precision: Of matrix products: accurate energies need full float32 ("highest"), or three
            TF32 products in its place, the default on GPUs.
        memory: Budget in bytes of one step.
        progress: Whether to draw bars.
        run: A folder that keeps the state; the same call continues there.
        chunk: Trajectories between two saves; the draws do not depend on it.
        engine: Where chunks of chains run as tasks; None for here, all as one program.

    Returns:
        The draws, all of one chain's before the next's, with log density and the statistics
        acceptance, divergent, energy, leapfrogs and shortened (whether `max_leapfrogs` ended the
        trajectory); `mode` is the chain, and `info` has the step size and the length of the
        trajectories, as they were and as they were asked for.

    Raises:
        DivergenceError: If the log density of a chain is not finite.

    Warns:
        SamplingWarning: If many trajectories diverged, or if `max_leapfrogs` ended any.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> net = ob.Net(lambda key, x: jnp.zeros(1), lambda w, x: x * w)
        >>> x = jnp.linspace(-1, 1, 10)[:, None]
        >>> problem = ob.Problem(net, (x, 2 * x), likelihood="gaussian", noise=0.5)
        >>> draws = ob.infer.hmc(jax.random.key(0), problem, num_chains=2, num_samples=50)
        >>> draws
        Draws(100 draws of 1 weights, 2 modes)
    """
    arguments = dict(locals())
    check_whole_data("hmc", problem)
    chains.check_counts(num_samples=num_samples, num_warmup=num_warmup, leapfrogs=max_leapfrogs)
    check_rates(step_size=step_size, trajectory_length=trajectory_length)
    chains.check_acceptance(target_acceptance)
    spread = chains.prior_spread(problem)
    sigma = float(jnp.sqrt(jnp.mean(spread**2)))
    length = np.pi * sigma / 2 if trajectory_length is None else trajectory_length

    journal = Journal.open(hmc, key, problem, arguments, run, progress, chunk)
    draws = run_chains(
        journal,
        key,
        problem,
        Transition(max_leapfrogs, target_acceptance, product_precision(precision)),
        (problem, (spread / sigma) ** 2, jnp.asarray(length, spread.dtype)),
        num_chains,
        num_samples,
        num_warmup,
        step_size,
        init,
        memory,
    )
    info = dict(draws.info or {})
    info["trajectory_length"] = float(min(length, max_leapfrogs * info["step_size"]))
    info["asked_trajectory_length"] = float(length)
    return dataclasses.replace(draws, info=info)


def run_chains(
    journal: Journal,
    key: jax.Array,
    problem: Problem,
    step: Transition,
    data: tuple[Any, ...],
    num_chains: int,
    num_samples: int,
    num_warmup: int,
    step_size: float | None,
    init: Any,
    memory: int | None,
    **info: Any,
) -> Draws:
    """Start, warm-up and sampling of a kernel."""
    import blackjax

    for_init, for_curvature, for_warmup, for_sampling = jax.random.split(key, 4)
    positions = chains.start(journal, for_init, problem, num_chains, init, memory)
    if step_size is None:
        first = 1 / np.sqrt(chains.curvature(problem, positions, for_curvature))
    else:
        first = step_size
    density = chains.log_density(problem)
    states = jax.lax.map(lambda x: blackjax.hmc.init(x, density), positions)
    adaptation = _dual_averaging(step.target)[0](jnp.asarray(first, positions.dtype))
    # Until it is averaged, the average is where the search starts.
    adaptation = adaptation._replace(log_step_size_avg=jnp.log(jnp.asarray(first, default_float())))
    one = jax.eval_shape(lambda s: jax.tree.map(lambda x: x[0], s), states)
    group = group_size(
        lambda d, c, s, n: step.member((*d, jax.random.key(0)), (c, jax.random.key(0)), s, n),
        num_chains,
        memory,
        data,
        one,
        jax.ShapeDtypeStruct((), positions.dtype),
        jax.ShapeDtypeStruct((), jnp.int32),
        weights=positions.shape[1],
    )
    step = dataclasses.replace(step, group=group)

    def keyed(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        own, shared = jax.random.split(key)
        return jax.random.split(own, num_chains), shared

    keys, shared = keyed(for_warmup)
    if num_warmup:
        ((states, _), adaptation), _ = journal.phase(
            "warm-up",
            step,
            (*data, shared, jnp.asarray(step_size is None)),
            ((states, keys), adaptation),
            num_warmup,
            show="log_density",
            keep=False,
        )
    found = float(jnp.exp(adaptation.log_step_size_avg)) if step_size is None else step_size
    keys, shared = keyed(for_sampling)
    return chains.sample(
        journal,
        problem,
        step,
        (*data, shared, jnp.asarray(False)),
        ((states, keys), adaptation),
        num_samples,
        found,
        **info,
    )


def product_precision(precision: str | None) -> str:
    """The precision of matrix products that keeps energies right on this device."""
    if precision is not None:
        return precision
    return "TF32_TF32_F32_X3" if jax.default_backend() == "gpu" else "highest"
