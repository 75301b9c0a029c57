"""Networks to match: trained on digits, or noisy copies of one network."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import onebasin as ob


@functools.cache
def images() -> tuple[jax.Array, jax.Array]:
    """Digits, each pixel tripled and framed to 28 x 28."""
    digits = load_digits()
    small = digits.images / 16.0
    large = np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    return jnp.asarray(large.reshape(len(large), -1), jnp.float32), jnp.asarray(digits.target)


@functools.cache
def _trainer(net: ob.Net) -> Any:
    x, y = images()
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

    return run


def trained(net: ob.Net, seed: int, steps: int) -> Any:
    """Parameters after some steps of AdamW on digits, with weight decay."""
    params = net.init(jax.random.key(seed), images()[0][:1])
    return _trainer(net)(params, jax.random.split(jax.random.key(1000 + seed), steps))


def noisy_copies(net: ob.Net, symmetry: ob.Symmetry, count: int) -> Any:
    """Stacked copies of one network with noise, units of each in another order."""
    params = net.init(jax.random.key(0), jnp.zeros((1, 784)))

    def draw(key: jax.Array) -> Any:
        keys = jax.random.split(key, 5)
        leaves, structure = jax.tree.flatten(params)
        noisy = [
            x + 1.5 * (jnp.std(x) + 0.01) * jax.random.normal(k, x.shape)
            for x, k in zip(leaves, keys, strict=False)
        ]
        element = symmetry.random(keys[-1], kinds=("permutation",))
        return symmetry.act(element, jax.tree.unflatten(structure, noisy))

    return jax.lax.map(draw, jax.random.split(jax.random.key(1), count))
