from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

import onebasin as ob


class Scrambled(NamedTuple):
    net: ob.Net
    symmetry: ob.Symmetry
    posterior: ob.Gaussian
    draws: ob.Draws


@pytest.fixture(scope="session")
def scrambled() -> Scrambled:
    """Draws of one Gaussian in four chains, each moved by a group element of its own."""
    net = ob.nets.mlp(hidden=(6,), outputs=2)
    params = net.init(jax.random.key(0), jnp.ones((1, 4)))
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    means = [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    posterior = ob.Gaussian(jax.tree.unflatten(structure, means), 0.05)
    symmetry = ob.discover(net.apply, params, jnp.ones((1, 4)))
    draws = posterior.sample(jax.random.key(2), 160)
    chains = jnp.arange(160) // 40
    elements = jax.vmap(symmetry.random)(jax.random.split(jax.random.key(3), 4))
    own = jax.tree.map(lambda x: x[chains], elements)
    moved = symmetry.act_many(own, draws.params)
    return Scrambled(net, symmetry, posterior, ob.Draws(moved, mode=chains))
