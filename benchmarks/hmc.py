"""Leapfrog steps per second of Hamiltonian Monte Carlo, against numpyro on the same density.

    python benchmarks/hmc.py [--out results/bench]

An MLP on digits, all data, the same step size, the same number of leapfrogs, no adaptation; the
second of two equal calls is timed, so that compiling does not count. Also bytes per kept draw.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from shared import record  # type: ignore[import-not-found]
from sklearn.datasets import load_digits

import onebasin as ob
from onebasin.infer.vectors import from_vector, to_vector

STEP, LEAPFROGS, SAMPLES = 2e-3, 50, 20


def ours(problem: ob.Problem, chains: int, start: Any) -> tuple[float, float]:
    """Leapfrogs per second, summed over chains, and acceptance."""
    draws = None
    for _ in range(2):
        began = time.perf_counter()
        draws = ob.infer.hmc(
            jax.random.key(0),
            problem,
            num_chains=chains,
            num_samples=SAMPLES,
            num_warmup=0,
            step_size=STEP,
            trajectory_length=STEP * (LEAPFROGS - 0.5),
            init=start,
            chunk=SAMPLES,
        )
        seconds = time.perf_counter() - began
    assert draws is not None
    return chains * SAMPLES * LEAPFROGS / seconds, float(np.mean(draws.statistics["acceptance"]))


def numpyros(problem: ob.Problem, chains: int, start: Any) -> tuple[float, float]:
    """The same of numpyro."""
    from numpyro.infer import HMC, MCMC

    like = jax.eval_shape(problem.init, jax.random.key(0))
    kernel = HMC(
        potential_fn=lambda x: -problem.log_density(from_vector(x, like)),
        step_size=STEP,
        trajectory_length=STEP * LEAPFROGS,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    first = jnp.tile(to_vector(start), (chains, 1)) if chains > 1 else to_vector(start)
    sampler = MCMC(
        kernel,
        num_warmup=0,
        num_samples=SAMPLES,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    for _ in range(2):
        began = time.perf_counter()
        sampler.run(jax.random.key(0), init_params=first, extra_fields=("accept_prob",))
        jax.block_until_ready(sampler.get_samples())
        seconds = time.perf_counter() - began
    accepted = float(np.mean(sampler.get_extra_fields()["accept_prob"]))
    return chains * SAMPLES * LEAPFROGS / seconds, accepted


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="no more than without it")
    parser.add_argument("--out", type=pathlib.Path, help="a folder for the record")
    arguments = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    rows = []
    print(f"{'width':>6} {'chains':>6} {'ours/s':>10} {'numpyro/s':>10} {'ratio':>6}")
    for width, chains in ((64, 1), (64, 4), (512, 1), (512, 4)):
        net = ob.nets.mlp(hidden=(width,), outputs=10)
        train = ((images / 16).astype(np.float32), labels.astype(np.int32))
        problem = ob.Problem(net, train, prior=ob.Normal(0.5))
        start = problem.init(jax.random.key(0))
        own, accepted = ours(problem, chains, start)
        other, other_accepted = numpyros(problem, chains, start)
        weights = sum(x.size for x in jax.tree.leaves(start))
        rows.append(
            {
                "width": width,
                "chains": chains,
                "leapfrogs per second": own,
                "numpyro": other,
                "ratio": own / other,
                "acceptance": accepted,
                "numpyro acceptance": other_accepted,
                "bytes per draw": 4 * weights,
            }
        )
        print(f"{width:6} {chains:6} {own:10.0f} {other:10.0f} {own / other:6.2f}", flush=True)
    record.save(arguments.out, f"hmc-{jax.default_backend()}", {"rows": rows})


if __name__ == "__main__":
    main()
