"""Fitting and sampling a low-rank Gaussian at the size of a ResNet-18, and its memory.

    python benchmarks/fitting.py [--weights 11000000] [--rank 100] [--out results/bench]

The covariance is never formed. The floor of the fit is one pass over the draws for their products,
and one for the factor; that of a sample is one pass over the factor.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import time
from typing import Any

import jax
import jax.numpy as jnp
from shared import record  # type: ignore[import-not-found]

import onebasin as ob


def timed(work: Any) -> tuple[Any, float]:
    """The result of a function, and the seconds it took."""
    start = time.perf_counter()
    found = jax.block_until_ready(work())
    return found, time.perf_counter() - start


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weights", type=int, default=1_000_000)
    parser.add_argument("--rank", type=int, default=100)
    parser.add_argument("--out", type=pathlib.Path, help="a folder for the record")
    arguments = parser.parse_args()
    count = arguments.rank + 1
    key = jax.random.key(0)
    draws = ob.Draws({"w": jax.random.normal(key, (count, arguments.weights))})
    jax.block_until_ready(draws.params)
    read, pass_seconds = timed(lambda: jnp.sum(draws.params["w"], axis=0))
    del read
    fitted, fit = timed(
        lambda: ob.fit_gaussian(draws, "low-rank", rank=arguments.rank, shrinkage=0.0)
    )
    _, first = timed(lambda: fitted.draw(jax.random.key(1)))
    sample, again = timed(lambda: fitted.draw(jax.random.key(2)))
    one = {"w": sample["w"]}
    _, density = timed(lambda: fitted.log_density(one))
    rows = [
        {
            "weights": arguments.weights,
            "rank": arguments.rank,
            "one pass over the draws, s": pass_seconds,
            "fit, s": fit,
            "fit in passes": fit / pass_seconds,
            "first sample with compilation, s": first,
            "sample, s": again,
            "log density, s": density,
            "peak memory, GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            "draws, GiB": 4 * count * arguments.weights / 2**30,
        }
    ]
    for name, value in rows[0].items():
        print(f"{name:34} {value:,.3f}" if isinstance(value, float) else f"{name:34} {value:,}")
    record.save(arguments.out, "fitting", {"rows": rows})


if __name__ == "__main__":
    main()
