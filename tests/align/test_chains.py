"""Draws whose factors depend on others, matched all at once: the same end as draw by draw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.align.chains import Chains, _add_up, are_chains
from onebasin.align.population import Population
from onebasin.align.visits import Visits


def optunet():
    net = ob.nets.optunet()
    images = jax.random.normal(jax.random.key(0), (2, 28, 28, 1))
    return net.apply, net.init(jax.random.key(1), images), images


def groups(inner):
    """Groups of units, each unit fed by its group alone."""

    def apply(params, x):
        group = jax.nn.relu(x @ params["group"])
        units = inner(group[..., None] * params["unit"] + params["shift"])
        return jnp.einsum("bgn,gno->bo", units, params["out"])

    shapes = {"group": (5, 3), "unit": (3, 4), "shift": (3, 4), "out": (3, 4, 2)}
    keys = jax.random.split(jax.random.key(2), len(shapes))
    params = {
        name: jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return apply, params, jax.random.normal(jax.random.key(3), (6, 5))


MODELS = {
    "optunet": optunet,
    "groups with scales": lambda: groups(jax.nn.relu),
    "groups with signs": lambda: groups(jnp.tanh),
}


@pytest.fixture(scope="module", params=MODELS)
def population(request):
    """Draws far from one another, so that many rounds are needed."""
    apply, params, inputs = MODELS[request.param]()
    symmetry = ob.discover(apply, params, inputs)

    def draw(key):
        *keys, last = jax.random.split(key, len(jax.tree.leaves(params)) + 1)
        leaves, structure = jax.tree.flatten(params)
        near = [
            x + 0.7 * jnp.std(x) * jax.random.normal(k, x.shape)
            for x, k in zip(leaves, keys, strict=True)
        ]
        return symmetry.act(symmetry.random(last), jax.tree.unflatten(structure, near))

    draws = jax.vmap(draw)(jax.random.split(jax.random.key(4), 12))
    return apply, symmetry, draws, inputs


def rounds_of(way, population, count):
    way.aim(population.draw(0))
    states, costs = population.identity(), []
    for number in range(count):
        states, cost = way.round(states, number, None)
        costs.append(cost)
    return states, costs


def test_all_at_once_is_draw_by_draw(population):
    _, symmetry, draws, _ = population
    assert are_chains(symmetry)
    assert any(symmetry.parents[f.name] for f in symmetry.factors)
    own = Population.of(symmetry, draws, "weights", None, None, "min-mass", 100)
    at_once, costs = rounds_of(Chains(symmetry, own.means, "scipy"), own, 4)
    one_by_one, expected = rounds_of(Visits(own, "scipy", 0, leave_out=False), own, 4)
    assert costs[-1] < 0.9 * costs[0]
    np.testing.assert_allclose(costs, expected, rtol=1e-5)
    assert at_once.differences(own.identity()) > 6
    assert at_once.differences(one_by_one) == 0


def test_few_at_a_time_is_all_at_once(population):
    _, symmetry, draws, _ = population
    own = Population.of(symmetry, draws, "weights", None, None, "min-mass", 100)
    whole, costs = rounds_of(Chains(symmetry, own.means, "scipy"), own, 3)
    few = Chains(symmetry, own.means, "scipy", at_once=1000)
    seen = []

    def progress(work, text, total):
        seen.append((text, total))
        return work

    few.aim(own.draw(0))
    states = own.identity()
    for number in range(3):
        states, cost = few.round(states, number, progress)
    assert seen[0][0] == "round 1"
    assert 1 < seen[0][1] <= 12
    assert states.differences(whole) == 0
    assert cost == pytest.approx(costs[-1], rel=1e-6)


def test_the_function_stays_and_the_mean_is_the_reference(population):
    apply, symmetry, draws, inputs = population
    found = ob.align_many(symmetry, draws)
    assert all(b <= a * (1 + 1e-6) for a, b in zip(found.history, found.history[1:], strict=False))
    before, after = (jax.vmap(apply, (0, None))(p, inputs) for p in (draws, found.draws.params))
    np.testing.assert_allclose(before, after, atol=1e-4 * float(jnp.abs(before).max()))
    for x, y in zip(
        jax.tree.leaves(found.reference), jax.tree.leaves(found.draws.params), strict=True
    ):
        np.testing.assert_allclose(x, y.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("kind", ["given", "first"])
def test_planted_elements_are_undone_at_a_fixed_reference(population, kind):
    _, symmetry, draws, _ = population
    one = jax.tree.map(lambda x: x[0], draws)
    keys = jax.random.split(jax.random.key(5), 7)
    copies = jax.vmap(lambda k: symmetry.act(symmetry.random(k), one))(keys)
    reference = one if kind == "given" else "first"
    found = ob.align_many(symmetry, copies, reference=reference)
    assert len(found.history) == 1
    assert 0 <= found.history[0] < 1e-5 * sum(float(jnp.sum(x**2)) for x in jax.tree.leaves(copies))


def test_two_factors_in_one_block_are_no_chain():
    net = ob.nets.mlp(hidden=(6, 5), outputs=2)
    inputs = jnp.ones((1, 3))
    params = net.init(jax.random.key(0), inputs)
    assert not are_chains(ob.discover(net.apply, params, inputs))


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 5), ()])
def test_a_sum_of_draws_does_not_depend_on_how_they_are_parted(shape):
    stacked = np.random.default_rng(0).lognormal(sigma=5, size=(301, *shape)).astype(np.float32)
    expected = np.zeros(shape)
    for one in stacked:
        expected += one
    for size in (1, 7, 64, 65, 301):
        total = np.zeros(shape)
        for at in range(0, len(stacked), size):
            _add_up(total, stacked[at : at + size])
        np.testing.assert_array_equal(total, expected)
