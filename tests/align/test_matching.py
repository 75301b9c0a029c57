"""Aligning one network to another: planted elements, certificates, the function left alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.align import align, align_many
from onebasin.align.assignment import Assignment, available_solvers
from onebasin.align.channels import weights
from onebasin.align.descent import descend
from onebasin.align.pairing import Pairing
from onebasin.align.search import search
from onebasin.align.state import State
from onebasin.posterior import Gaussian, Mixture

INPUTS = jax.random.normal(jax.random.key(0), (64, 6))
NETS = {
    "mlp-relu": lambda: (ob.nets.mlp(hidden=(7, 5), outputs=3), INPUTS),
    "mlp-tanh": lambda: (ob.nets.mlp(hidden=(7, 5), outputs=3, activation="tanh"), INPUTS),
    "cnn": lambda: (ob.nets.cnn(channels=(3, 4), dense=5, outputs=3), _images(8, 1)),
}


def _images(side, channels):
    return jax.random.normal(jax.random.key(1), (24, side, side, channels))


def generic(params, seed=3):
    """No two units alike, no bias at zero."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    moved = [
        leaf + 0.3 * (jnp.std(leaf) + 0.1) * jax.random.normal(k, leaf.shape)
        for leaf, k in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, moved)


@pytest.fixture(scope="module", params=NETS)
def model(request):
    net, inputs = NETS[request.param]()
    params = generic(net.init(jax.random.key(2), inputs))
    return request.param, net, ob.discover(net.apply, params, inputs), params, inputs


def distance(a, b):
    """Largest difference relative to the largest entry, over all leaves."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(x))) for x, y in pairs)


def test_function_is_left_alone_in_double(float64):
    net = ob.nets.mlp(hidden=(9, 6), outputs=4)
    x = jax.random.normal(jax.random.key(0), (20, 5), jnp.float64)
    pair = [
        jax.tree.map(lambda p: p.astype(jnp.float64), generic(net.init(jax.random.key(s), x), s))
        for s in (0, 1)
    ]
    symmetry = ob.discover(net.apply, pair[0], x)
    for scaling in ("min-mass", "unit-norm", None):
        found = ob.align(symmetry, pair[1], to=pair[0], scaling=scaling)
        before, after = net.apply(pair[1], x), net.apply(found.params, x)
        assert float(jnp.max(jnp.abs(before - after)) / jnp.max(jnp.abs(before))) < 1e-10
        again = symmetry.act(found.element, pair[1])
        assert distance(again, found.params) < 1e-12


@pytest.fixture(scope="module")
def pair():
    net = ob.nets.mlp(hidden=(24, 20), outputs=4)
    trees = [generic(net.init(jax.random.key(s), INPUTS), s) for s in (0, 1)]
    symmetry = ob.discover(net.apply, trees[0], INPUTS)
    leaves = [[np.asarray(x) for x in jax.tree.leaves(t)] for t in trees]
    return symmetry, trees, Pairing(symmetry, weights(leaves[0], leaves[1]).channels), leaves


def test_gains_are_the_change_of_the_objective(pair):
    symmetry, _, pairing, _ = pair
    rng = np.random.default_rng(0)
    for _ in range(3):
        state = State.random(symmetry, rng)
        for name in pairing.factors():
            (gain,) = pairing.gains(name, state).values()
            held = np.take_along_axis(gain, state.permutations[name][:, None], axis=1).sum()
            other = state.copy()
            other.permutations[name] = rng.permutation(len(gain))
            moved = np.take_along_axis(gain, other.permutations[name][:, None], axis=1).sum()
            change = pairing.objective(other) - pairing.objective(state)
            assert change == pytest.approx(moved - held, abs=1e-3)


def test_kept_products_equal_fresh_ones(pair):
    symmetry, _, pairing, leaves = pair
    rng = np.random.default_rng(1)
    state = State.identity(symmetry)
    for _ in range(6):
        for name in pairing.factors():
            swap = rng.choice(symmetry.sizes[name], 2, replace=False)
            state.permutations[name][swap] = state.permutations[name][swap[::-1]]
            fresh = Pairing(symmetry, weights(leaves[0], leaves[1]).channels)
            for other in pairing.factors():
                np.testing.assert_allclose(
                    pairing.gains(other, state)[frozenset()],
                    fresh.gains(other, state)[frozenset()],
                    atol=1e-4,
                )


def test_no_worse_than_the_best_of_many_restarts(pair):
    symmetry, _, pairing, _ = pair
    solve = Assignment()
    rng = np.random.default_rng(0)
    best = max(
        descend(pairing, State.random(symmetry, rng), solve, rng).objective for _ in range(12)
    )
    found = search(pairing, solve, seed=5)
    assert found.best.objective >= best - 1e-3 * abs(best)


def test_solvers_agree(pair):
    gain = np.random.default_rng(0).standard_normal((3, 17, 17)).astype(np.float32)
    found = {name: Assignment(name)(gain) for name in available_solvers()}
    for columns in found.values():
        np.testing.assert_array_equal(columns, found["scipy"])


def test_the_assignment_solver_is_the_one_asked_for(pair):
    symmetry, trees, _, _ = pair
    every = {
        name: ob.align(symmetry, trees[1], to=trees[0], scaling=None, assignment=name)
        for name in available_solvers()
    }
    for name, found in every.items():
        assert found.solver.endswith(f", {name}")
        assert found.cost == pytest.approx(every["scipy"].cost, rel=1e-5)
    with pytest.raises(ValueError, match="no assignment solver 'munkres' here; there are: "):
        ob.align(symmetry, trees[1], to=trees[0], assignment="munkres")


def test_certificate_tells_what_happened(pair):
    symmetry, trees, _, _ = pair
    found = ob.align(symmetry, trees[1], to=trees[0], scaling=None)
    assert found.cost < found.cost_before
    assert found.bound is not None
    assert found.bound <= found.cost
    difference = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), found.params, trees[0])
    assert sum(map(float, jax.tree.leaves(difference))) == pytest.approx(found.cost, rel=1e-4)
    for name, margin in found.margin.items():
        assert margin.shape == found.element.permutations[name].shape
    assert found.num_transpositions == sum(
        ob.transpositions(p) for p in found.element.permutations.values()
    )
    text = str(found)
    assert all(name in text for name in found.transpositions)


def test_a_network_aligned_to_itself_is_sure_of_it(model):
    _, _, symmetry, params, _ = model
    found = ob.align(symmetry, params, to=params)
    assert found.cost == pytest.approx(0, abs=1e-2)
    assert found.num_transpositions == 0
    assert all(np.all(margin > 0) for margin in found.margin.values())


def test_margin_shows_units_in_doubt():
    net = ob.nets.mlp(hidden=(4,), outputs=2)
    params = generic(net.init(jax.random.key(0), INPUTS))
    kernel = params["Dense_0"]["kernel"].at[:, 1].set(params["Dense_0"]["kernel"][:, 0])
    params = {
        "Dense_0": {
            "kernel": kernel,
            "bias": params["Dense_0"]["bias"].at[1].set(0.5).at[0].set(0.5),
        },
        "Dense_1": {
            "kernel": params["Dense_1"]["kernel"].at[1].set(params["Dense_1"]["kernel"][0]),
            "bias": params["Dense_1"]["bias"],
        },
    }
    symmetry = ob.discover(net.apply, params, INPUTS)
    margin = ob.align(symmetry, params, to=params).margin["Dense_0"]
    assert abs(margin[0]) < 1e-4
    assert abs(margin[1]) < 1e-4
    assert margin[2] > 1e-3
    assert margin[3] > 1e-3


def test_a_certificate_is_never_below_zero() -> None:
    def model(params, x):
        return jax.nn.relu(x @ params["w"]) @ params["v"]

    w, v = (jax.random.normal(jax.random.key(n), s) for n, s in enumerate([(4, 6), (6, 3)]))
    symmetry = ob.discover(model, {"w": w, "v": v}, jnp.ones((2, 4)))
    for seed in range(5):
        moved = symmetry.act(symmetry.random(jax.random.key(seed)), {"w": w, "v": v})
        found = ob.align(symmetry, moved, to={"w": w, "v": v})
        assert 0 <= found.cost < 1e-5
        assert found.bound is None or found.bound <= found.cost


def test_random_keys_among_the_parameters_are_left_alone() -> None:
    def model(params, x):
        return jax.nn.relu(x @ params["w"]) @ params["v"]

    w, v = (jax.random.normal(jax.random.key(n), s) for n, s in enumerate([(4, 6), (6, 3)]))
    params = {"w": w, "v": v, "key": jax.random.key(3)}
    symmetry = ob.discover(model, params, jnp.ones((2, 4)))
    moved = symmetry.act(symmetry.random(jax.random.key(0)), params)
    found = ob.align(symmetry, moved, to=params)
    np.testing.assert_allclose(found.params["w"], w, atol=1e-4)
    assert found.params["key"] == params["key"]


def test_inputs_with_nan_are_refused_by_name() -> None:
    def model(params, x):
        return jax.nn.relu(x @ params["w"]) @ params["v"]

    params = {"w": jnp.ones((4, 6)), "v": jnp.ones((6, 3))}
    symmetry = ob.discover(model, params, jnp.ones((2, 4)))
    bad = jnp.ones((5, 4)).at[2, 1].set(jnp.nan)
    with pytest.raises(ValueError, match="the inputs hold NaN"):
        ob.align(symmetry, params, to=params, cost="activations", apply_fn=model, inputs=bad)


def silent_unit(seed: int) -> Gaussian:
    """A posterior whose last hidden unit is the prior, but for noise in its mean."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(100)
    mean = {"inner": fixed.normal(size=(3, 4)), "outer": fixed.normal(size=(4, 2))}
    mean["inner"][:, -1] = 1e-3 * rng.normal(size=3)
    mean["outer"][-1] = 1e-3 * rng.normal(size=2)
    return Gaussian(jax.tree.map(jnp.asarray, mean), 0.1)


@pytest.mark.parametrize("many", [False, True])
def test_units_without_signal_keep_their_spread(many: bool) -> None:
    # By the mean alone such a unit has no scale of its own, and would be given a random one.
    def model(params, x):
        return jax.nn.relu(x @ params["inner"]) @ params["outer"]

    first, second = silent_unit(0), silent_unit(1)
    symmetry = ob.discover(model, first.mean, jnp.ones((1, 3)))
    if many:
        moved = align_many(symmetry, Mixture([first, second]), cost="wasserstein").draws
        stds = [q.std for q in moved.components]
        for one, other in zip(*map(jax.tree.leaves, stds), strict=True):
            np.testing.assert_allclose(one, other, rtol=0.01)
        return
    moved = align(symmetry, second, to=first, cost="wasserstein").params
    for leaf in jax.tree.leaves(moved.std):
        np.testing.assert_allclose(leaf, 0.1, rtol=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "geodesik"}, "did you mean 'geodesic'"),
        ({"restarts": -1}, "restarts=-1"),
    ],
)
def test_arguments_that_are_wrong_are_refused(options, message):
    first = silent_unit(0).mean
    symmetry = ob.discover(
        lambda p, x: jax.nn.relu(x @ p["inner"]) @ p["outer"], first, jnp.ones((1, 3))
    )
    with pytest.raises(ValueError, match=message):
        align(symmetry, first, to=first, **options)
