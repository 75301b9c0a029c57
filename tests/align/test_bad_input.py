"""What cannot be aligned, and the sentence that says so."""

import jax
import jax.numpy as jnp
import pytest

import onebasin as ob

INPUTS = jnp.ones((4, 3))


@pytest.fixture(scope="module")
def setting():
    net = ob.nets.mlp(hidden=(5,), outputs=2)
    params = net.init(jax.random.key(0), INPUTS)
    return ob.discover(net.apply, params, INPUTS), params


def test_other_shape_names_the_leaf(setting):
    symmetry, params = setting
    other = ob.nets.mlp(hidden=(6,), outputs=2).init(jax.random.key(0), INPUTS)
    with pytest.raises(ob.SymmetryError, match=r"Dense_0/bias.*\(6,\).*expected \(5,\)"):
        ob.align(symmetry, other, to=params)


def test_other_structure_names_the_leaf(setting):
    symmetry, params = setting
    with pytest.raises(ob.SymmetryError, match=r"Extra.*expected"):
        ob.align(symmetry, {"Extra": params["Dense_0"], **params}, to=params)


def test_nan_names_the_leaf(setting):
    symmetry, params = setting
    bad = jax.tree.map(lambda x: x.at[0].set(jnp.nan) if x.ndim == 2 else x, params)
    with pytest.raises(ValueError, match="NaN or infinite values in 'Dense_0/kernel'"):
        ob.align(symmetry, bad, to=params)
    with pytest.raises(ValueError, match="Dense_0/kernel"):
        ob.align_many(symmetry, jax.tree.map(lambda x: x[None], bad))


def test_empty_population(setting):
    symmetry, params = setting
    with pytest.raises(ValueError, match=r"empty|at least one|no draws"):
        ob.align_many(symmetry, jax.tree.map(lambda x: x[None][:0], params))


def test_activations_without_data(setting):
    symmetry, params = setting
    with pytest.raises(ValueError, match="pass apply_fn= and inputs="):
        ob.align(symmetry, params, to=params, cost="activations")


def test_distribution_cost_on_points(setting):
    symmetry, params = setting
    with pytest.raises(ValueError, match=r"compares distributions.*Gaussian"):
        ob.align(symmetry, params, to=params, cost="wasserstein")


def test_unknown_names_suggest_the_nearest(setting):
    symmetry, params = setting
    with pytest.raises(ValueError, match="did you mean 'contributions'"):
        ob.align(symmetry, params, to=params, cost="contribution")
    with pytest.raises(ValueError, match="did you mean 'min-mass'"):
        ob.align(symmetry, params, to=params, scaling="min_mass")
    with pytest.raises(ValueError, match="did you mean 'mean'"):
        ob.align_many(symmetry, jax.tree.map(lambda x: x[None], params), reference="means")


def test_group_of_another_model(setting):
    symmetry, _ = setting
    other = ob.nets.mlp(hidden=(5, 5), outputs=2).init(jax.random.key(0), INPUTS)
    with pytest.raises(ob.SymmetryError, match="not of the model"):
        ob.align(symmetry, other, to=other)


def test_factor_that_is_seen_inside_a_loop_only():
    def model(params, x):
        def step(state, token):
            hidden = jax.nn.gelu(token @ params["in"] + state @ params["w"])
            return hidden @ params["back"], None

        return jax.lax.scan(step, jnp.zeros(4), x)[0] @ params["out"]

    shapes = {"in": (3, 5), "w": (4, 5), "back": (5, 4), "out": (4, 2)}
    keys = jax.random.split(jax.random.key(0), 4)
    params = {n: jax.random.normal(k, shapes[n]) for n, k in zip(shapes, keys, strict=True)}
    symmetry = ob.discover(model, params, INPUTS)
    assert sorted(f.size for f in symmetry.factors) == [4, 5]
    (inner,) = (f.name for f in symmetry.factors if f.size == 5)
    for cost in ("activations", "correlation", "contributions", "preactivations"):
        with pytest.raises(ValueError, match=f"'{inner}' at work .*: use cost='weights'"):
            ob.align(symmetry, params, to=params, cost=cost, apply_fn=model, inputs=INPUTS)
