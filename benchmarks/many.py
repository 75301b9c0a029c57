"""Aligning draws of a 784-w-10 network to a common mean, against the same done draw by draw.

    python benchmarks/many.py [--draws 100] [--width 512] [--out results/bench]

The plain way matches each draw with SciPy until nothing improves, averages, and goes on until no
draw changes. Both start from the same draws without scalings; what counts is the ratio.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matching import plain_descent  # type: ignore[import-not-found]

import onebasin as ob


def population(width: int, count: int) -> tuple[Any, Any]:
    """Noisy copies of one network, each under its own element of the group."""
    net = ob.nets.mlp(hidden=(width,), outputs=10)
    params = net.init(jax.random.key(0), jnp.zeros((1, 784)))
    symmetry = ob.discover(net.apply, params, jnp.zeros((1, 784)))

    def draw(key: jax.Array) -> Any:
        keys = jax.random.split(key, 5)
        leaves, structure = jax.tree.flatten(params)
        noisy = [
            x + 1.5 * (jnp.std(x) + 0.01) * jax.random.normal(k, x.shape)
            for x, k in zip(leaves, keys, strict=False)
        ]
        element = symmetry.random(keys[-1], kinds=("permutation",))
        return symmetry.act(element, jax.tree.unflatten(structure, noisy))

    return symmetry, jax.lax.map(draw, jax.random.split(jax.random.key(1), count))


def plainly(stacked: list[np.ndarray], rounds: int = 20) -> tuple[float, int]:
    """Draw by draw to the mean; returns the last sum of squared distances and the rounds."""
    bias0, kernel0, bias1, kernel1 = stacked
    count = len(bias0)
    perms = [np.arange(bias0.shape[1]) for _ in range(count)]
    centre = [x[0] for x in stacked]
    total = 0.0
    for number in range(rounds):
        changed, total = 0, 0.0
        moved = []
        for i in range(count):
            reference = [(centre[1], centre[0]), (centre[3], centre[2])]
            own = [(kernel0[i], bias0[i]), (kernel1[i], bias1[i])]
            columns = plain_descent(reference, own, number, start=[perms[i]])[2][0]
            changed += not np.array_equal(columns, perms[i])
            perms[i] = columns
            new = [bias0[i][columns], kernel0[i][:, columns], bias1[i], kernel1[i][columns]]
            moved.append(new)
            total += sum(float(np.sum((a - b) ** 2)) for a, b in zip(centre, new, strict=True))
        centre = [np.mean(np.stack(leaf), axis=0) for leaf in zip(*moved, strict=True)]
        if number and not changed:
            return total, number + 1
    return total, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    symmetry, draws = population(args.width, args.draws)
    stacked = [np.asarray(x) for x in jax.tree.leaves(draws)]
    start = time.perf_counter()
    plain_cost, plain_rounds = plainly(stacked)
    plain = time.perf_counter() - start
    ob.align_many(symmetry, draws, scaling=None, max_rounds=1)
    start = time.perf_counter()
    found = ob.align_many(symmetry, draws, scaling=None)
    ours = time.perf_counter() - start
    row = {
        "draws": args.draws,
        "width": args.width,
        "plain seconds": plain,
        "seconds": ours,
        "ratio": plain / ours,
        "plain cost": plain_cost,
        "cost": found.history[-1],
        "plain rounds": plain_rounds,
        "rounds": len(found.history),
    }
    for name, value in row.items():
        print(f"{name:>14}  {value:.6g}")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "many.json").write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
