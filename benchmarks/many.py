"""Aligning draws of a 784-w-10 network to a common mean, against the same done draw by draw.

    python benchmarks/many.py [--full] [--out results/bench]

The plain way matches each draw with SciPy until nothing improves, averages, and goes on until no
draw changes. Both start from the same draws, with scalings as they are; what counts is the ratio.
Two populations: networks trained on digits from different seeds, which take many rounds, and noisy
copies of one network, which are found in the first. Draws and machine are the same for both ways.

OptuNets, whose channels depend on their groups, come last: rounds of all draws at once against
rounds that go draw by draw, both of onebasin, which end in the same states.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from shared import networks, plain, record  # type: ignore[import-not-found]
from threadpoolctl import threadpool_limits

import onebasin as ob
from onebasin.align.assignment import Assignment
from onebasin.align.chains import Chains
from onebasin.align.population import Population
from onebasin.align.visits import Visits


def population(kind: str, width: int, count: int) -> tuple[ob.Symmetry, Any]:
    """Stacked draws, and their group."""
    net = ob.nets.mlp(hidden=(width,), outputs=10)
    params = net.init(jax.random.key(0), jnp.zeros((1, 784)))
    symmetry = ob.discover(net.apply, params, jnp.zeros((1, 784)))
    if kind == "noisy copies":
        return symmetry, networks.noisy_copies(net, symmetry, count)
    each = [networks.trained(net, seed, 100) for seed in range(count)]
    return symmetry, jax.tree.map(lambda *x: jnp.stack(x), *each)


def measure(kind: str, width: int, count: int) -> dict[str, Any]:
    """One row of the table."""
    symmetry, draws = population(kind, width, count)
    stacked = [np.asarray(x) for x in jax.tree.leaves(draws)]
    start, used = time.perf_counter(), time.process_time()
    # More threads would slow its products down on a busy machine.
    with threadpool_limits(1, "blas"):
        plain_cost, plain_rounds = plain.to_the_mean(stacked)
    plain_seconds, plain_used = time.perf_counter() - start, time.process_time() - used
    start, used = time.perf_counter(), time.process_time()
    found = ob.align_many(symmetry, draws, scaling=None)
    jax.block_until_ready(found.draws.params)
    seconds, own_used = time.perf_counter() - start, time.process_time() - used
    return {
        "population": kind,
        "draws": count,
        "width": width,
        "plain seconds": plain_seconds,
        "seconds": seconds,
        "ratio": plain_seconds / seconds,
        "ratio of processor time": plain_used / own_used,
        "plain cost": plain_cost,
        "cost": found.history[-1],
        "plain rounds": plain_rounds,
        "rounds": len(found.history),
    }


def dependent(count: int, rounds: int = 3) -> dict[str, Any]:
    """OptuNets from different seeds: all at once, against draw by draw."""
    net = ob.nets.optunet()
    image = jnp.zeros((1, 28, 28, 1))
    draws = jax.vmap(lambda k: net.init(k, image))(jax.random.split(jax.random.key(0), count))
    symmetry = ob.discover(net.apply, jax.tree.map(lambda x: x[0], draws), image)
    population = Population.of(symmetry, draws, "weights", None, None, "min-mass", 1000)
    solver = Assignment().name
    ways: dict[str, Any] = {
        "seconds": lambda: Chains(symmetry, population.means, solver),
        "draw by draw seconds": lambda: Visits(population, solver, 0, leave_out=False),
    }
    row: dict[str, Any] = {"population": "OptuNets", "draws": count, "rounds": rounds}
    ends = []
    for name, make in ways.items():
        start = time.perf_counter()
        way, states = make(), population.identity()
        way.aim(population.draw(0))
        for number in range(rounds):
            states, cost = way.round(states, number, None)
        row[name] = time.perf_counter() - start
        ends.append((states, cost))
    row["ratio"] = row["draw by draw seconds"] / row["seconds"]
    row["draw by draw cost"], row["cost"] = ends[1][1], ends[0][1]
    row["draws that differ"] = ends[0][0].differences(ends[1][0])
    return row


def main() -> None:
    """Runs both populations and prints the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="100 draws of width 512, not 20 of 256")
    parser.add_argument("--out", type=pathlib.Path, help="folder for many.json")
    args = parser.parse_args()
    count, width = (100, 512) if args.full else (20, 256)
    rows = [measure(kind, width, count) for kind in ("trained apart", "noisy copies")]
    for name in rows[0]:
        cells = [row[name] for row in rows]
        shown = [f"{c:.6g}" if isinstance(c, int | float) else c for c in cells]
        print(f"{name:>24}  {shown[0]:>14}  {shown[1]:>14}")
    nested = dependent(1000 if args.full else 100)
    print("  ".join(f"{name} {value}" for name, value in nested.items()))
    record.save(args.out, "many", {"rows": rows, "dependent factors": nested})


if __name__ == "__main__":
    main()
