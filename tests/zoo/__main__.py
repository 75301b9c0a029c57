"""Check the expectations of the zoo themselves: `python -m tests.zoo [PART OF A NAME]`."""

import sys

import jax
import numpy as np

from . import CASES, Case, as_float64
from .oracles import scaling_dimension_bound

LARGEST = 1600


def check(case: Case) -> str:
    apply_fn, params, inputs = case.build()
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    outputs = jax.jit(apply_fn)(params, inputs)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(outputs)):
        return "NOT FINITE"
    if case.float32_only:
        return "float32 only"
    with jax.enable_x64(True):
        exact = jax.jit(apply_fn)(as_float64(params), as_float64(inputs))
    for leaf, other in zip(jax.tree.leaves(outputs), jax.tree.leaves(exact), strict=True):
        if other.dtype != np.float64 or not np.allclose(leaf, other, atol=1e-4):
            return "NOT THE SAME IN FLOAT64"
    if size > LARGEST or not case.smooth:
        return f"{size} parameters, scalings not checked"
    bound = scaling_dimension_bound(apply_fn, params, inputs, jax.random.key(5))
    verdict = "as expected" if bound == case.scaling_dimension else "NOT AS EXPECTED"
    return f"{size} parameters, {bound} scalings, {verdict}"


if __name__ == "__main__":
    for case in CASES:
        if any(part in case.name for part in sys.argv[1:] or [""]):
            print(f"{case.name:35s} {check(case)}", flush=True)
