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


def test_complex_numbers_name_the_leaf():
    def model(params, x):
        return jnp.abs(x @ params["inner"]) @ params["outer"]

    params = {"inner": jnp.ones((3, 5)) * (1 + 2j), "outer": jnp.ones((5, 2))}
    symmetry = ob.discover(model, params, INPUTS)
    real, draws = jax.tree.map(jnp.abs, params), ob.Draws.stack([params] * 3)
    for call in (
        lambda: ob.align(symmetry, params, to=real),
        lambda: ob.align(symmetry, real, to=params),
        lambda: ob.align_many(symmetry, draws),
        lambda: ob.align_many(symmetry, ob.Draws.stack([real] * 3), reference=params),
        lambda: ob.canonicalize(symmetry, params),
        lambda: ob.canonicalize(symmetry, draws, scaling=None),
        lambda: ob.compact(symmetry, draws),
    ):
        with pytest.raises(TypeError, match=r"'inner' is complex.*expected real.*two leaves"):
            call()


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


def test_another_model_is_not_taken_for_stacked_draws(setting):
    symmetry, params = setting
    other = ob.nets.mlp(hidden=(6,), outputs=2).init(jax.random.key(0), INPUTS)
    with pytest.raises(ob.SymmetryError, match="not of the model") as caught:
        ob.align(symmetry, other, to=params)
    assert "vmap" not in str(caught.value)
    stacked = ob.Draws.stack([params] * 3).params
    with pytest.raises(ob.SymmetryError, match=r"3 stacked draws.*use align_many"):
        ob.align(symmetry, stacked, to=params)
    uneven = jax.tree.map(lambda x: x[:2] if x.ndim == 2 else x, stacked)
    with pytest.raises(ob.SymmetryError, match="one more axis in front of every parameter"):
        symmetry.act(symmetry.identity(), uneven)


def test_populations_are_for_align_many(setting):
    symmetry, params = setting
    draws, mixture = ob.Draws.stack([params] * 2), ob.Mixture([ob.Gaussian(params, 0.1)] * 2)
    for pair in ((draws, params), (params, draws)):
        with pytest.raises(TypeError, match=r"use align_many.*Draws.mean\(\) or one draw"):
            ob.align(symmetry, *pair)
    with pytest.raises(TypeError, match=r"use align_many.*one component"):
        ob.align(symmetry, mixture, to=params)


def test_an_alignment_is_not_its_parameters(setting):
    symmetry, params = setting
    found = ob.align(symmetry, params, to=params)

    def loss(params):
        return jnp.sum(params["Dense_0"]["bias"])

    key = jax.random.key(0)
    for call in (
        lambda: ob.align(symmetry, found, to=params),
        lambda: ob.align(symmetry, params, to=found),
        lambda: ob.align_many(symmetry, [found, found]),
        lambda: ob.barrier(loss, params, found),
        lambda: ob.interpolate(found, params, 0.5),
        lambda: ob.plane(loss, params, params, found),
        lambda: ob.bend(loss, params, found, key),
    ):
        with pytest.raises(TypeError, match=r"is an Alignment.*pass its \.params"):
            call()


def test_one_start_needs_no_list(setting):
    symmetry, params = setting
    other = jax.tree.map(lambda x: x[..., ::-1], params)
    one, listed = (ob.align(symmetry, other, to=params, starts=s) for s in ("forward", ["forward"]))
    assert one.cost == listed.cost
    assert one.solver == listed.solver


def test_lists_are_stacked_first(setting):
    symmetry, params = setting
    with pytest.raises(TypeError, match=r"list of 2 networks.*Draws\.stack"):
        ob.align_many(symmetry, [params, params])
    with pytest.raises(TypeError, match=r"list of 2 Gaussians.*Mixture"):
        ob.align_many(symmetry, [ob.Gaussian(params, 0.1)] * 2, cost="wasserstein")


def test_parameters_that_are_a_list_are_no_list_of_networks():
    def model(params, x):
        return jax.nn.relu(x @ params[0]) @ params[1]

    params = [jnp.ones((3, 5)), jnp.ones((5, 2))]
    symmetry = ob.discover(model, params, INPUTS)
    stacked = [jnp.stack([leaf, 2 * leaf]) for leaf in params]
    assert len(ob.align_many(symmetry, stacked).draws) == 2
    with pytest.raises(TypeError, match=r"Draws\.stack"):
        ob.align_many(symmetry, [params, params])


def test_the_symmetry_comes_first(setting):
    symmetry, params = setting
    with pytest.raises(TypeError, match=r"first argument is a dict.*onebasin\.discover"):
        ob.align(params, params, symmetry)
    with pytest.raises(TypeError, match=r"first argument is a Draws.*onebasin\.discover"):
        ob.align_many(ob.Draws.stack([params]), symmetry)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (jax.ShapeDtypeStruct((4, 3), jnp.float32), "shapes without values"),
        (INPUTS[:0], "hold no examples"),
        ({}, "hold no examples"),
    ],
)
def test_inputs_without_values(setting, inputs, message):
    symmetry, params = setting
    model = {"apply_fn": ob.nets.mlp(hidden=(5,), outputs=2).apply, "inputs": inputs}
    with pytest.raises(ValueError, match=message):
        ob.align(symmetry, params, to=params, cost="activations", **model)
    with pytest.raises(ValueError, match=message):
        ob.align(
            symmetry,
            params,
            to=params,
            search="thorough",
            loss_fn=lambda params: jnp.sum(params["Dense_0"]["bias"]),
            **model,
        )


def test_no_scaling_is_none_and_not_its_name(setting):
    symmetry, params = setting
    with pytest.raises(ValueError, match=r"min-mass, unit-norm, None; did you mean None\?"):
        ob.align(symmetry, params, to=params, scaling="none")
    with pytest.raises(ValueError, match=r"did you mean None\?"):
        ob.canonicalize(symmetry, params, scaling="none")


def test_factor_that_is_seen_inside_an_open_loop_only():
    """How often it runs is not known beforehand: what it does cannot be stacked."""

    def model(params, x):
        def step(state):
            hidden = jax.nn.gelu(x @ params["in"] + state[1] @ params["w"])
            return state[0] - 1, hidden @ params["back"]

        start = len(x), jnp.zeros((len(x), 4))
        return jax.lax.while_loop(lambda state: state[0] > 0, step, start)[1] @ params["out"]

    shapes = {"in": (3, 5), "w": (4, 5), "back": (5, 4), "out": (4, 2)}
    keys = jax.random.split(jax.random.key(0), 4)
    params = {n: jax.random.normal(k, shapes[n]) for n, k in zip(shapes, keys, strict=True)}
    symmetry = ob.discover(model, params, INPUTS)
    assert sorted(f.size for f in symmetry.factors) == [4, 5]
    (inner,) = (f.name for f in symmetry.factors if f.size == 5)
    for cost in ("activations", "correlation", "contributions", "preactivations"):
        with pytest.raises(ValueError, match=f"'{inner}' at work .*: use cost='weights'"):
            ob.align(symmetry, params, to=params, cost=cost, apply_fn=model, inputs=INPUTS)
