"""Random programs: discovery claims nothing that is not so.

`ONEBASIN_FUZZ=5000 pytest -n 2 tests/symmetry/test_fuzz.py` draws more of them.
"""

import os
import re
import warnings

import jax
import numpy as np
import pytest

import onebasin as ob

from .operations import OPS
from .programs import Program

COUNT = int(os.environ.get("ONEBASIN_FUZZ", "200"))
BATCH = 20
TOLERANCE = 1e-8


def program(seed: int) -> Program:
    return Program(seed, 1 + seed % 9, OPS)


def spread_of(outputs: list[np.ndarray]) -> float:
    """The largest deviation from the first of stacked outputs, relative to its largest entry."""
    largest = 0.0
    for stacked in map(np.asarray, outputs):
        if not np.all(np.isfinite(stacked)):
            return float("inf")
        scale = np.max(np.abs(stacked[0])) or 1.0
        largest = max(largest, float(np.max(np.abs(stacked[1:] - stacked[0])) / scale))
    return largest


def on_stacked(drawn: Program, stacked: dict[str, np.ndarray], seed: int) -> list[np.ndarray]:
    with jax.enable_x64(True):
        # Not by vmap: products in groups have none over their matrices.
        run = jax.jit(lambda stacked, x: jax.lax.map(lambda params: drawn(params, x), stacked))
        return [np.asarray(x) for x in run(stacked, drawn.inputs(seed, np.float64))]


def conclusive(drawn: Program, doubtful: int) -> bool:
    """Whether outputs are finite, and move little when parameters move by rounding errors."""
    for seed in (doubtful, *range(6)):
        rng = np.random.default_rng(seed)
        stacked = {
            name: value * (1 + 1e-13 * rng.normal(size=(5, *value.shape)))
            for name, value in drawn.params(seed, np.float64).items()
        }
        if spread_of(on_stacked(drawn, stacked, seed)) > 1e-9:
            return False
    return True


def random_element(sym: ob.Symmetry, rng: np.random.Generator) -> ob.Element:
    identity = sym.identity(np)
    return ob.Element(
        {name: rng.permuted(own, axis=-1) for name, own in identity.permutations.items()},
        {name: rng.normal(size=own.shape) for name, own in identity.log_scales.items()},
        {name: rng.choice([-1, 1], own.shape) for name, own in identity.signs.items()},
    )


def largest_change(drawn: Program, sym: ob.Symmetry, seed: int) -> float:
    """Over elements, now and then a product and an inverse, on parameters not seen before."""
    rng = np.random.default_rng(seed)
    params = drawn.params(seed, np.float64)
    leaves, _ = sym.flatten(params)
    elements = [random_element(sym, rng) for _ in range(6)]
    if seed % 5 == 0:  # slower than all the rest, since nothing of it is compiled yet
        g, h = elements[:2]
        elements += jax.tree.map(np.asarray, [sym.compose(g, h), sym.inverse(g)])
    moved = [leaves, *(sym.act_on_leaves(e, leaves, np) for e in elements)]
    columns = [np.stack(column) for column in zip(*moved, strict=True)]
    return spread_of(on_stacked(drawn, dict(zip(sorted(params), columns, strict=True)), seed))


def verdict(seed: int) -> str:
    """What came of one program: "moves", "rigid", "unclear" (numbers cannot tell), or a fault."""
    drawn = program(seed)
    try:
        sym = ob.discover(drawn, drawn.params(seed), drawn.inputs(seed))
    except ob.SymmetryError as error:
        return f"program {seed}: {error}" if conclusive(drawn, seed) else "unclear"
    if not sym.factors:
        return "rigid"
    change = largest_change(drawn, sym, seed + 1)
    if change > TOLERANCE:
        text = f"program {seed}: changes by {change:.2g} under\n{sym}"
        return text if conclusive(drawn, seed + 1) else "unclear"
    return "moves"


@pytest.mark.parametrize("start", range(0, COUNT, BATCH))
def test_no_false_symmetry(start: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ob.UnknownPrimitiveWarning)
        found = [verdict(seed) for seed in range(start, start + BATCH)]
    assert not set(found) - {"moves", "rigid", "unclear"}
    assert found.count("moves") >= BATCH // 3
    assert found.count("unclear") <= BATCH // 4


def test_programs_repeat() -> None:
    """A seed is a program: the same each time, and another one for the next seed."""
    first, again, other = program(8), program(8), program(17)
    text = [
        str(jax.make_jaxpr(drawn)(drawn.params(0), drawn.inputs(0)))
        for drawn in (first, again, other)
    ]
    assert text[0] == text[1] != text[2]


def test_every_operation_occurs() -> None:
    """The generator reaches the primitives that it is there for."""
    seen: set[str] = set()
    for seed in range(0, 300, 2):
        drawn = program(seed)
        jaxpr = jax.make_jaxpr(drawn)(drawn.params(0), drawn.inputs(0))
        seen |= set(re.findall(r"= ([a-z][\w-]*)", str(jaxpr)))
    wanted = {
        *("dot_general", "conv_general_dilated", "reshape", "transpose", "concatenate", "slice"),
        *("pad", "reduce_sum", "reduce_max", "reduce_prod", "gather", "scatter", "cumsum", "sort"),
        *("scan", "while", "cond", "select_n", "top_k", "argmax", "rev", "reduce_window_sum"),
        *("dynamic_slice", "dynamic_update_slice", "tanh", "rsqrt", "sign", "floor", "erf"),
        *("ragged_dot_general", "bitcast_convert_type", "ceil", "bessel_i1e", "real"),
        *("max", "exp", "log", "pow", "integer_pow", "sqrt", "convert_element_type", "gt"),
    }
    assert wanted <= seen, wanted - seen
