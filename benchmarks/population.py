"""Training a population as one compiled program, against a Python loop over single networks.

    python benchmarks/population.py [--full] [--out results/bench]

The loop calls a jitted step for every batch of every network, as scripts do. Both train OptuNets
(or MLPs) with Adam on batches of 100 images. Groups are how many networks are batched: 1 means one
after the other inside the compiled program, a share of them on every core. A star marks what is
chosen.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from shared import record  # type: ignore[import-not-found]

import onebasin as ob
from onebasin.infer import population, training
from onebasin.infer.loop import Journal

EXAMPLES, BATCH, EPOCHS = 1000, 100, 2
STEPS = EXAMPLES // BATCH
WIDTHS = (16, 64, 256, 1024)


def problem_of(net: ob.Net) -> ob.Problem:
    """Random images with random labels: only the time counts."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(EXAMPLES, 28, 28, 1)).astype(np.float32)
    return ob.Problem(net, (x, rng.integers(0, 10, EXAMPLES)))


def seconds_of(fun: Any, *args: Any, repeats: int = 3) -> float:
    """The fastest of some calls, after one that compiles."""
    jax.block_until_ready(fun(*args))
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(fun(*args))
        found.append(time.perf_counter() - start)
    return min(found)


def start(problem: ob.Problem, count: int, optimizer: Any) -> Any:
    """Variables, optimiser states and keys of a population."""
    keys = jax.random.split(jax.random.key(0), count)
    variables = jax.jit(jax.vmap(problem.init))(keys)
    return (
        variables,
        jax.vmap(optimizer.init)(variables),
        jax.random.split(jax.random.key(1), count),
    )


def one_program(problem: ob.Problem, count: int, group: int, repeats: int) -> float:
    """Seconds per step and network of some epochs of all networks."""
    optimizer = training.default_optimizer(3e-3, 1000)
    step = training.Epochs(training.potential, optimizer, BATCH, 1, group)
    state = start(problem, count, optimizer)

    def epochs() -> Any:
        return Journal(None, chunk=EPOCHS).phase("epochs", step, problem, state, EPOCHS)[0]

    return seconds_of(epochs, repeats=repeats) / (count * STEPS * EPOCHS)


def python_loop(problem: ob.Problem, count: int) -> float:
    """Seconds per step and network of the loop."""
    optimizer = optax.adam(3e-3)

    @jax.jit
    def step(problem: ob.Problem, variables: Any, memory: Any, rows: jax.Array) -> Any:
        batch = problem.take(rows)
        gradient = jax.grad(lambda v: -problem.log_density(v, batch))(variables)
        updates, memory = optimizer.update(gradient, memory, variables)
        return optax.apply_updates(variables, updates), memory

    states = start(problem, count, optimizer)
    networks = [jax.tree.map(lambda x, i=i: x[i], states[:2]) for i in range(count)]
    rows = jnp.arange(BATCH)

    def epoch() -> Any:
        for variables, memory in networks:
            for _ in range(STEPS):
                variables, memory = step(problem, variables, memory, rows)
        return variables

    return seconds_of(epoch, repeats=2) / (count * STEPS)


def chosen_group(problem: ob.Problem, count: int, weights: int) -> int:
    """How many networks the library itself would train at a time."""
    optimizer = training.default_optimizer(3e-3, 1000)
    step = training.Epochs(training.potential, optimizer, BATCH, 1, 1)
    state = start(problem, 1, optimizer)
    one = jax.tree.map(lambda x: jax.eval_shape(lambda x: x[0], x), state)
    number = jax.ShapeDtypeStruct((), jnp.int32)
    return population.group_size(
        step.member, count, None, problem, one, number, weights=weights, apart=True
    )


def main() -> None:
    """Prints the table, and draws time against the number of networks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="up to 4,096 networks")
    parser.add_argument("--out", type=pathlib.Path, help="a folder for the record")
    arguments = parser.parse_args()
    platform = jax.default_backend()
    rows = []
    sizes = {"optunet": (1, 8, 64, 512, 4096)} | {f"mlp {width}": (16,) for width in WIDTHS}
    nets = {"optunet": ob.nets.optunet()}
    nets |= {f"mlp {width}": ob.nets.mlp(hidden=(width,)) for width in WIDTHS}
    print(platform)
    print(f"{'network':10} {'count':>6} {'group':>6} {'ms/step':>9} {'loop':>9} {'ratio':>6}")
    for name, counts in sizes.items():
        problem = problem_of(nets[name])
        weights = sum(x.size for x in jax.tree.leaves(problem.init(jax.random.key(0))))
        loop = python_loop(problem, 4)
        for count in counts:
            if count > 64 and not arguments.full:
                continue
            chosen = chosen_group(problem, count, weights)
            groups = {1, min(count, 8), min(count, 64), chosen} if count <= 64 else {chosen}
            for group in sorted(groups):
                seconds = one_program(problem, count, group, repeats=3 if count <= 64 else 1)
                rows.append(
                    {
                        "network": name,
                        "count": count,
                        "group": group,
                        "chosen": group == chosen,
                        "milliseconds per network and step": 1e3 * seconds,
                        "loop": 1e3 * loop,
                        "ratio": loop / seconds,
                    }
                )
                mark = "*" if group == chosen else ""
                times = f"{1e3 * seconds:9.4f} {1e3 * loop:9.4f} {loop / seconds:6.1f}"
                print(f"{name:10} {count:6} {group:5}{mark or ' '} {times}", flush=True)
                record.save(arguments.out, f"population-{platform}", {"rows": rows})
    record.save(arguments.out, f"population-{platform}", {"rows": rows}, figure(rows, platform))


def figure(rows: list[dict[str, Any]], platform: str) -> Any:
    """Time per network and step against the number of OptuNets."""
    from matplotlib import pyplot as plt

    chosen = [r for r in rows if r["network"] == "optunet" and r["chosen"]]
    drawing, axes = plt.subplots(figsize=(5, 3.5))
    counts = [r["count"] for r in chosen]
    axes.loglog(
        counts, [r["milliseconds per network and step"] for r in chosen], "k-o", label="one program"
    )
    axes.axhline(chosen[0]["loop"], color="grey", linestyle="--", label="Python loop")
    axes.set(
        xlabel="OptuNets trained together",
        ylabel="milliseconds per network and step",
        title=f"Training a population ({platform})",
    )
    axes.legend()
    return drawing


if __name__ == "__main__":
    main()
