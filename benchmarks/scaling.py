"""Cost of alignment against width and against the number of draws, beside its products alone.

    python benchmarks/scaling.py [--full] [--out results/bench]

Left: pairs of random 784-w-w-w-10 networks on one core, the hardest case for assignments. Right:
noisy copies of a 784-128-10 network brought to their mean; seconds of work summed over threads. The
floor is the time of the matrix products of one sweep, or of one round, with nothing around them.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from shared import networks, record  # type: ignore[import-not-found]
from threadpoolctl import threadpool_limits

import onebasin as ob
from onebasin.align.assignment import Assignment
from onebasin.align.channels import weights
from onebasin.align.pairing import Pairing
from onebasin.align.rows import Rows
from onebasin.align.search import search


class Clock:
    """Seconds spent inside the functions that it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Any) -> Any:
        """The same function, timed."""

        def timed(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def best(work: Any, repeats: int = 3) -> float:
    """The least of some times, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def of_width(width: int) -> dict[str, Any]:
    """One pair of random networks."""
    net = ob.nets.mlp(hidden=(width,) * 3, outputs=10)
    params = net.init(jax.random.key(0), jnp.zeros((1, 784)))
    symmetry = ob.discover(net.apply, params, jnp.zeros((1, 784)))
    rng = np.random.default_rng(0)
    shapes = [leaf.shape for leaf in symmetry.leaves]
    pair = [
        [rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0])) for shape in shapes]
        for _ in range(2)
    ]
    products, assignments = Clock(), Clock()
    pairing: Any = Pairing(symmetry, weights(*pair).channels)
    solve: Any = Assignment(threads=1)
    pairing.gains = products.around(pairing.gains)
    pairing.partial_gains = products.around(pairing.partial_gains)
    start = time.perf_counter()
    found = search(pairing, assignments.around(solve), kicks=0)
    seconds = time.perf_counter() - start
    kernels = [(a, b) for a, b in zip(*pair, strict=True) if a.ndim == 2]

    def sweep() -> None:
        for number, (a, b) in enumerate(kernels):
            _ = a.T @ b
            _ = a @ b.T if number else None

    return {
        "width": width,
        "seconds": seconds,
        "products": products.seconds,
        "assignments": assignments.seconds,
        "floor": best(sweep),
        "sweeps": found.best.sweeps,
    }


def of_draws(count: int, width: int = 128) -> dict[str, Any]:
    """One population."""
    net = ob.nets.mlp(hidden=(width,), outputs=10)
    params = net.init(jax.random.key(0), jnp.zeros((1, 784)))
    symmetry = ob.discover(net.apply, params, jnp.zeros((1, 784)))
    draws = networks.noisy_copies(net, symmetry, count)
    products, assignments = Clock(), Clock()
    plain = Rows._gains, Assignment.__call__
    Rows._gains = products.around(plain[0])  # type: ignore[method-assign]
    Assignment.__call__ = assignments.around(plain[1])  # type: ignore[method-assign]
    start = time.perf_counter()
    found = ob.align_many(symmetry, draws, scaling=None)
    jax.block_until_ready(found.draws.params)
    seconds = time.perf_counter() - start
    Rows._gains, Assignment.__call__ = plain  # type: ignore[method-assign]
    rows = np.ones((width, 795), np.float32)

    def sweep() -> None:
        for _ in range(count):
            _ = rows @ rows.T

    return {
        "draws": count,
        "seconds": seconds,
        "products": products.seconds,
        "assignments": assignments.seconds,
        "floor": best(sweep),
        "rounds": len(found.history),
    }


def draw(widths: list[dict[str, Any]], counts: list[dict[str, Any]]) -> Any:
    """Both costs on logarithmic axes."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for axis, rows, key in zip(axes, (widths, counts), ("width", "draws"), strict=True):
        for i, name in enumerate(("seconds", "products", "assignments", "floor")):
            label = {"seconds": "all", "floor": "floor: products once"}.get(name, name)
            style = {"marker": record.MARKERS[i], "linestyle": record.LINES[i], "label": label}
            axis.loglog([r[key] for r in rows], [r[name] for r in rows], **style)
        axis.set_xlabel({"width": "width of three hidden layers", "draws": "number of draws"}[key])
        axis.set_xticks([r[key] for r in rows], [str(r[key]) for r in rows])
        axis.minorticks_off()
        axis.set_ylabel("seconds")
        axis.grid(visible=True, color="0.9")
        axis.legend()
    axes[0].set_title("One pair, one core")
    axes[1].set_title("Many draws to their mean")
    return figure


def main() -> None:
    """Measures both, prints and draws them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="up to width 4096 and 1,000 draws")
    parser.add_argument("--out", type=pathlib.Path, help="folder for scaling.json and scaling.png")
    args = parser.parse_args()
    with threadpool_limits(1, "blas"):
        sizes = (128, 256, 512, 1024, 2048, 4096) if args.full else (128, 256, 512)
        widths = [_shown(of_width(width)) for width in sizes]
        numbers = (1, 3, 10, 30, 100, 300, 1000) if args.full else (1, 10, 100)
        counts = [_shown(of_draws(count)) for count in numbers]
    record.save(args.out, "scaling", {"widths": widths, "draws": counts}, draw(widths, counts))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    return row


if __name__ == "__main__":
    main()
