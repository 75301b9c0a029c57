"""Weight matching of trained 784-w-w-w-10 pairs against a plain coordinate descent with SciPy.

    python benchmarks/matching.py [--full] [--out results/bench]

Both run on one core, on the same pair, in one process, taking turns; what counts is the ratio.
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
    pair = [networks.trained(net, seed, steps) for seed in (0, 1)]
    symmetry = ob.discover(net.apply, pair[0], jnp.zeros((1, 784)))
    leaves = [[np.asarray(x) for x in jax.tree.leaves(p)] for p in pair]
    layers = [[(flat[2 * i + 1], flat[2 * i]) for i in range(4)] for flat in leaves]

    plain_times, times = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        plain_objective, spent, _ = plain.descent(layers[0], layers[1], 0)
        plain_times.append(time.perf_counter() - start)

        start = time.perf_counter()
        objective = Pairing(symmetry, weights(leaves[0], leaves[1]).channels)
        found = search(objective, Assignment(threads=1))
        times.append(time.perf_counter() - start)
    plain_seconds, seconds = statistics.median(plain_times), statistics.median(times)
    return {
        "width": width,
        "plain seconds": plain_seconds,
        "plain products": spent["products"],
        "plain assignments": spent["assignments"],
        "seconds": seconds,
        "ratio": plain_seconds / seconds,
        "repeats": repeats,
        "ratios": [a / b for a, b in zip(plain_times, times, strict=True)],
        "plain objective": plain_objective,
        "objective": found.best.objective,
        "start": found.start,
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
    print("width  plain s  ours s  ratio  plain objective  ours       start")
    for width in (512, 1024, 2048) if args.full else (256, 512):
        # The widest takes minutes.
        row = measure(width, 200 if args.full else 100, 1 if width > 1024 else 5)
        rows.append(row)
        print(
            f"{row['width']:5d}  {row['plain seconds']:7.2f}  {row['seconds']:6.2f}  "
            f"{row['ratio']:5.1f}  {row['plain objective']:15.3f}  {row['objective']:9.3f}  "
            f"{row['start']}",
            flush=True,
        )
    record.save(args.out, "matching", {"rows": rows})


if __name__ == "__main__":
    main()
