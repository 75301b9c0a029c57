"""A random element of the group, planted, is found again, whatever the cost.

Costs on data are given more examples than the zoo has: with two, all correlations are 1.
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
# Read as pieces, in halves, in an order of their own, transposed, by groups that flip, together
# with other units, or inside a loop.
HARD = (
    ("maxout", "activations"),
    ("crelu", "contributions"),
    ("sort", "correlation"),
    ("depthwise-conv-multiplier", "contributions"),
    ("gpt-tied", "contributions"),
    ("resnet-group-relu", "preactivations"),
    ("mlp-mixer", "contributions"),
    ("residual-scan", "activations"),
    ("shared-zero-state", "preactivations"),
    ("encoder-scanned", "contributions"),
)
SEEDS = 20 if THOROUGH else 1
# A descent that has not ended after so many goes round in circles.
MOST_SWEEPS = 50


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


@pytest.mark.parametrize("name", ALL if THOROUGH else (*QUICK, "encoder-scanned"))
def test_weights(name: str) -> None:
    _, params, _, symmetry = network(name)
    for seed in range(SEEDS):
        found = ob.align(symmetry, moved(symmetry, params, seed), to=params)
        assert gap(params, found.params) < 1e-4, seed
        assert found.cost <= found.cost_before + 1e-6
        assert found.sweeps < MOST_SWEEPS, seed


@pytest.mark.parametrize("cost", GAUSSIAN if THOROUGH else ("wasserstein", "kl-reverse"))
@pytest.mark.parametrize("name", ALL if THOROUGH else QUICK)
def test_gaussians(name: str, cost: str) -> None:
    _, params, _, symmetry = network(name)
    posterior = ob.Gaussian(params, jax.tree.map(lambda x: 0.1 * (1 + jnp.abs(x)), params))
    for seed in range(SEEDS):
        element = symmetry.random(jax.random.key(seed))
        found = ob.align(
            symmetry, ob.push_forward(symmetry, element, posterior), to=posterior, cost=cost
        )
        assert gap(posterior.mean, found.params.mean) < 1e-4, seed
        assert gap(posterior.std, found.params.std) < 1e-4, seed
        assert found.sweeps < MOST_SWEEPS, seed


@pytest.mark.parametrize(
    ("name", "cost"),
    [("mlp-plain", "kl"), ("mlp-plain", "kl-mean"), ("resnet-group-relu", "wasserstein")],
)
def test_gaussians_of_more_kinds(name: str, cost: str) -> None:
    """Forms that the other test leaves to the thorough run, layers in a list, groups."""
    test_gaussians(name, cost)


EVERY = [(name, cost) for name in (ALL if THOROUGH else QUICK) for cost in DATA]


@pytest.mark.parametrize(("name", "cost"), EVERY if THOROUGH else [*EVERY, *HARD])
def test_data(name: str, cost: str) -> None:
    apply_fn, params, inputs, symmetry = network(name)
    at_work = {"apply_fn": apply_fn, "inputs": more(inputs)}
    for seed in range(SEEDS):
        moving = moved(symmetry, params, seed)
        found = ob.align(symmetry, moving, to=params, cost=cost, **at_work)
        assert gap(params, found.params) < 1e-4, seed
        # The right match costs nothing: a wrong sign inside the cost would show here first.
        assert found.cost <= 1e-4 * max(found.cost_before, 1), seed
        assert found.sweeps < MOST_SWEEPS, seed


@pytest.mark.parametrize("activation", [jax.nn.gelu, jnp.tanh])
def test_units_that_are_seen_together(activation: Any) -> None:
    """Tokens are mixed unit by unit: units are summed there, unless each has a sign of its own."""

    def model(params: Any, x: Any) -> Any:
        tokens = jnp.swapaxes(activation(x @ params["in"]), 1, 2) @ params["mix"]
        mixed = activation(tokens) @ params["back"]
        return (mixed @ jnp.arange(1.0, 4.0)) @ params["out"]

    shapes = {"in": (4, 5), "mix": (3, 7), "back": (7, 3), "out": (5, 2)}
    keys = jax.random.split(jax.random.key(0), 4)
    params = {n: jax.random.normal(k, shapes[n]) for n, k in zip(shapes, keys, strict=True)}
    inputs = jax.random.normal(jax.random.key(1), (48, 3, 4))
    symmetry = ob.discover(model, params, inputs)
    assert sorted(f.size for f in symmetry.factors if "permutation" in f.kinds) == [5, 7]
    at_work = {"cost": "activations", "apply_fn": model, "inputs": inputs}
    for seed in range(SEEDS):
        moving = moved(symmetry, params, seed)
        if activation is jnp.tanh:
            with pytest.raises(ValueError, match="together with another's units, which flip"):
                ob.align(symmetry, moving, to=params, **at_work)
        else:
            found = ob.align(symmetry, moving, to=params, **at_work)
            assert gap(params, found.params) < 1e-4, seed


@pytest.mark.parametrize("cost", ["weights", *DATA])
@pytest.mark.parametrize("permutable", [True, False])
def test_signs_of_units_that_stay(cost: str, permutable: bool) -> None:
    """Units of tanh that a constant tells apart can only flip: their weights say which did."""
    order = jnp.arange(1.0, 6.0)

    def model(params: Any, x: Any) -> Any:
        hidden = jnp.tanh(x @ params["in"]) * order
        if permutable:
            hidden = jax.nn.relu(hidden @ params["middle"])
        return hidden @ params["out"]

    shapes = {"in": (4, 5), "out": (5, 3)} | ({"middle": (5, 5)} if permutable else {})
    keys = jax.random.split(jax.random.key(0), 3)
    params = {n: jax.random.normal(k, shapes[n]) for n, k in zip(shapes, keys, strict=False)}
    inputs = jax.random.normal(jax.random.key(1), (48, 4))
    symmetry = ob.discover(model, params, inputs)
    assert any(f.kinds == {"sign"} and f.size == 5 for f in symmetry.factors)
    for seed in range(SEEDS):
        moving = moved(symmetry, params, seed)
        found = ob.align(symmetry, moving, to=params, cost=cost, apply_fn=model, inputs=inputs)
        assert gap(params, found.params) < 1e-4, seed
