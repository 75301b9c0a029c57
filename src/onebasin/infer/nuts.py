"""The no-U-turn sampler: Hamiltonian Monte Carlo that ends each trajectory where it turns back.

The trajectory doubles forwards or backwards in time until its ends move towards each other, and the
next state is drawn from it (hoffman2014no). Kernels are blackjax's. The mass matrix is the inverse
of the prior's variances; chains share one adapted step size.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.engine import Engine
from onebasin.infer import chains
from onebasin.infer.checks import check_rates, check_whole_data
from onebasin.infer.chunks import on_engine
from onebasin.infer.hmc import Transition, outputs_of, product_precision, run_chains
from onebasin.infer.loop import Journal
from onebasin.infer.problem import Problem
from onebasin.posterior import Draws
from onebasin.store import Run


@dataclasses.dataclass(frozen=True)
class NoUTurn(Transition):
    """One trajectory of every chain, as long as it does not turn back."""

    max_doublings: int = 10

    def member(
        self, data: Any, member: Any, step_size: jax.Array, number: Any
    ) -> tuple[Any, dict[str, Any]]:
        """One trajectory of one chain."""
        import blackjax

        problem, inverse_mass, _ = data
        chain, key = member
        like = chains.shapes(problem)
        # As plain numbers: JAX's check for reused keys does not see through the kernel's branches.
        chain, info = blackjax.nuts.build_kernel()(
            jax.random.key_data(jax.random.fold_in(key, number)),
            chain,
            chains.log_density(problem),
            step_size,
            inverse_mass,
            self.max_doublings,
        )
        return (chain, key), outputs_of(
            chain,
            like,
            acceptance=info.acceptance_rate,
            divergent=info.is_divergent,
            energy=info.energy,
            leapfrogs=info.num_integration_steps,
            shortened=(info.num_trajectory_expansions >= self.max_doublings)
            & ~info.is_turning
            & ~info.is_divergent,
        )


@on_engine(version=1)
def nuts(
    key: jax.Array,
    problem: Problem,
    *,
    num_chains: int = 4,
    num_samples: int = 100,
    num_warmup: int = 100,
    step_size: float | None = None,
    max_doublings: int = 10,
    target_acceptance: float = 0.8,
    init: Any = "ensemble",
    precision: str | None = None,
    memory: int | None = None,
    progress: bool = False,
    run: str | Path | Run | None = None,
    chunk: int | None = None,
    engine: Engine | None = None,
) -> Draws:
    """Draws from the posterior with the no-U-turn sampler on all data.

    Args:
        key: Random key.
        problem: The target.
        num_chains: How many chains.
        num_samples: Kept draws per chain, one per trajectory.
        num_warmup: Trajectories before, in which the step size is adapted if it is not given.
        step_size: Leapfrog step; None adapts one for all chains.
        max_doublings: A trajectory has at most 2^max_doublings leapfrog steps.
        target_acceptance: What the step size is adapted to.
        init: Where chains start, as for `hmc`.
        precision: Of matrix products, as for `hmc`.
        memory: Budget in bytes of one step.
        progress: Whether to draw bars.
        run: A folder that keeps the state; the same call continues there.
        chunk: Trajectories between two saves; the draws do not depend on it.
        engine: Where chunks of chains run as tasks; None for here, all as one program.

    Returns:
        The draws, with log density and the statistics acceptance, divergent, energy, leapfrogs and
        shortened: whether `max_doublings` ended the trajectory before it turned back.

    Raises:
        DivergenceError: If the log density of a chain is not finite.

    Warns:
        SamplingWarning: If many trajectories diverged, or if `max_doublings` ended any.
    """
    arguments = dict(locals())
    check_whole_data("nuts", problem)
    chains.check_counts(num_samples=num_samples, num_warmup=num_warmup, doublings=max_doublings)
    check_rates(step_size=step_size)
    chains.check_acceptance(target_acceptance)
    spread = chains.prior_spread(problem)
    sigma = jnp.sqrt(jnp.mean(spread**2))

    journal = Journal.open(nuts, key, problem, arguments, run, progress, chunk)
    return run_chains(
        journal,
        key,
        problem,
        NoUTurn(0, target_acceptance, product_precision(precision), max_doublings=max_doublings),
        (problem, (spread / sigma) ** 2),
        num_chains,
        num_samples,
        num_warmup,
        step_size,
        init,
        memory,
    )
