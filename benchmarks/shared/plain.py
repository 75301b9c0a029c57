"""A plain coordinate descent with SciPy, as the published code does it.

Identity start, factors in random order, the gain matrix recomputed from scratch, one assignment
each, until nothing improves.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import linear_sum_assignment

Layers = list[tuple[np.ndarray, np.ndarray]]
"""Kernels (in, out) and biases of an MLP."""


def descent(
    a: Layers, b: Layers, seed: int, start: list[np.ndarray] | None = None
) -> tuple[float, dict[str, float], list[np.ndarray]]:
    """Matches b with a: the objective, seconds spent and permutations."""
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
            held = matrix[units, perms[i]].sum()
            if matrix[units, columns].sum() > held + 1e-12 * abs(matrix).sum():
                perms[i] = columns
                improved = True
    return objective(a, b, perms), spent, perms


def objective(a: Layers, b: Layers, perms: list[np.ndarray]) -> float:
    """The sum of products of matched weights."""
    total = 0.0
    for i, (kernel, bias) in enumerate(b):
        moved, shift = kernel, bias
        if i:
            moved = moved[perms[i - 1]]
        if i < len(perms):
            moved, shift = moved[:, perms[i]], shift[perms[i]]
        total += float(np.sum(a[i][0] * moved, dtype=np.float64))
        total += float(np.sum(a[i][1] * shift, dtype=np.float64))
    return total


def to_the_mean(stacked: list[np.ndarray], rounds: int = 20) -> tuple[float, int]:
    """One-hidden-layer draws to their mean, draw by draw, until no draw changes.

    Args:
        stacked: Bias, kernel, bias and kernel, with the axis of the draws in front.
        rounds: The largest number of rounds.

    Returns:
        The last sum of squared distances from the mean, and the number of rounds.
    """
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
            columns = descent(reference, own, number, start=[perms[i]])[2][0]
            changed += not np.array_equal(columns, perms[i])
            perms[i] = columns
            new = [bias0[i][columns], kernel0[i][:, columns], bias1[i], kernel1[i][columns]]
            moved.append(new)
            total += sum(float(np.sum((a - b) ** 2)) for a, b in zip(centre, new, strict=True))
        centre = [np.mean(np.stack(leaf), axis=0) for leaf in zip(*moved, strict=True)]
        if number and not changed:
            return total, number + 1
    return total, rounds
