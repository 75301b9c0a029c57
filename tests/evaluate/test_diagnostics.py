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
