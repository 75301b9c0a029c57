"""Minimum mass of ResNet-18 against cvxpy on the widest one that it still solves.

    python benchmarks/minimum_mass.py [--full] [--out results/bench]

The network is ResNet-18 with biases and without normalisation (with it the layers part, and there
is less to solve), at its initial values, moved by a random rescaling. cvxpy gets the problem with
squares summed over filter positions, as our solver does, and CLARABEL with its default tolerances.
Ours runs at full width; what counts is seconds per parameter.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from typing import Any

import cvxpy
import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from shared import record  # type: ignore[import-not-found]

import onebasin as ob
from onebasin.align.canonical import canonical_element

FULL_WIDTH = 64


def network(width: int) -> tuple[ob.Symmetry, Any]:
    """A rescaled ResNet-18, and its group."""
    net = ob.nets.resnet18(norm=None, width=width)
    inputs = jnp.zeros((1, 32, 32, 3))
    params = net.init(jax.random.key(0), inputs)
    keys = iter(jax.random.split(jax.random.key(1), 1000))
    params = jax.tree.map(
        lambda leaf: leaf + 0.05 * jax.random.normal(next(keys), leaf.shape), params
    )
    symmetry = ob.discover(net.apply, params, inputs)
    return symmetry, symmetry.act(symmetry.random(jax.random.key(2), kinds=("scaling",)), params)


def by_cvxpy(symmetry: ob.Symmetry, params: Any) -> tuple[float, float]:
    """Seconds to state and solve the problem, and the mass."""
    leaves = [np.asarray(leaf, np.float64) for leaf in symmetry.flatten(params)[0]]
    start = time.perf_counter()
    first, count = {}, 0
    for f in symmetry.factors:
        first[f.name] = count
        count += f.size * f.copies * f.scalings
    rows, columns, values, squares = [], [], [], []
    total = 0
    for leaf, array in zip(symmetry.leaves, leaves, strict=True):
        for block in leaf.blocks:
            kept = sorted({place for w in block.scalings for place in w.places})
            lost = tuple(i for i in range(len(block.shape)) if i not in kept)
            mass = np.sum(array[block.at()].reshape(block.shape) ** 2, axis=lost)
            for w in block.scalings:
                factor = symmetry.factor(w.factor)
                at = np.zeros(mass.shape, int)
                for place, name in zip(w.places, factor.index, strict=True):
                    side = kept.index(place)
                    unit = np.arange(mass.shape[side])
                    at = at * symmetry.sizes[name] + unit.reshape(
                        [-1 if i == side else 1 for i in range(mass.ndim)]
                    )
                rows.append(total + np.arange(mass.size))
                columns.append(first[w.factor] + at.ravel() * factor.scalings + w.generator)
                values.append(np.full(mass.size, 2 * w.exponent))
            squares.append(mass.ravel())
            total += mass.size
    exponents = sparse.csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
        shape=(total, count),
    )
    scales = cvxpy.Variable(count)
    logs = np.log(np.concatenate(squares))
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cvxpy.exp(exponents @ scales + logs))))
    mass = problem.solve(solver=cvxpy.CLARABEL)
    return time.perf_counter() - start, float(mass)


def by_sweeps(symmetry: ob.Symmetry, params: Any, repeats: int = 5) -> dict[str, float]:
    """Seconds of the first call, and of the best of some more; mass, sweeps."""
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        element, report = canonical_element(symmetry, params, "min-mass", None)
        jax.block_until_ready((element, report))
        seconds.append(time.perf_counter() - start)
    return {
        "seconds": min(seconds[1:]),
        "seconds of the first call": seconds[0],
        "mass": float(report.mass_after),
        "sweeps": int(report.sweeps),
    }


def measure(width: int, cvxpy_too: bool) -> dict[str, Any]:
    """One row of the table."""
    symmetry, params = network(width)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    row: dict[str, Any] = {"width": width, "parameters": size} | by_sweeps(symmetry, params)
    if cvxpy_too:
        try:
            row["cvxpy seconds"], row["cvxpy mass"] = by_cvxpy(symmetry, params)
        except cvxpy.error.SolverError as error:
            row["cvxpy failed"] = str(error).split(".")[0]
    return row


def show(row: dict[str, Any]) -> None:
    """Prints a row."""
    theirs = row.get("cvxpy seconds")
    line = (
        f"{row['width']:5d}  {row['parameters']:10d}  {row['sweeps']:6d}  "
        f"{row['seconds']:9.4f}  {1e9 * row['seconds'] / row['parameters']:8.1f}  "
        f"{row['seconds of the first call']:9.1f}"
    )
    if theirs is not None:
        gap = abs(row["mass"] / row["cvxpy mass"] - 1)
        line += f"  {theirs:7.2f}  {1e9 * theirs / row['parameters']:8.0f}  {gap:.1e}"
    elif "cvxpy failed" in row:
        line += f"  {row['cvxpy failed']}"
    print(line, flush=True)


def main() -> None:
    """Runs the comparison and prints the ratio per parameter."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="cvxpy may take 60 seconds, not 10")
    parser.add_argument("--out", type=pathlib.Path, help="folder for minimum_mass.json")
    args = parser.parse_args()
    limit = 60.0 if args.full else 10.0
    print("width  parameters  sweeps  seconds    ns/param  first call  cvxpy s  ns/param  gap")
    rows = []
    for width in (1, 2, 4, 8, 16, 32):
        rows.append(measure(width, cvxpy_too=True))
        show(rows[-1])
        # Its time grows at least as the square of the width.
        if 4 * rows[-1].get("cvxpy seconds", 0.0) > limit:
            break
    full = measure(FULL_WIDTH, cvxpy_too=False)
    show(full)
    widest = [row for row in rows if "cvxpy seconds" in row][-1]
    theirs = widest["cvxpy seconds"] / widest["parameters"]
    ours = full["seconds"] / full["parameters"]
    print(
        f"per parameter, ours at width {full['width']} against cvxpy at width "
        f"{widest['width']}: {theirs / ours:,.0f} times less time"
    )
    record.save(
        args.out, "minimum_mass", {"rows": [*rows, full], "ratio per parameter": theirs / ours}
    )


if __name__ == "__main__":
    main()
