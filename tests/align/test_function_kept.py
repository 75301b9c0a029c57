"""The function is left alone by every result, in float64, at 1e-10."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import THOROUGH

import onebasin as ob

DATA = ("activations", "correlation", "contributions", "preactivations")
GAUSSIAN = ("wasserstein", "kl", "kl-reverse", "kl-mean")
SOLVERS = ("descent", "frank-wolfe", "straight-through", "sinkhorn")
REFERENCES = ("mean", "first", "leave-one-out")
NETS = {
    "relu": lambda: ob.nets.mlp(hidden=(6, 5), outputs=3),
    "tanh": lambda: ob.nets.mlp(hidden=(6,), outputs=3, activation="tanh"),
}


@functools.cache
def problem(name):
    net = NETS[name]()
    x = jax.random.normal(jax.random.key(0), (24, 4), jnp.float64)

    def draw(key):
        leaves, structure = jax.tree.flatten(net.init(key, x))
        keys = jax.random.split(key, len(leaves))
        noisy = [
            leaf.astype(jnp.float64) + 0.3 * jax.random.normal(k, leaf.shape, jnp.float64)
            for leaf, k in zip(leaves, keys, strict=True)
        ]
        return jax.tree.unflatten(structure, noisy)

    draws = jax.vmap(draw)(jax.random.split(jax.random.key(1), 4))
    symmetry = ob.discover(net.apply, jax.tree.map(lambda p: p[0], draws), x)
    return net, symmetry, draws, x


def one(draws, number):
    return jax.tree.map(lambda p: p[number], draws)


def changed(net, before, after, x):
    """The largest change of the outputs, relative to the largest output."""
    y, z = (np.asarray(jax.vmap(lambda p: net.apply(p, x))(p)) for p in (before, after))
    assert y.dtype == np.float64
    return np.max(np.abs(y - z)) / np.max(np.abs(y))


def aligned(name, **options):
    net, symmetry, draws, x = problem(name)
    y = jax.nn.softmax(net.apply(one(draws, 2), x)).argmax(axis=-1)
    options = {
        "apply_fn": net.apply,
        "inputs": x,
        "loss_fn": ob.losses(net.apply, (x, y)),
    } | options
    a, b = one(draws, 0), one(draws, 1)
    if options.get("cost") in GAUSSIAN:
        a, b = (ob.Gaussian(p, jax.tree.map(lambda w: 0.1 + jnp.abs(w), p)) for p in (a, b))
    found = ob.align(symmetry, b, to=a, **options).params
    return one(draws, slice(1, 2)), jax.tree.map(lambda p: p[None], getattr(found, "mean", found))


def many(name, **options):
    net, symmetry, draws, x = problem(name)
    if options.get("reference") == "given":
        options["reference"] = one(draws, 2)
    found = ob.align_many(symmetry, draws, apply_fn=net.apply, inputs=x, **options)
    return draws, found.draws.params


def canonical(name, **options):
    _, symmetry, draws, _ = problem(name)
    return draws, ob.canonicalize(symmetry, draws, **options)


WAYS = {
    **{f"cost {c}": (aligned, {"cost": c}) for c in ("weights", *GAUSSIAN, *DATA)},
    **{f"scaling {s}": (aligned, {"scaling": s}) for s in ("unit-norm", None)},
    **{f"solver {s}": (aligned, {"solver": s}) for s in SOLVERS},
    "thorough": (aligned, {"search": "thorough", "solver": "straight-through"}),
    **{f"many {r}": (many, {"reference": r}) for r in (*REFERENCES, "given")},
    **{f"many {c}": (many, {"cost": c}) for c in DATA},
    **{f"canonical {s}": (canonical, {"scaling": s}) for s in ("min-mass", "unit-norm", None)},
    **{f"order {o}": (canonical, {"order": o}) for o in ("mean", "median", "first", None)},
}


# Of what differs in its numbers alone, one each by default.
REST = (
    "cost kl-",
    "cost pre",
    "cost corr",
    "solver s",
    "many a",
    "many corr",
    "many pre",
    "order m",
)
RELU = [way for way in WAYS if THOROUGH or not way.startswith(REST)]
TANH = WAYS if THOROUGH else ("cost weights", "cost activations", "many mean", "canonical min-mass")


@pytest.mark.parametrize(
    ("way", "name"), [*((w, "relu") for w in RELU), *((w, "tanh") for w in TANH)]
)
def test_function_is_kept(way, name, float64):
    work, options = WAYS[way]
    before, after = work(name, **options)
    net, _, _, x = problem(name)
    moved = any(
        not np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    )
    assert moved
    assert changed(net, before, after, x) < 1e-10
