"""Block covariances: the weights of one unit vary together, those of different units apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.compact.unit_blocks import blocks_of

NET = ob.nets.mlp(hidden=(3, 2), outputs=2)
X = jnp.ones((2, 4))
PARAMS = NET.init(jax.random.key(0), X)
SYMMETRY = ob.discover(NET.apply, PARAMS, X)


def scattered(count: int = 400) -> ob.Draws:
    """Draws whose covariance is made of blocks of known units, plus noise."""
    blocks, number = blocks_of(SYMMETRY, PARAMS)
    leaves, structure = jax.tree.flatten(PARAMS)
    rng = np.random.default_rng(0)
    common = rng.normal(size=(count, number + 1))
    drawn = [
        np.asarray(leaf)
        + common[:, block] * rng.normal(size=leaf.shape) * (block >= 0)
        + 0.1 * rng.normal(size=(count, *leaf.shape))
        for leaf, block in zip(leaves, blocks, strict=True)
    ]
    return ob.Draws(jax.tree.unflatten(structure, [jnp.asarray(x, jnp.float32) for x in drawn]))


def matrix(gaussian: ob.Gaussian) -> np.ndarray:
    def flat(tree, rows):
        return np.concatenate([np.reshape(x, (*rows, -1)) for x in jax.tree.leaves(tree)], -1)

    factor = flat(gaussian.factor, (gaussian.rank,))
    return factor.T @ factor + np.diag(flat(gaussian.std, ()) ** 2)


def test_a_weight_belongs_to_the_unit_that_it_goes_into() -> None:
    blocks, count = blocks_of(SYMMETRY, PARAMS)
    named = {leaf.path: block for leaf, block in zip(SYMMETRY.leaves, blocks, strict=True)}
    assert count == 5
    first, second = named["Dense_0/kernel"], named["Dense_1/kernel"]
    np.testing.assert_array_equal(first, np.tile(first[:1], (4, 1)))
    np.testing.assert_array_equal(named["Dense_0/bias"], first[0])
    np.testing.assert_array_equal(second, np.tile(second[:1], (3, 1)))
    # The last layer has no units of its own: its weights belong to those they come from.
    np.testing.assert_array_equal(named["Dense_2/kernel"], np.tile(second[0][:, None], (1, 2)))
    assert (named["Dense_2/bias"] == -1).all()


def test_the_layout_of_a_kernel_does_not_matter() -> None:
    def apply(p, x):
        return jax.nn.relu(jax.nn.relu(x @ p["a"].T) @ p["b"].T) @ p["c"].T

    params = {"a": jnp.ones((3, 4)), "b": jnp.ones((2, 3)), "c": jnp.ones((2, 2))}
    blocks, _ = blocks_of(ob.discover(apply, params, X), params)
    first, second, last = blocks
    assert len(np.unique(first, axis=1).T) == len(np.unique(second, axis=1).T) == 1
    assert not set(first.ravel()) & set(second.ravel())
    np.testing.assert_array_equal(last, np.tile(second[:, 0], (2, 1)))


def test_blocks_are_the_samples_and_the_rest_is_zero() -> None:
    draws = scattered()
    found = ob.fit_gaussian(draws, "unit-blocks", rank=12, symmetry=SYMMETRY)
    blocks, _ = blocks_of(SYMMETRY, PARAMS)
    unit = np.concatenate([b.ravel() for b in blocks])
    together = (unit[:, None] == unit) & (unit[:, None] >= 0) | np.eye(len(unit), dtype=bool)
    flat = np.concatenate(
        [np.reshape(x, (len(draws), -1)) for x in jax.tree.leaves(draws.params)], 1
    )
    expected = np.where(together, np.cov(flat.T), 0)
    np.testing.assert_allclose(matrix(found), expected, atol=2e-4)


def test_it_moves_with_the_group() -> None:
    draws = scattered(100)
    g = SYMMETRY.random(jax.random.key(3), kinds=("permutation",))
    moved = ob.fit_gaussian(ob.push_forward(SYMMETRY, g, draws), "unit-blocks", symmetry=SYMMETRY)
    again = ob.push_forward(SYMMETRY, g, ob.fit_gaussian(draws, "unit-blocks", symmetry=SYMMETRY))
    np.testing.assert_allclose(matrix(moved), matrix(again), atol=1e-4)
    whole = ob.compact(SYMMETRY, draws, covariance="unit-blocks")
    assert whole.posterior.rank == 4 * 5


def test_bad_input() -> None:
    draws = scattered(10)
    with pytest.raises(ValueError, match="symmetry="):
        ob.fit_gaussian(draws, "unit-blocks")
    linear = {"w": jnp.ones((10, 4, 2)) + jnp.arange(10.0)[:, None, None]}
    nothing = ob.discover(lambda p, x: x @ p["w"], {"w": jnp.ones((4, 2))}, X)
    with pytest.raises(ValueError, match="no hidden units"):
        ob.fit_gaussian(ob.Draws(linear), "unit-blocks", symmetry=nothing)
