"""Weight matching of trained 784-w-w-w-10 pairs against a plain coordinate descent with SciPy.

    python benchmarks/matching.py [--full] [--out results/bench]

Both run on one core, on the same pair, in one process, taking turns; what counts is the ratio.
The whole call is `onebasin.align` as it stands, with everything that is no matching: whether scales
matter, the element, the parameters moved by it, and how sure every match is.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import pathlib
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from shared import networks, plain, record  # type: ignore[import-not-found]

import onebasin as ob
from onebasin.align.assignment import Assignment
from onebasin.align.channels import weights
from onebasin.align.pairing import Pairing
from onebasin.align.search import search


def measure(width: int, steps: int, repeats: int) -> dict[str, Any]:
    """One row of the table, medians of repeats in which the two take turns."""
    net = ob.nets.mlp(hidden=(width,) * 3, outputs=10)
    pair = [jax.tree.map(np.asarray, networks.trained(net, seed, steps)) for seed in (0, 1)]
    symmetry = ob.discover(net.apply, pair[0], jnp.zeros((1, 784)))
    leaves = [[np.asarray(x) for x in jax.tree.leaves(p)] for p in pair]
    layers = [[(flat[2 * i + 1], flat[2 * i]) for i in range(4)] for flat in leaves]

    plain_times, times, calls = [], [], []
    for _ in range(repeats):
        start = time.perf_counter()
        plain_objective, spent, _ = plain.descent(layers[0], layers[1], 0)
        plain_times.append(time.perf_counter() - start)

        start = time.perf_counter()
        search(Pairing(symmetry, weights(leaves[0], leaves[1]).channels), Assignment(threads=1))
        times.append(time.perf_counter() - start)

        start = time.perf_counter()
        found = ob.align(symmetry, pair[1], to=pair[0])
        calls.append(time.perf_counter() - start)
    plain_seconds, seconds = statistics.median(plain_times), statistics.median(times)
    masses = sum(float(np.vdot(x, x)) for flat in leaves for x in flat)
    return {
        "width": width,
        "plain seconds": plain_seconds,
        "plain products": spent["products"],
        "plain assignments": spent["assignments"],
        "seconds": seconds,
        "ratio": plain_seconds / seconds,
        "call seconds": statistics.median(calls),
        "call ratio": plain_seconds / statistics.median(calls),
        "repeats": repeats,
        "ratios": [a / b for a, b in zip(plain_times, times, strict=True)],
        "plain distance": masses - 2 * plain_objective,
        "distance": found.cost,
        "solver": found.solver,
    }


def main() -> None:
    """Runs the comparison and prints the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="widths 512, 1024, 2048, not 256, 512")
    parser.add_argument("--out", type=pathlib.Path, help="folder for matching.json")
    args = parser.parse_args()
    rows = []
    print("width  plain s  ours s  ratio  whole call  plain distance  ours        solver")
    for width in (512, 1024, 2048) if args.full else (256, 512):
        # The widest takes minutes.
        row = measure(width, 200 if args.full else 100, 1 if width > 1024 else 5)
        rows.append(row)
        print(
            f"{row['width']:5d}  {row['plain seconds']:7.2f}  {row['seconds']:6.2f}  "
            f"{row['ratio']:5.1f}  {row['call ratio']:10.1f}  {row['plain distance']:14.3f}  "
            f"{row['distance']:10.3f}  {row['solver']}",
            flush=True,
        )
    record.save(args.out, "matching", {"rows": rows})


if __name__ == "__main__":
    main()
