"""Aligning many draws: planted elements undone, the objective never rises."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.align import rows
from onebasin.align.state import State
from onebasin.engine import open_engine

INPUTS = jax.random.normal(jax.random.key(0), (40, 6))


@pytest.fixture(scope="module")
def population():
    net = ob.nets.mlp(hidden=(10, 8), outputs=3)
    params = net.init(jax.random.key(1), INPUTS)
    params = jax.tree.map(lambda p: p + 0.1, params)
    symmetry = ob.discover(net.apply, params, INPUTS)

    def draw(key):
        *noise, last = jax.random.split(key, 7)
        leaves, structure = jax.tree.flatten(params)
        near = [
            x + 0.05 * jax.random.normal(k, x.shape) for x, k in zip(leaves, noise, strict=True)
        ]
        return symmetry.act(symmetry.random(last), jax.tree.unflatten(structure, near))

    draws = ob.Draws(jax.vmap(draw)(jax.random.split(jax.random.key(2), 9)))
    return net, symmetry, params, draws


def outputs(net, draws):
    return np.asarray(jax.vmap(lambda p: net.apply(p, INPUTS))(draws.params))


def spread(draws):
    return float(sum(jnp.sum(x) for x in jax.tree.leaves(draws.std())))


def test_as_text_it_is_one_line(population):
    _, symmetry, _, draws = population
    found = ob.align_many(symmetry, draws)
    first, last = (f"{cost:.6g}" for cost in (found.history[0], found.history[-1]))
    assert repr(found) == (
        f"ManyAlignment({found.draws!r}, weights: {first} -> {last} in {len(found.moved)} rounds)"
    )
    assert "\n" not in repr(found)


@pytest.mark.parametrize("cost", ["weights", "contributions"])
@pytest.mark.parametrize("reference", ["mean", "first", "leave-one-out", "given"])
def test_scrambled_draws_come_together(population, reference, cost):
    net, symmetry, params, draws = population
    found = ob.align_many(
        symmetry,
        draws,
        reference=params if reference == "given" else reference,
        cost=cost,
        apply_fn=net.apply,
        inputs=INPUTS,
    )
    assert spread(found.draws) < 0.25 * spread(draws)
    np.testing.assert_allclose(outputs(net, draws), outputs(net, found.draws), atol=2e-5)
    assert all(b <= a * (1 + 1e-6) for a, b in zip(found.history, found.history[1:], strict=False))
    again = jax.vmap(symmetry.act)(found.elements, draws.params)
    for x, y in zip(jax.tree.leaves(again), jax.tree.leaves(found.draws.params), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    if reference == "given":
        assert found.reference is params


def test_objective_never_rises_on_unrelated_networks():
    net = ob.nets.mlp(hidden=(12, 12), outputs=3)
    keys = jax.random.split(jax.random.key(5), 8)
    draws = ob.Draws(jax.vmap(lambda k: net.init(k, INPUTS))(keys))
    symmetry = ob.discover(net.apply, draws[0], INPUTS)
    found = ob.align_many(symmetry, draws)
    assert len(found.history) > 1
    assert all(b <= a * (1 + 1e-6) for a, b in zip(found.history, found.history[1:], strict=False))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_one_hidden_layer(activation, monkeypatch):
    """Units are rows then: the mean follows the draws, and ends where no draw can come nearer."""
    net = ob.nets.mlp(hidden=(12,), outputs=3, activation=activation)
    keys = jax.random.split(jax.random.key(5), 11)
    draws = ob.Draws(jax.vmap(lambda k: net.init(k, INPUTS))(keys))
    symmetry = ob.discover(net.apply, draws[0], INPUTS)
    assert rows.are_rows(symmetry)
    found = ob.align_many(symmetry, draws, first=3)
    assert len(found.history) > 2
    assert found.moved[-1] == 0
    assert all(b <= a * (1 + 1e-9) for a, b in zip(found.history, found.history[1:], strict=False))
    np.testing.assert_allclose(outputs(net, draws), outputs(net, found.draws), atol=2e-5)
    leaves = jax.tree.leaves(found.draws.params)
    apart = sum(float(jnp.sum((x - x.mean(axis=0)) ** 2)) for x in leaves)
    assert apart == pytest.approx(found.history[-1], rel=1e-4)
    for i in range(3):
        again = ob.align(symmetry, found.draws[i], to=found.reference, scaling=None)
        assert again.cost == pytest.approx(again.cost_before, rel=1e-5)
    monkeypatch.setattr(rows, "KEPT_BYTES", 0)
    fresh = ob.align_many(symmetry, draws, first=3)
    assert fresh.history == pytest.approx(found.history)


@pytest.mark.parametrize("reference", ["mean", "first", "leave-one-out", "given"])
@pytest.mark.parametrize("cost", ["weights", "activations"])
def test_without_symmetry_nothing_moves(reference, cost):
    def model(params, x):
        return jnp.tanh(jnp.cumsum(x @ params["w"], axis=-1) + params["b"])

    params = {"w": jax.random.normal(jax.random.key(1), (4, 6, 3)), "b": jnp.ones((4, 3))}
    one = jax.tree.map(lambda x: x[0], params)
    symmetry = ob.discover(model, one, INPUTS)
    assert not symmetry.factors
    found = ob.align_many(
        symmetry,
        params,
        reference=one if reference == "given" else reference,
        cost=cost,
        apply_fn=model,
        inputs=INPUTS,
    )
    for x, y in zip(jax.tree.leaves(params), jax.tree.leaves(found.draws.params), strict=True):
        np.testing.assert_array_equal(x, y)
    if cost == "weights" and reference == "mean":
        apart = sum(float(jnp.sum((x - x.mean(axis=0)) ** 2)) for x in jax.tree.leaves(params))
        assert found.history[-1] == pytest.approx(apart, rel=1e-5)
    assert "4 draws" in str(found)
    parts = [ob.Gaussian(one, jax.tree.map(jnp.ones_like, one))] * 2
    found = ob.align_many(symmetry, ob.Mixture(parts, jnp.full(2, 0.5)), cost="wasserstein")
    assert found.history[-1] == pytest.approx(0, abs=1e-4)


def test_gaussians_come_together(population):
    _, symmetry, params, _ = population
    std = jax.tree.map(lambda x: 0.05 + 0.1 * jnp.abs(x), params)
    keys = jax.random.split(jax.random.key(3), 4)
    parts = [ob.push_forward(symmetry, symmetry.random(k), ob.Gaussian(params, std)) for k in keys]
    found = ob.align_many(symmetry, ob.Mixture(parts, jnp.full(4, 0.25)), cost="wasserstein")
    first = found.draws.components[0]
    for part in found.draws.components[1:]:
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(part), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)


def wide_and_narrow(seed, rank=0):
    """A Gaussian with one hidden layer whose units differ in spread more than in mean."""
    rng = np.random.default_rng(seed)
    shapes = {"inner": (3, 8), "outer": (8, 2)}
    mean = {k: 0.1 * rng.normal(size=shape).astype(np.float32) for k, shape in shapes.items()}
    std = {k: rng.uniform(0.05, 1, size=shape).astype(np.float32) for k, shape in shapes.items()}
    if not rank:
        return ob.Gaussian(mean, std)
    factor = {k: np.stack([s] * rank) for k, s in std.items()}
    return ob.Gaussian(mean, jax.tree.map(lambda s: jnp.full_like(s, 0.1), std), factor)


def one_layer(params, x):
    return jax.nn.relu(x @ params["inner"]) @ params["outer"]


@pytest.mark.parametrize("engine", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("reference", ["mean", "first", "given"])
@pytest.mark.parametrize("cost", ["wasserstein", "kl"])
def test_gaussians_meet_a_reference_with_its_own_spread(cost, reference, rank, engine, tmp_path):
    target = wide_and_narrow(0, rank)
    symmetry = ob.discover(one_layer, target.mean, jnp.ones((1, 3)))
    keys = jax.random.split(jax.random.key(6), 4)
    copies = [ob.push_forward(symmetry, symmetry.random(key), target) for key in keys]
    options = {"reference": target if reference == "given" else reference, "first": 2}
    with open_engine(directory=tmp_path) if engine else contextlib.nullcontext() as tasks:
        found = ob.align_many(symmetry, ob.Mixture(copies), cost=cost, engine=tasks, **options)
    assert abs(found.history[0]) < 1e-3
    assert isinstance(found.reference, ob.Gaussian)
    for one in found.draws.components:
        for x, y in zip(
            jax.tree.leaves(one.variance()),
            jax.tree.leaves(found.reference.variance()),
            strict=True,
        ):
            np.testing.assert_allclose(x, y, rtol=1e-3)


def test_draws_are_moved_to_a_gaussian_by_its_mean(population):
    _, symmetry, one, draws = population
    to_point, to_gaussian = (
        ob.align_many(symmetry, draws, reference=reference, scaling=None)
        for reference in (one, ob.Gaussian(one, 0.3))
    )
    assert to_point.history == to_gaussian.history


def test_a_point_is_no_reference_for_distributions():
    target = wide_and_narrow(0)
    symmetry = ob.discover(one_layer, target.mean, jnp.ones((1, 3)))
    with pytest.raises(ValueError, match="the reference is a point: pass a onebasin"):
        ob.align_many(symmetry, ob.Mixture([target]), reference=target.mean, cost="wasserstein")


def test_a_spread_that_is_no_number_is_refused():
    target = wide_and_narrow(0)
    symmetry = ob.discover(one_layer, target.mean, jnp.ones((1, 3)))
    bad = ob.Gaussian(target.mean, target.std | {"inner": jnp.full((3, 8), jnp.inf)})
    with pytest.raises(ValueError, match="spread of the draws holds 24 NaN"):
        ob.align_many(symmetry, ob.Mixture([target, bad]), cost="wasserstein")


def test_progress_sees_every_draw(population):
    _, symmetry, _, draws = population
    seen = []

    def progress(work, text, total):
        for done in work:
            seen.append((text, total))
            yield done

    ob.align_many(symmetry, draws, reference="first", progress=progress)
    assert seen == [("round 1", len(draws))] * len(draws)


def test_the_line_says_which_costs_it_shows():
    net = ob.nets.mlp(hidden=(5,), outputs=2)
    keys = jax.random.split(jax.random.key(0), 4)
    draws = ob.Draws(jax.vmap(lambda k: net.init(k, jnp.ones((1, 3))))(keys))
    symmetry = ob.discover(net.apply, draws[0], jnp.ones((1, 3)))
    one = ob.align_many(symmetry, draws, reference=draws[0])
    assert f"in one round: a sum of costs of {one.history[-1]:.6g} (" in str(one)
    more = ob.align_many(symmetry, draws)
    text = f"{more.history[0]:.6g} after the first, {more.history[-1]:.6g} at the end"
    assert len(more.moved) > 1
    assert text in str(more)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_compared_on_data(dtype):
    """The mean of the draws is in single precision, and the model takes half."""
    net = ob.nets.mlp(hidden=(10,), outputs=3)
    params = jax.tree.map(lambda p: (p + 0.1).astype(dtype), net.init(jax.random.key(1), INPUTS))
    symmetry = ob.discover(net.apply, params, INPUTS.astype(dtype))
    keys = jax.random.split(jax.random.key(2), 6)
    elements = jax.vmap(lambda k: symmetry.random(k, kinds=("permutation",)))(keys)
    stacked = symmetry.act_many(elements, jax.tree.map(lambda p: jnp.stack([p] * 6), params))
    found = ob.align_many(
        symmetry,
        ob.Draws(stacked),
        cost="contributions",
        apply_fn=net.apply,
        inputs=INPUTS.astype(dtype),
        scaling=None,
    )
    for leaf in jax.tree.leaves(found.draws.params):
        np.testing.assert_array_equal(leaf, jnp.broadcast_to(leaf[0], leaf.shape))


def test_at_least_one_round(population):
    _, symmetry, _, draws = population
    with pytest.raises(ValueError, match="max_rounds=0"):
        ob.align_many(symmetry, draws, max_rounds=0)


def with_a_tie(symmetry, params, count, noise):
    """Scrambled noisy copies of a network, two of whose units in the first layer are alike."""
    params = jax.tree.map(np.array, params)
    layer, following = params["Dense_0"], params["Dense_1"]["kernel"]
    for leaf in layer.values():
        leaf[..., 1] = leaf[..., 0]
    following[1] = following[0]

    def draw(key):
        *keys, last = jax.random.split(key, 7)
        leaves, structure = jax.tree.flatten(params)
        near = [
            x + noise * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)
        ]
        return symmetry.act(symmetry.random(last), jax.tree.unflatten(structure, near))

    return ob.Draws(jax.vmap(draw)(jax.random.split(jax.random.key(3), count)))


@pytest.mark.parametrize("cost", ["weights", "activations"])
@pytest.mark.parametrize("reference", ["mean", "given"])
def test_margins_say_which_units_of_which_draw_could_be_others(population, cost, reference):
    net, symmetry, params, _ = population
    draws = with_a_tie(symmetry, params, 7, 1e-3)
    found = ob.align_many(
        symmetry,
        draws,
        cost=cost,
        apply_fn=net.apply,
        inputs=INPUTS,
        reference=params if reference == "given" else reference,
    )
    margins = found.margins()
    tied, other = (f.name for f in symmetry.factors)
    assert all(array.shape == (7,) for array in margins.doubtful.values())
    if reference == "given":
        return
    np.testing.assert_allclose(margins.least[tied], 0, atol=0.02 * margins.median[tied].min())
    assert (margins.least[other] > 0.1 * margins.median[other]).all()
    for number in (0, 3):
        alone = ob.align(
            symmetry,
            found.draws[number],
            to=found.reference,
            cost=cost,
            apply_fn=net.apply,
            inputs=INPUTS,
            scaling=None,
            starts=State.identity(symmetry),
            max_sweeps=0,
        )
        for name, margin in alone.margin.items():
            assert margins.median[name][number] == pytest.approx(np.median(margin), rel=1e-3)
            assert margins.least[name][number] == pytest.approx(margin.min(), rel=1e-2, abs=1e-3)
    assert "units in doubt per draw" in str(margins)
    assert repr(margins) == "Margins(2 factors, 7 draws)"


def test_margins_of_gaussians_go_by_their_distance(population):
    _, symmetry, _, draws = population
    mixture = ob.Mixture([ob.Gaussian(p, 0.1) for p in draws[:4]])
    found = ob.align_many(symmetry, mixture, cost="wasserstein")
    margins = found.margins()
    assert all((least > 0).all() for least in margins.least.values())
    own = ob.align(
        symmetry, found.draws.components[2], to=found.reference, cost="wasserstein", scaling=None
    )
    for name, margin in own.margin.items():
        assert margins.least[name][2] == pytest.approx(margin.min(), rel=1e-3)
