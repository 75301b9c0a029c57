from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onebasin import metrics

MODE = np.repeat(np.arange(4), 12)


def chains(seed: int, shift: float = 0.0) -> Any:
    """Probabilities of 48 draws in four chains; each chain's logits are shifted by its own."""
    keys = jax.random.split(jax.random.key(seed), 3)
    logits = 2 * jax.random.normal(keys[0], (1, 150, 5))
    own = shift * jax.random.normal(keys[1], (4, 150, 5))[MODE]
    return jax.nn.softmax(logits + own + jax.random.normal(keys[2], (48, 150, 5)))


def test_floor_is_each_chain_against_the_others() -> None:
    probs = chains(0)
    floor = metrics.chain_floor(probs, MODE, num_resamples=64)
    for c in range(4):
        own, rest = probs[c == MODE], probs[c != MODE]
        np.testing.assert_allclose(floor.agreement.value[c], metrics.agreement(own, rest), 1e-5)
        expected = metrics.total_variation(own, rest)
        np.testing.assert_allclose(floor.total_variation.value[c], expected, 1e-5)
    np.testing.assert_allclose(
        floor.mean_total_variation.value, floor.total_variation.value.mean(), 1e-5
    )
    assert floor.mean_agreement.low < floor.mean_agreement.value < floor.mean_agreement.high
    assert str(floor).count("\n") == 5


def test_unequal_chains_count_by_their_draws() -> None:
    probs, mode = chains(1)[:20], np.array([3] * 4 + [7] * 16)
    floor = metrics.chain_floor(probs, mode, num_resamples=64)
    expected = metrics.total_variation(probs[:4], probs[4:])
    np.testing.assert_allclose(floor.total_variation.value, [expected] * 2, 1e-5)
    assert floor.modes == (3, 7)


def test_floor_of_one_distribution_is_that_of_shuffled_draws() -> None:
    """If all draws come from one distribution, which chain a draw is of does not matter."""
    rng = np.random.default_rng(0)

    def floors(probs: Any, mode: Any) -> tuple[float, float]:
        found = metrics.chain_floor(probs, mode, num_resamples=64)
        return float(found.mean_agreement.value), float(found.mean_total_variation.value)

    for shift, alike in ((0.0, True), (0.7, False)):
        probs = chains(2, shift)
        own = np.array(floors(probs, MODE))
        shuffled = np.array([floors(probs, rng.permutation(MODE)) for _ in range(30)])
        z = (own - shuffled.mean(0)) / shuffled.std(0)
        assert (np.abs(z) < 3.5).all() == alike, (shift, z)
        assert alike or (z[0] < -3.5 and z[1] > 3.5)


def test_left_out_rows() -> None:
    probs = chains(3)
    kept: list[tuple[int, ...]] = []

    def rest(modes: tuple[int, ...]) -> Any:
        kept.append(modes)
        return probs[np.isin(MODE, modes)]

    uniform = jnp.full((150, 5), 0.2)
    found = metrics.left_out(probs, MODE, {"rest": rest, "uniform": uniform}, num_resamples=64)
    assert kept == [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]
    remaining = found["remaining chains"]
    floor = metrics.chain_floor(probs, MODE, num_resamples=64)
    np.testing.assert_allclose(remaining.total_variation, floor.total_variation.value, 1e-5)
    np.testing.assert_allclose(found["rest"].total_variation, remaining.total_variation, 1e-5)
    np.testing.assert_allclose(found["rest"].ratio, [1, 1, 1], 1e-5)
    first, *others = (probs[12 * c : 12 * c + 12] for c in range(4))
    single = [metrics.total_variation(first, other) for other in others]
    np.testing.assert_allclose(found["one chain"].total_variation[0], np.mean(single), 1e-5)
    single = [metrics.agreement(first, other) for other in others]
    np.testing.assert_allclose(found["one chain"].agreement[0], np.mean(single), 1e-5)
    assert found["uniform"].ratio.low > found["one chain"].ratio.low > 1
    assert "one chain" in str(found)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: metrics.chain_floor(p, np.zeros(48, int)), "at least two chains"),
        (lambda p: metrics.left_out(p, np.zeros(48, int)), "at least two chains"),
        (lambda p: metrics.chain_floor(p, MODE[:9]), "the chain that each sample"),
        (lambda p: metrics.chain_floor(p, MODE * 1.0), "integers"),
        (lambda p: metrics.chain_floor(p[0], MODE), "of each sample"),
        (lambda p: metrics.left_out(p, MODE, {"a": p[:, :9]}), "'a' has 9 examples"),
        (lambda p: metrics.left_out(p, MODE, {"one chain": p}), "rename"),
        (lambda p: metrics.left_out(p, MODE, {"a": 2 * p}), "'a' are no probabilities"),
    ],
)
def test_bad_input_is_said(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        call(chains(0))
    assert "\n" not in str(error.value)


def test_chosen_judges_say_what_they_say_among_all() -> None:
    probs = np.random.default_rng(3).dirichlet(np.ones(4), (12, 20))
    mode = np.arange(12) % 3
    own = probs[:5].mean(axis=0)
    every = metrics.left_out(probs, mode, {"own": own})
    some = metrics.left_out(probs, mode, {"own": own}, judges=[2, 0])
    assert some.modes == (2, 0)
    for name, row in some.rows.items():
        np.testing.assert_allclose(row.agreement, every[name].agreement[[2, 0]])
        np.testing.assert_allclose(row.total_variation, every[name].total_variation[[2, 0]])
    with pytest.raises(ValueError, match=r"judges \[5\], expected one or more of the chains"):
        metrics.left_out(probs, mode, judges=[5])
