"""Minimum mass against cvxpy, on problems written down from the definition."""

import itertools
from typing import Any

import cvxpy
import jax
import numpy as np
import pytest
from scipy import sparse
from zoo import CASES, THOROUGH, as_float64

from onebasin.align.canonical import canonical_element
from onebasin.symmetry import Symmetry, discover

BUILD = {case.name: case.build for case in CASES}


def optimum(symmetry: Symmetry, params: Any) -> float:
    """The least sum of w^2 exp(2 exponents . log-scales) over all weights, by an interior point."""
    leaves, _ = symmetry.flatten(params)
    columns: dict[tuple[Any, ...], int] = {}
    terms: dict[tuple[tuple[int, float], ...], float] = {}
    for leaf, array in zip(symmetry.leaves, leaves, strict=True):
        for block in leaf.blocks:
            weights = np.asarray(array)[block.at()].reshape(block.shape)
            for at in itertools.product(*map(range, block.shape)):
                row: dict[int, float] = {}
                for w in block.scalings:
                    variable = (w.factor, w.generator, *(at[p] for p in w.places))
                    column = columns.setdefault(variable, len(columns))
                    row[column] = row.get(column, 0) + w.exponent
                key = tuple(sorted((c, e) for c, e in row.items() if e))
                terms[key] = terms.get(key, 0) + float(weights[at]) ** 2
    entries = [(i, c, 2 * e) for i, key in enumerate(terms) for c, e in key]
    rows, cols, values = zip(*entries, strict=True)
    exponents = sparse.csr_array((values, (rows, cols)), shape=(len(terms), len(columns)))
    scales = cvxpy.Variable(len(columns))
    logs = np.log(np.maximum(list(terms.values()), 1e-30))
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(cvxpy.exp(exponents @ scales + logs))))
    tight = {f"tol_{kind}": 1e-11 for kind in ("gap_abs", "gap_rel", "feas")}
    return float(problem.solve(solver=cvxpy.CLARABEL, **tight))


# Biases, BatchNorm, convolutions, residual ties, self-connections, several scalings per unit.
QUICK = (
    "mlp-relu",
    "mlp-batchnorm-relu",
    "cnn-plain",
    "resnet-None-relu",
    "rnn-relu",
    "one-gain-two-layers",
    "square",
)
MORE = (
    "grouped-conv",
    "depthwise-conv",
    "zero-padded-shortcuts",
    "residual-scan",
    "encoder-plain",
    "mlp-mixer",
)


@pytest.mark.parametrize("name", QUICK + MORE if THOROUGH else QUICK)
def test_minimum_mass(name: str, float64: None) -> None:
    with jax.enable_x64(False):
        apply_fn, params, inputs = BUILD[name]()
        symmetry = discover(apply_fn, params, inputs)
    params = as_float64(params)
    _, report = canonical_element(symmetry, params)
    expected = optimum(symmetry, params)
    assert report.bounded
    assert report.mass_after < report.mass_before
    assert abs(report.mass_after - expected) < 1e-8 * expected
