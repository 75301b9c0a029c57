"""What is kept between visits is what would be computed anew, and a race ends for those behind."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.align.assignment import Assignment
from onebasin.align.channels import GAUSSIAN_COSTS, weights
from onebasin.align.descent import Rival, descend, forward
from onebasin.align.match import objective_for
from onebasin.align.pairing import Pairing
from onebasin.align.search import search
from onebasin.align.state import State
from onebasin.align.terms import inner_product

INPUTS = jnp.ones((2, 7))


def mlp(*hidden, activation="relu"):
    net = ob.nets.mlp(hidden=hidden, outputs=3, activation=activation)
    pair = [jax.tree.map(np.array, net.init(jax.random.key(seed), INPUTS)) for seed in (0, 1)]
    for number, params in enumerate(pair):
        for layer in params.values():
            rng = np.random.default_rng(number)
            layer["bias"] += rng.normal(size=layer["bias"].shape).astype(np.float32)
    return ob.discover(net.apply, pair[0], INPUTS), *pair


def pairing_of(symmetry, reference, moving):
    leaves = [jax.tree.leaves(tree) for tree in (reference, moving)]
    return Pairing(symmetry, weights(*leaves).channels)


def moved_a_little(state, rng, share):
    """The state with a share of the units of every factor in another order, or flipped."""
    state = state.copy()
    for name, order in state.permutations.items():
        units = np.flatnonzero(rng.random(len(order)) < share)
        order[units] = order[rng.permutation(units)]
        if name in state.signs:
            state.signs[name][units] = rng.choice([-1, 1], size=state.signs[name][units].shape)
    return state


def agree(found, expected):
    assert found.keys() == expected.keys()
    for signature, gain in found.items():
        np.testing.assert_allclose(gain, expected[signature], atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_kept_gains_are_those_of_a_new_pairing(activation, share):
    symmetry, reference, moving = mlp(20, 24, activation=activation)
    kept = pairing_of(symmetry, reference, moving)
    rng = np.random.default_rng(0)
    state = State.identity(symmetry)
    for _ in range(6):
        state = moved_a_little(state, rng, share)
        for name in kept.factors():
            new = pairing_of(symmetry, reference, moving)
            agree(kept.gains(name, state), new.gains(name, state))
            some = kept.partial_gains(name, state, set())
            agree(some, new.partial_gains(name, state, set()))


@pytest.mark.parametrize(
    "kinds", [("f4", "f4", "f8", "f8"), ("f8", "f8", "f4", "f4"), ("f2", "f4", "f2", "f4")]
)
def test_memory_is_not_shared_between_precisions(kinds):
    """Two kernels of one shape: what is kept of one has no room for the other."""
    symmetry, *pair = mlp(20, 20, 20)
    for params in pair:
        for layer, kind in zip(params.values(), kinds, strict=True):
            layer |= {name: value.astype(kind) for name, value in layer.items()}
    wide = [jax.tree.map(lambda x: x.astype("f8"), params) for params in pair]
    kept, exact = pairing_of(symmetry, *pair), pairing_of(symmetry, *wide)
    rng = np.random.default_rng(5)
    state = State.identity(symmetry)
    for share in (1.0, 1.0, 0.2):
        state = moved_a_little(state, rng, share)
        for name in kept.factors():
            (gain,), (expected,) = (p.gains(name, state).values() for p in (kept, exact))
            coarse = 0.02 if "f2" in kinds else 1e-5
            np.testing.assert_allclose(gain, expected, atol=coarse)
            if kinds[0] == "f8" and name == kept.factors()[0]:
                assert gain.dtype == np.float64
                np.testing.assert_allclose(gain, expected, atol=1e-12)


def test_nothing_exceeds_the_limit_and_a_copy_reaches_it():
    symmetry, reference, moving = mlp(9, 8, activation="tanh")
    pairing = pairing_of(symmetry, reference, moving)
    assert search(pairing, Assignment()).best.objective < pairing.limit()
    copy = symmetry.act(symmetry.random(jax.random.key(0), kinds=("permutation", "sign")), moving)
    own = pairing_of(symmetry, moving, jax.tree.map(np.asarray, copy))
    assert search(own, Assignment()).best.objective == pytest.approx(own.limit(), rel=1e-6)


@pytest.mark.parametrize("cost", sorted(GAUSSIAN_COSTS))
def test_a_copy_of_a_gaussian_has_nothing_to_gain(cost):
    """A bound that a copy stays below would have it shuffled for nothing."""
    symmetry, reference, moving = mlp(9, 8, activation="tanh")

    def pairing(mean, other, element):
        pair = [ob.Gaussian(m, jax.tree.map(lambda x: 0.1 + abs(x), m)) for m in (mean, other)]
        pair[1] = ob.push_forward(symmetry, element, pair[1])
        found = objective_for(symmetry, pair[1], pair[0], cost, None, None, 0)
        return found[0]

    element = symmetry.random(jax.random.key(0), kinds=("permutation", "sign"))
    own, apart = pairing(moving, moving, element), pairing(reference, moving, element)
    assert search(apart, Assignment()).best.objective < 0.99 * apart.limit()
    assert search(own, Assignment(), kicks=0).best.objective == pytest.approx(own.limit(), rel=1e-6)


@pytest.mark.parametrize(("activation", "hidden"), [("tanh", (12, 12, 12)), ("relu", (8,) * 5)])
def test_narrow_networks_are_matched_no_worse_than_by_restarts(activation, hidden):
    """There the start decides, and signs make no difference to that."""
    net = ob.nets.mlp(hidden=hidden, outputs=3, activation=activation)
    symmetry = ob.discover(net.apply, net.init(jax.random.key(0), INPUTS), INPUTS)
    solve = Assignment(threads=1)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        pair = [
            [x + 0.1 * rng.normal(size=x.shape).astype(np.float32) for x in jax.tree.leaves(params)]
            for params in (net.init(jax.random.key(2 * seed + k), INPUTS) for k in (0, 1))
        ]
        pairing = Pairing(symmetry, weights(*map(jax.device_get, pair)).channels)
        starts = (State.random(symmetry, rng) for _ in range(12))
        best = max(descend(pairing, start, solve, rng).objective for start in starts)
        assert search(pairing, solve).best.objective >= best - 1e-3 * abs(best)


@pytest.mark.parametrize("hidden", [(5, 6), (300, 280)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_objective_is_the_product_with_the_moved_network(hidden, activation):
    symmetry, reference, moving = mlp(*hidden, activation=activation)
    pairing = pairing_of(symmetry, reference, moving)
    state = moved_a_little(State.identity(symmetry), np.random.default_rng(1), 1.0)
    moved = symmetry.act(state.element(symmetry), moving)
    pairs = zip(jax.tree.leaves(reference), jax.tree.leaves(moved), strict=True)
    expected = sum(float(np.sum(np.float64(a) * np.float64(b))) for a, b in pairs)
    assert pairing.objective(state) == pytest.approx(expected, rel=1e-12)
    assert pairing.part(set(pairing.factors()), state) + pairing.fixed == pytest.approx(expected)
    assert pairing.part(set(), state) == 0


def test_the_part_of_the_first_layer_is_its_own_weights():
    symmetry, reference, moving = mlp(5, 6)
    pairing = pairing_of(symmetry, reference, moving)
    first = pairing.factors()[0]
    own = (reference["Dense_0"], moving["Dense_0"])
    expected = sum(np.vdot(own[0][name], own[1][name]) for name in own[0])
    assert pairing.part({first}, State.identity(symmetry)) == pytest.approx(expected, rel=1e-5)


def test_inner_products_are_in_double_precision():
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=(3, 50_001)).astype(np.float32) for _ in range(2))
    expected = math.fsum((a.astype(np.float64) * b.astype(np.float64)).ravel())
    assert inner_product(a, b) == pytest.approx(expected, rel=1e-12)
    assert inner_product(a.T, b.T) == pytest.approx(expected, rel=1e-12)


def test_a_start_that_fell_behind_is_given_up_and_a_good_one_is_not():
    symmetry, reference, moving = mlp(40, 40, 40)
    pairing = pairing_of(symmetry, reference, moving)
    solve = Assignment(threads=1)
    state, settled = forward(pairing, solve)
    assert settled == {pairing.factors()[-1]}
    rng = np.random.default_rng(3)
    lead = descend(pairing, state, solve, rng, settled=settled)
    rival = Rival(lead.state, lead.objective, lead.objective)
    identity = State.identity(symmetry)
    behind = descend(pairing, identity, solve, rng, rival=rival)
    assert behind.objective == -math.inf
    assert behind.visits < len(pairing.factors())
    again = descend(pairing, lead.state, solve, rng, rival=Rival(lead.state, lead.objective, 0.0))
    assert again.objective == pytest.approx(lead.objective)


def test_a_network_near_the_reference_stays_where_it_is():
    """There the identity has to hold out against the forward start."""
    symmetry, reference, _ = mlp(40, 40, 40)
    rng = np.random.default_rng(4)
    near = jax.tree.map(
        lambda x: x + np.float32(0.4) * x.std() * rng.normal(size=x.shape).astype(np.float32),
        reference,
    )
    pairing = pairing_of(symmetry, reference, near)
    found = search(pairing, Assignment(threads=1), kicks=0).best
    np.testing.assert_array_equal(found.state.permutations[pairing.factors()[1]], np.arange(40))
    assert found.objective >= pairing.objective(State.identity(symmetry))


def test_forward_leaves_out_the_visit_that_it_has_made():
    symmetry, reference, moving = mlp(30, 30)
    pairing = pairing_of(symmetry, reference, moving)
    solve = Assignment(threads=1)
    state, (last,) = forward(pairing, solve)
    columns = solve(next(iter(pairing.gains(last, state).values())))
    np.testing.assert_array_equal(columns, state.permutations[last])
