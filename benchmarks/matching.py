"""Weight matching of trained 784-w-w-w-10 pairs against a plain coordinate descent with SciPy.

    python benchmarks/matching.py [--widths 512 1024 2048] [--steps 200] [--out results/bench]

Both run on one core, on the same pair, in one process; what counts is the ratio. The plain one is
what the published code does: identity start, factors in random order, the gain matrix recomputed
from scratch, one SciPy assignment each, until nothing improves.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits

import onebasin as ob
from onebasin.align.assignment import Assignment
from onebasin.align.channels import weights
from onebasin.align.pairing import Pairing
from onebasin.align.search import search


def plain_descent(
    a: list[tuple[np.ndarray, np.ndarray]],
    b: list[tuple[np.ndarray, np.ndarray]],
    seed: int,
    start: list[np.ndarray] | None = None,
) -> tuple[float, dict[str, float], list[np.ndarray]]:
    """Kernels (in, out) and biases of two MLPs: the objective, seconds spent and permutations."""
    rng = np.random.default_rng(seed)
    hidden = len(a) - 1
    perms = list(start or [np.arange(kernel.shape[1]) for kernel, _ in a[:-1]])
    spent = {"products": 0.0, "assignments": 0.0}

    def gain(i: int) -> np.ndarray:
        kernel, bias = b[i]
        rows = kernel if i == 0 else kernel[perms[i - 1]]
        total = a[i][0].T @ rows + np.outer(a[i][1], bias)
        after = b[i + 1][0]
        columns = after if i + 1 == hidden else after[:, perms[i + 1]]
        return total + a[i + 1][0] @ columns.T

    improved = True
    while improved:
        improved = False
        for i in rng.permutation(hidden):
            begin = time.perf_counter()
            matrix = gain(i)
            middle = time.perf_counter()
            columns = linear_sum_assignment(matrix, maximize=True)[1]
            spent["products"] += middle - begin
            spent["assignments"] += time.perf_counter() - middle
            units = np.arange(len(columns))
            if (
                matrix[units, columns].sum()
                > matrix[units, perms[i]].sum() + 1e-12 * abs(matrix).sum()
            ):
                perms[i] = columns
                improved = True
    objective = 0.0
    for i, (kernel, bias) in enumerate(b):
        moved, shift = kernel, bias
        if i:
            moved = moved[perms[i - 1]]
        if i < hidden:
            moved, shift = moved[:, perms[i]], shift[perms[i]]
        objective += float(np.sum(a[i][0] * moved, dtype=np.float64))
        objective += float(np.sum(a[i][1] * shift, dtype=np.float64)) if i < hidden else 0.0
    return objective, spent, perms


def images() -> tuple[jax.Array, jax.Array]:
    """Digits, each pixel tripled and framed to 28 x 28."""
    digits = load_digits()
    small = digits.images / 16.0
    large = np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    return jnp.asarray(large.reshape(len(large), -1), jnp.float32), jnp.asarray(digits.target)


def trained(net: Any, seed: int, steps: int) -> Any:
    x, y = images()
    params = net.init(jax.random.key(seed), x[:1])
    optimiser = optax.adamw(1e-3, weight_decay=1e-2)

    def loss(params: Any, index: jax.Array) -> jax.Array:
        logits = net.apply(params, x[index])
        return optax.softmax_cross_entropy_with_integer_labels(logits, y[index]).mean()

    @jax.jit
    def run(params: Any, keys: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            params, state = carry
            grads = jax.grad(loss)(params, jax.random.randint(key, (128,), 0, len(x)))
            updates, state = optimiser.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimiser.init(params)), keys)[0][0]

    return run(params, jax.random.split(jax.random.key(1000 + seed), steps))


def measure(width: int, steps: int) -> dict[str, Any]:
    net = ob.nets.mlp(hidden=(width,) * 3, outputs=10)
    pair = [trained(net, seed, steps) for seed in (0, 1)]
    symmetry = ob.discover(net.apply, pair[0], jnp.zeros((1, 784)))
    leaves = [[np.asarray(x) for x in jax.tree.leaves(p)] for p in pair]
    layers = [[(flat[2 * i + 1], flat[2 * i]) for i in range(4)] for flat in leaves]

    start = time.perf_counter()
    plain, spent, _ = plain_descent(layers[0], layers[1], 0)
    plain_seconds = time.perf_counter() - start

    start = time.perf_counter()
    objective = Pairing(symmetry, weights(leaves[0], leaves[1]).channels)
    found = search(objective, Assignment(threads=1))
    seconds = time.perf_counter() - start
    return {
        "width": width,
        "plain seconds": plain_seconds,
        "plain products": spent["products"],
        "plain assignments": spent["assignments"],
        "seconds": seconds,
        "ratio": plain_seconds / seconds,
        "plain objective": plain,
        "objective": found.best.objective,
        "start": found.start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    rows = []
    print("width  plain s  ours s  ratio  plain objective  ours       start")
    for width in args.widths:
        row = measure(width, args.steps)
        rows.append(row)
        print(
            f"{row['width']:5d}  {row['plain seconds']:7.2f}  {row['seconds']:6.2f}  "
            f"{row['ratio']:5.1f}  {row['plain objective']:15.3f}  {row['objective']:9.3f}  "
            f"{row['start']}"
        )
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "matching.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
