"""What alignment is for: independently trained networks and posteriors meet, on real digits."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

import onebasin as ob
from onebasin.align.assignment import Assignment
from onebasin.align.channels import weights
from onebasin.align.descent import descend
from onebasin.align.pairing import Pairing
from onebasin.align.search import search
from onebasin.align.state import State

NET = ob.nets.mlp(hidden=(128, 128), outputs=10)
BATCH = 128


def data() -> Any:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = digits.data[order] / 16, digits.target[order]
    pairs = (x[:1297], y[:1297]), (x[1297:], y[1297:])
    return tuple((jnp.asarray(a, jnp.float32), jnp.asarray(b)) for a, b in pairs)


TRAIN, TEST = data()


def run(loss: Any, start: Any, optimiser: Any, steps: int, seed: Any) -> Any:
    """Minimises loss(params, inputs, labels, key) by batches."""

    def step(carry: Any, number: jax.Array) -> Any:
        params, state = carry
        pick, noise = jax.random.split(jax.random.key(10_000 * seed + number))
        at = jax.random.randint(pick, (BATCH,), 0, len(TRAIN[1]))
        grads = jax.grad(loss)(params, TRAIN[0][at], TRAIN[1][at], noise)
        updates, state = optimiser.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    return jax.lax.scan(step, (start, optimiser.init(start)), jnp.arange(1, steps + 1))[0][0]


def nats(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(NET.apply(params, x), y).mean()


def trained(seed: Any, decay: float = 3e-3, steps: int = 1500) -> Any:
    start = NET.init(jax.random.key(seed), TRAIN[0][:1])
    optimiser = optax.chain(optax.add_decayed_weights(decay), optax.sgd(0.1, momentum=0.9))
    return run(lambda p, x, y, _: nats(p, x, y), start, optimiser, steps, seed)


def mean_field(seed: Any, variance: float = 0.04) -> Any:
    """Mean-field VI: one draw per step, analytic KL from a normal prior."""
    mean = NET.init(jax.random.key(seed), TRAIN[0][:1])
    spread = jax.tree.map(lambda x: jnp.full(x.shape, jnp.log(0.02)), mean)

    def loss(q: Any, x: jax.Array, y: jax.Array, key: jax.Array) -> jax.Array:
        m, s = q
        leaves, structure = jax.tree.flatten(m)
        keys = jax.tree.unflatten(structure, list(jax.random.split(key, len(leaves))))
        drawn = jax.tree.map(
            lambda m, s, k: m + jnp.exp(s) * jax.random.normal(k, m.shape), m, s, keys
        )
        kl = jax.tree.map(lambda m, s: jnp.sum((m**2 + jnp.exp(2 * s)) / (2 * variance) - s), m, s)
        return nats(drawn, x, y) + sum(jax.tree.leaves(kl)) / len(TRAIN[1])

    rate = optax.cosine_decay_schedule(1e-2, 2000)
    mean, spread = run(loss, (mean, spread), optax.adam(rate), 2000, seed)
    return ob.Gaussian(mean, jax.tree.map(jnp.exp, spread))


@pytest.fixture(scope="module")
def symmetry() -> ob.Symmetry:
    return ob.discover(NET.apply, NET.init(jax.random.key(0), TRAIN[0][:1]), TRAIN[0][:1])


def both(train: Any) -> list[Any]:
    """Two of them, from two seeds, side by side."""
    found = jax.jit(jax.vmap(train))(jnp.arange(2))
    return [jax.tree.map(lambda x, i=i: x[i], found) for i in range(2)]


@pytest.fixture(scope="module")
def networks() -> list[Any]:
    return both(trained)


@pytest.fixture(scope="module")
def posteriors() -> list[Any]:
    return both(mean_field)


LOSS = ob.losses(NET.apply, TRAIN, TEST, num_samples=32)


def height(a: Any, b: Any, path: str = "geodesic") -> float:
    return float(ob.barrier(LOSS, a, b, 7, path).height["test loss"])


def test_trained_networks_meet(symmetry: ob.Symmetry, networks: list[Any]) -> None:
    a, b = networks
    aligned = ob.align(symmetry, b, to=a).params
    assert LOSS(a)["test error"] < 0.06
    assert height(a, aligned) <= 0.1 * height(a, b)


def test_posteriors_meet(symmetry: ob.Symmetry, posteriors: list[Any]) -> None:
    a, b = posteriors
    aligned = ob.align(symmetry, b, to=a, cost="wasserstein").params
    raw, geodesic = height(a, b), height(a, aligned)
    assert LOSS(a)["test error"] < 0.08
    assert geodesic <= 0.1 * raw
    assert height(a, aligned, "unit-norm-independent") <= geodesic + 1e-6


@pytest.fixture(scope="module")
def weakly() -> list[Any]:
    """Hardly regularised, and not far from where they started."""
    return both(functools.partial(trained, decay=0.0, steps=300))


def paired(symmetry: ob.Symmetry, networks: list[Any]) -> Pairing:
    a, b = ([np.asarray(x) for x in jax.tree.leaves(p)] for p in networks)
    return Pairing(symmetry, weights(a, b).channels)


def best_of_twelve(pairing: Pairing) -> float:
    """Plain coordinate descent: random starts, SciPy, the best kept."""
    rng, solve = np.random.default_rng(0), Assignment("scipy")
    starts = [State.random(pairing.symmetry, rng) for _ in range(12)]
    return max(descend(pairing, start, solve, rng).objective for start in starts)


def test_as_good_as_twelve_restarts(symmetry: ob.Symmetry, networks: list[Any]) -> None:
    pairing = paired(symmetry, networks)
    found = search(pairing, Assignment()).best.objective
    assert found >= best_of_twelve(pairing) * (1 - 1e-3)


def test_better_than_restarts_of_weakly_regularised(
    symmetry: ob.Symmetry, weakly: list[Any]
) -> None:
    pairing = paired(symmetry, weakly)
    forward, identity = (
        search(pairing, Assignment(), starts=[start], kicks=0).best.objective
        for start in ("forward", "identity")
    )
    assert forward > identity
    assert search(pairing, Assignment()).best.objective > best_of_twelve(pairing)
