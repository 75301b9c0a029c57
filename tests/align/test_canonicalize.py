"""Canonical forms: one network out of every orbit."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob

INPUTS = jax.random.normal(jax.random.key(0), (9, 4))


def generic(params, seed=3):
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    moved = [x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, moved)


@pytest.fixture(scope="module", params=["relu", "tanh"])
def model(request):
    net = ob.nets.mlp(hidden=(6, 5), outputs=3, activation=request.param)
    params = generic(net.init(jax.random.key(1), INPUTS))
    return net, ob.discover(net.apply, params, INPUTS), params


def close(a, b, tolerance=2e-4):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, atol=tolerance)


@pytest.mark.parametrize("scaling", ["min-mass", "unit-norm"])
@pytest.mark.parametrize("order", ["max", "mean", "median", "first"])
def test_one_out_of_every_orbit(model, scaling, order):
    net, symmetry, params = model
    canonical = ob.canonicalize(symmetry, params, scaling, order)
    close(canonical, ob.canonicalize(symmetry, canonical, scaling, order))
    moved = symmetry.act(symmetry.random(jax.random.key(4)), params)
    close(canonical, ob.canonicalize(symmetry, moved, scaling, order))
    np.testing.assert_allclose(
        net.apply(params, INPUTS), net.apply(canonical, INPUTS), atol=1e-4, rtol=1e-4
    )


def test_stacked_draws_are_done_one_by_one(model):
    _, symmetry, params = model
    keys = jax.random.split(jax.random.key(5), 4)
    stacked = jax.vmap(lambda k: symmetry.act(symmetry.random(k), params))(keys)
    together = ob.canonicalize(symmetry, stacked)
    for i in range(4):
        own = ob.canonicalize(symmetry, jax.tree.map(lambda x, i=i: x[i], stacked))
        close(own, jax.tree.map(lambda x, i=i: x[i], together))


def test_minimum_mass_is_that_of_a_convex_solver(float64):
    """Two hidden layers with biases: min over mu of sum w^2 exp(2 (mu_out - mu_in))."""
    net = ob.nets.mlp(hidden=(4, 3), outputs=2)
    params = generic(net.init(jax.random.key(2), INPUTS))
    params = jax.tree.map(lambda x: x.astype(jnp.float64), params)
    symmetry = ob.discover(net.apply, params, INPUTS)
    canonical = ob.canonicalize(symmetry, params, order=None)
    mass = sum(float(jnp.sum(x**2)) for x in jax.tree.leaves(canonical))

    first, second = cp.Variable(4), cp.Variable(3)
    squares = jax.tree.map(lambda x: np.asarray(x) ** 2, params)
    one, two, three = (squares[f"Dense_{i}"] for i in range(3))
    total = cp.sum(cp.multiply(one["kernel"].sum(0) + one["bias"], cp.exp(2 * first)))
    total += cp.sum(cp.multiply(two["bias"], cp.exp(2 * second)))
    total += cp.sum(cp.multiply(three["kernel"].sum(1), cp.exp(-2 * second)))
    total += sum(
        two["kernel"][i, j] * cp.exp(2 * second[j] - 2 * first[i])
        for i in range(4)
        for j in range(3)
    )
    problem = cp.Problem(cp.Minimize(total))
    problem.solve()
    assert mass - float(three["bias"].sum()) == pytest.approx(problem.value, rel=1e-6)
    assert mass <= problem.value * (1 + 1e-8) + float(three["bias"].sum())


def test_dead_units_and_batch_norm_stay_finite():
    net = ob.nets.mlp(hidden=(5,), outputs=2)
    params = generic(net.init(jax.random.key(0), INPUTS))
    params["Dense_1"]["kernel"] = params["Dense_1"]["kernel"].at[2].set(0.0)
    symmetry = ob.discover(net.apply, params, INPUTS)
    for scaling in ("min-mass", "unit-norm"):
        canonical = ob.canonicalize(symmetry, params, scaling)
        assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(canonical))

    normed = ob.nets.resnet20(norm="batch", width=2, outputs=2)
    images = jax.random.normal(jax.random.key(1), (2, 8, 8, 3))
    weights = normed.init(jax.random.key(2), images)
    group = ob.discover(normed.apply, weights, images)
    element, report = ob.canonical_element(group, weights)
    assert report.mass_after <= report.mass_before
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(element))


def test_nan_names_the_leaf(model):
    _, symmetry, params = model
    bad = jax.tree.map(lambda x: x * jnp.nan if x.ndim == 2 else x, params)
    with pytest.raises(ValueError, match="Dense_0/kernel"):
        ob.canonicalize(symmetry, bad)
