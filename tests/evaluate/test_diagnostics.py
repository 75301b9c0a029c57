from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.sampling_diagnostics import ess, rhat

import onebasin as ob


def test_rhat_across_chains_before_and_after(scrambled: Any) -> None:
    found = ob.rhat(scrambled.draws, symmetry=scrambled.symmetry)
    assert found.before is not None
    assert found.before.median > 1.5
    assert found.median < 1.05
    assert set(found.values) == {f"Dense_{i}/{n}" for i in (0, 1) for n in ("kernel", "bias")}
    assert "before: median" in str(found)
    assert f"{found.before.median:.4g} before alignment" in repr(found)
    inputs = jax.random.normal(jax.random.key(0), (20, 4))
    assert found.alignment is not None
    both = [
        ob.predict(scrambled.net.apply, d, inputs) for d in (scrambled.draws, found.alignment.draws)
    ]
    np.testing.assert_allclose(both[0], both[1], atol=1e-5)
    functional = ob.functional_rhat(both[0], scrambled.draws.mode, num_values=30)
    assert functional.median < 1.05
    size = ob.ess(scrambled.draws, symmetry=scrambled.symmetry, num_weights=10)
    assert size.before is not None
    assert size.before.median < 20 < 80 < size.median


def test_numbers_are_those_of_arviz(scrambled: Any) -> None:
    draws = scrambled.draws
    tree = ob.store.to_datatree(draws)
    for ours, theirs in ((ob.rhat, rhat), (ob.ess, ess)):
        found = ours(draws, num_weights=None)
        expected = theirs(tree)
        for path, values in found.values.items():
            np.testing.assert_allclose(
                values, expected[path.replace("/", ".")].values.ravel(), 1e-6
            )
    subset = ob.rhat(draws, num_weights=5)
    every = ob.rhat(draws, num_weights=None)
    at = subset.weights["Dense_0/kernel"]
    np.testing.assert_allclose(
        subset.values["Dense_0/kernel"], every.values["Dense_0/kernel"][at], 1e-6
    )


def test_weights_that_do_not_change_are_left_out() -> None:
    weights = np.random.default_rng(0).standard_normal((40, 3))
    weights[:, 1] = 2.0
    found = ob.rhat(ob.Draws({"w": weights}, mode=np.arange(40) % 2))
    assert np.isnan(found.values["w"]).tolist() == [False, True, False]
    assert np.isfinite(found.median)
    assert np.isfinite(found.extreme)


def test_index_of_the_largest_weight(scrambled: Any) -> None:
    symmetry, draws = scrambled.symmetry, scrambled.draws
    # Four chains that stay in their basins: the index is the same throughout a chain.
    [(name, p)] = ob.index_test(symmetry, draws).p_value.items()
    assert p < 1e-6
    kernel = np.asarray(draws.params["Dense_0"]["kernel"])
    expected = np.bincount(kernel.max(axis=1).argmax(axis=1), minlength=6)
    np.testing.assert_array_equal(ob.index_test(symmetry, draws).counts[name], expected)
    # A label of its own for every draw, and few draws: uniform, and by simulation.
    elements = jax.vmap(symmetry.random)(jax.random.split(jax.random.key(9), 160))
    mixed = symmetry.act_many(elements, draws.params)
    many = ob.index_test(symmetry, mixed)
    few = ob.index_test(symmetry, jax.tree.map(lambda x: x[:20], mixed))
    assert many.p_value[name] > 0.01
    assert few.p_value[name] > 0.01
    assert "chi-square" in str(many)


def test_order_along_training(scrambled: Any) -> None:
    symmetry, mean = scrambled.symmetry, scrambled.posterior.mean
    largest = np.asarray(mean["Dense_0"]["kernel"]).max(axis=0)
    order = np.argsort(-largest)
    identity = symmetry.identity()
    [name] = identity.permutations
    swap = np.arange(6)
    swap[order[[2, 3]]] = order[[3, 2]]
    swapped = symmetry.act(identity._replace(permutations={name: jnp.asarray(swap)}), mean)
    found = ob.order_tau(symmetry, ob.Draws.stack([mean, mean, swapped]))
    # One neighbouring pair of fifteen is turned round: tau = 1 - 2 / 15.
    np.testing.assert_allclose(found[name], [1, 1 - 2 / 15])


def test_transpositions_along_a_path(scrambled: Any) -> None:
    symmetry, mean = scrambled.symmetry, scrambled.posterior.mean
    identity = symmetry.identity()
    [name] = identity.permutations
    turned = identity._replace(permutations={name: jnp.array([1, 2, 0, 4, 3, 5])})
    other = symmetry.act(turned, mean)
    found = ob.path_transpositions(symmetry, mean, other, points=5)
    assert found.total[0] == 0
    assert found.total[-1] == 3
    assert (np.diff(found.total) >= 0).all()
    np.testing.assert_array_equal(found.by_factor[name], found.total)
    assert str(found).splitlines()[-1].split() == ["1.00", "3", "3"]


def draws(count: int = 12, chains: int = 2) -> ob.Draws:
    weights = np.random.default_rng(0).standard_normal((count, 3))
    return ob.Draws({"w": weights}, mode=np.arange(count) % chains)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda _: ob.rhat(draws(chains=1)), "expected at least 2 chains"),
        (lambda _: ob.rhat(draws(13)), "mode 0 has 7, mode 1 has 6"),
        (lambda _: ob.ess(draws(6)), "3 draws each, expected at least 4"),
        (lambda _: ob.rhat(ob.Draws({"w": np.full((8, 2), np.nan)}, np.arange(8) % 2)), "'w'"),
        (lambda _: ob.rhat(draws(), num_weights=0), "at least one"),
        (lambda s: ob.rhat(draws(), symmetry=s.symmetry), "not of the model|missing|leaf|leaves"),
        (lambda s: ob.index_test(s.symmetry, s.posterior.mean), "expected stacked draws"),
        (lambda s: ob.order_tau(s.symmetry, s.draws[:1]), "expected at least two"),
        (
            lambda s: ob.path_transpositions(s.symmetry, s.draws[0], s.draws[1], points=1),
            "the two ends",
        ),
    ],
)
def test_bad_input_is_said(scrambled: Any, call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        call(scrambled)
    assert "\n" not in str(error.value)


def test_wrong_types_are_said() -> None:
    with pytest.raises(TypeError, match="expected Draws"):
        ob.rhat({"w": np.zeros((8, 2))})
    with pytest.raises(TypeError, match="cost without symmetry="):
        ob.rhat(draws(), cost="weights")


def test_sizes_at_quantiles() -> None:
    chains = jax.random.normal(jax.random.key(0), (4, 300, 2))
    found = ob.Draws({"w": chains.reshape(-1, 2)}, mode=jnp.repeat(jnp.arange(4), 300))
    for options in (
        {"method": "tail"},
        {"method": "quantile", "prob": 0.9},
        {"method": "local", "prob": (0.1, 0.4)},
    ):
        assert 600 < ob.ess(found, **options).median < 1800
    with pytest.raises(ValueError, match=r"prob=0\.9"):
        ob.ess(found, method="quantile")


def test_chains_that_never_move_are_infinitely_far_apart() -> None:
    weights = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    mode = np.repeat(np.arange(4), 10)
    weights[:, 1] = mode
    weights[:, 2] = 0.1
    found = ob.rhat(ob.Draws({"w": weights}, mode=mode)).values["w"]
    assert np.isfinite(found[0])
    assert np.isposinf(found[1])
    assert np.isnan(found[2])


def slow(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Four chains of 200 draws of standard normal weights that remember 97 % of the last draw."""
    chains = np.empty((4, 200, *shape))
    chains[:, 0] = rng.standard_normal((4, *shape))
    for t in range(1, 200):
        noise = rng.standard_normal((4, *shape))
        chains[:, t] = 0.97 * chains[:, t - 1] + np.sqrt(1 - 0.97**2) * noise
    return chains.reshape(800, *shape).astype(np.float32)


def slow_draws(activation: str) -> tuple[ob.Net, ob.Symmetry, ob.Draws]:
    """Slow chains of a prior, whose weights no chain explores."""
    net = ob.nets.mlp(hidden=(6, 5), outputs=2, activation=activation)
    params = net.init(jax.random.key(0), jnp.ones((1, 4)))
    symmetry = ob.discover(net.apply, params, jnp.ones((1, 4)))
    rng = np.random.default_rng(0)
    weights = jax.tree.map(lambda leaf: slow(leaf.shape, rng), params)
    return net, symmetry, ob.Draws(weights, mode=np.repeat(np.arange(4), 200))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_chains_that_never_mixed_do_not_pass_by_relabelling(activation: str) -> None:
    net, symmetry, draws = slow_draws(activation)
    found = ob.rhat(draws, symmetry=symmetry, num_weights=None)
    assert found.before is not None
    assert found.before.median > 1.3
    assert found.median > 1.25
    assert "one element per chain" in str(found)
    by_draw = ob.rhat(draws, symmetry=symmetry, num_weights=None, relabel="draw")
    assert by_draw.median < 1.1
    assert "one element per draw" in str(by_draw)
    size = ob.ess(draws, symmetry=symmetry)
    assert size.before is not None
    assert size.median < 1.5 * size.before.median < 20
    assert ob.ess(draws, symmetry=symmetry, relabel="draw").median > 2 * size.median
    # All draws of a chain by the same element, which leaves the function where it was.
    assert found.alignment is not None
    for array in jax.tree.leaves(found.alignment.elements):
        chains = np.asarray(array).reshape(4, 200, *array.shape[1:])
        np.testing.assert_array_equal(chains, np.broadcast_to(chains[:, :1], chains.shape))
    inputs = jax.random.normal(jax.random.key(1), (10, 4))
    both = [ob.predict(net.apply, each[::50], inputs) for each in (draws, found.alignment.draws)]
    np.testing.assert_allclose(both[0], both[1], atol=1e-4)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("cost", ["weights", "contributions"])
def test_relabelled_copies_of_well_mixed_chains_pass(activation: str, cost: str) -> None:
    net, symmetry, _ = slow_draws(activation)
    keys = jax.random.split(jax.random.key(3), 4)
    mean = net.init(jax.random.key(2), jnp.ones((1, 4)))
    mixed = ob.Gaussian(mean, 0.05).sample(jax.random.key(4), 800)
    elements = jax.tree.map(lambda x: x[np.arange(800) % 4], jax.vmap(symmetry.random)(keys))
    # Draws of several chains one after the other, as samplers of many chains may give them.
    moved = symmetry.act_many(elements, mixed.params)
    found = ob.rhat(
        ob.Draws(moved, mode=np.arange(800) % 4),
        symmetry=symmetry,
        num_weights=None,
        cost=cost,
        apply_fn=net.apply,
        inputs=jax.random.normal(jax.random.key(5), (50, 4)),
    )
    assert found.before is not None
    assert found.before.median > 1.5
    assert found.extreme < 1.06


def test_what_is_relabelled_is_named_or_refused() -> None:
    _, symmetry, draws = slow_draws("tanh")
    with pytest.raises(ValueError, match="no relabel 'chains': there are chain, draw; did you"):
        ob.rhat(draws, symmetry=symmetry, relabel="chains")
    # Chains that stand still have no spread to go by, and are brought together all the same.
    still = jax.tree.map(lambda leaf: np.repeat(leaf[:1], 800, axis=0), draws.params)
    elements = jax.vmap(symmetry.random)(jax.random.split(jax.random.key(3), 4))
    own = jax.tree.map(lambda x: x[np.repeat(np.arange(4), 200)], elements)
    copies = ob.Draws(symmetry.act_many(own, still), mode=draws.mode)
    found = ob.rhat(copies, symmetry=symmetry)
    assert found.before is not None
    assert np.isposinf(found.before.extreme)
    assert np.isnan(found.median)
