"""A random element of the group, planted, is found again, whatever the cost.

Costs on data are given more examples than the zoo has: with two, all correlations are 1. Where they
cannot see a factor at work they say so, and `REFUSED` lists where that is.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import CASES, THOROUGH

import onebasin as ob

ALL = {case.name: case for case in CASES}
# Plain, signs, two signs per unit, ties, groups, blocks, self-connections, heads, loops.
QUICK = (
    "mlp-relu",
    "mlp-tanh",
    "mlp-layernorm-linear",
    "bilinear-glu",
    "mlp-batchnorm-relu",
    "one-gain-two-layers",
    "cnn-plain",
    "grouped-conv",
    "resnet-None-relu",
    "rnn-tanh",
    "encoder-plain",
)
GAUSSIAN = ("wasserstein", "kl", "kl-reverse", "kl-mean")
DATA = ("activations", "correlation", "contributions", "preactivations")
# Read as pieces, in halves, in an order of their own, or with signs that act on whole groups.
HARD = (
    ("maxout", "activations"),
    ("crelu", "contributions"),
    ("sort", "correlation"),
    ("depthwise-conv-multiplier", "contributions"),
    ("resnet-frn-relu", "correlation"),
    ("resnet-group-relu", "preactivations"),
)
REFUSED = {(name, cost) for name in ("mlp-mixer",) for cost in DATA}
SEEDS = 20 if THOROUGH else 1


@functools.cache
def network(name: str) -> tuple[Any, Any, Any, ob.Symmetry]:
    model = ALL[name].build()
    return *model, ob.discover(*model)


def more(inputs: Any, count: int = 48) -> Any:
    """As many examples as tell all units apart."""

    def drawn(leaf: Any) -> Any:
        rng = np.random.default_rng(7)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(rng.normal(size=(count, *leaf.shape[1:])), leaf.dtype)
        return leaf[rng.integers(0, len(leaf), count)]

    return jax.tree.map(drawn, inputs)


def gap(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest entry of each leaf."""
    pairs = [
        (np.asarray(x), np.asarray(y))
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    ]
    return max(
        float(np.max(np.abs(x - y)) / (np.max(np.abs(x)) + 1e-30))
        for x, y in pairs
        if x.size and np.issubdtype(x.dtype, np.floating)
    )


def moved(symmetry: ob.Symmetry, params: Any, seed: int) -> Any:
    return symmetry.act(symmetry.random(jax.random.key(seed)), params)
