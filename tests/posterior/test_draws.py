import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onebasin.posterior import Draws, Gaussian, Mixture, moments


def population(n=6, seed=0):
    rng = np.random.default_rng(seed)
    params = {"w": rng.normal(size=(n, 2, 3)).astype("f"), "b": rng.normal(size=(n, 3)).astype("f")}
    return Draws(params, mode=np.arange(n) // 2, log_density=np.arange(n, dtype="f"))


def test_mean_and_std_are_those_of_numpy():
    draws = population()
    for name, leaf in draws.params.items():
        np.testing.assert_allclose(draws.mean()[name], leaf.mean(0), rtol=1e-5)
        np.testing.assert_allclose(draws.std()[name], leaf.std(0, ddof=1), rtol=1e-5)


def test_an_index_gives_parameters_and_a_slice_gives_draws():
    draws = population()
    np.testing.assert_array_equal(draws[-1]["w"], draws.params["w"][5])
    assert [len(draws[part]) for part in (slice(1, 3), [0, 5], np.arange(6) > 1)] == [2, 2, 4]
    np.testing.assert_array_equal(draws[1:3].log_density, [1, 2])
    np.testing.assert_array_equal(draws[1:3].mode, [0, 1])
    picked = jax.jit(lambda d, i: d[i])(draws, 2)
    np.testing.assert_array_equal(picked["b"], draws.params["b"][2])
    assert sum(1 for _ in draws) == len(draws) == draws.num_draws == 6
    with pytest.raises(IndexError, match="there is no draw 6: there are 6"):
        draws[6]


def test_modes():
    draws = population()
    assert draws.modes == (0, 1, 2)
    np.testing.assert_array_equal(draws.of_mode(2).params["w"], draws.params["w"][4:])
    with pytest.raises(ValueError, match="no draws of mode 7"):
        draws.of_mode(7)


def test_stack_and_concatenate():
    draws = population()
    again = Draws.stack(list(draws), mode=draws.mode)
    np.testing.assert_array_equal(again.params["w"], draws.params["w"])
    both = Draws.concatenate([draws, again])
    assert (len(both), both.modes, both.log_density) == (12, (0, 1, 2), None)
    assert Draws.concatenate([draws, again], renumber=True).modes == (0, 1, 2, 3, 4, 5)
    np.testing.assert_array_equal(Draws.concatenate([draws, draws]).log_density[6:], range(6))


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_modes_and_densities_may_be_lists(kind):
    draws = Draws({"w": jnp.ones((3, 2))}, mode=kind([0, 0, 1]), log_density=kind([0.0, 1.0, 2.0]))
    assert (draws.modes, len(draws.of_mode(0))) == ((0, 1), 2)
    assert jax.jit(lambda d: d)(draws).log_density.tolist() == [0, 1, 2]
    assert len(jax.tree.leaves(draws)) == 3
    assert Draws.stack(list(draws), mode=kind([2, 2, 5])).modes == (2, 5)


def test_integers_are_left_alone():
    draws = Draws({"w": jnp.ones((3, 2)), "steps": jnp.arange(3)})
    assert draws.mean()["steps"] == 0
    with pytest.raises(ValueError, match="'steps' of the draws is int32, expected floating point"):
        moments(draws)


def test_draws_go_through_jit_and_vmap():
    draws = population()
    same = jax.jit(lambda d: d)(draws)
    assert isinstance(same, Draws)
    assert repr(same) == "Draws(6 draws of 9 weights, 3 modes)"
    stacks = jax.tree.map(lambda *x: jnp.stack(x), draws, population(seed=1))
    assert jax.vmap(lambda d: d.mean())(stacks)["b"].shape == (2, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Draws({}), "no leaves"),
        (lambda: Draws({"w": jnp.ones(())}), "'w' is a scalar"),
        (
            lambda: Draws({"a": jnp.ones((3, 1)), "w": jnp.ones((2, 1))}),
            "'w' has 2 draws, expected 3 as 'a' has",
        ),
        (lambda: Draws({"w": jnp.ones((0, 2))}), "no draws"),
        (lambda: Draws(jnp.ones((3, 2)), mode=jnp.zeros(2, int)), r"mode has shape \(2,\)"),
        (lambda: Draws(jnp.ones((3, 2)), mode=jnp.zeros(3)), "mode is float32"),
        (lambda: Draws(jnp.ones((3, 2)), mode=[0, 1]), r"mode has shape \(2,\), expected \(3,\)"),
        (lambda: Draws(jnp.ones((3, 2)), mode=[0.5, 1, 2]), "mode is float32"),
        (lambda: Draws(jnp.ones((2, 2)), mode=["a", "b"]), "mode is a list that is not of numbers"),
        (lambda: Draws(jnp.ones((2, 2)), log_density=[[1], [2, 3]]), "log_density is a list that"),
        (lambda: Draws(jnp.ones((3, 2)), statistics={"e": jnp.ones(2)}), "statistic 'e'"),
        (lambda: Draws.stack([]), "no networks"),
        (lambda: Draws.stack([{"w": 1.0}, {"v": 1.0}]), "network 1 has no leaf 'w'"),
        (
            lambda: Draws.stack([{"w": jnp.ones(2)}, {"w": jnp.ones(3)}]),
            r"'w' of network 1 has shape \(3,\)",
        ),
        (lambda: Draws.concatenate([]), "no populations"),
        (lambda: Draws(jnp.ones((1, 2))).std(), "one draw has no spread"),
        (lambda: moments(Draws(jnp.ones((1, 2)))), "one draw has no spread"),
        (
            lambda: Draws({"w": jnp.array([[1.0, jnp.nan]])}).check_finite(),
            "'w' of the draws holds 1 NaN or infinite values among 2",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_moments_of_every_form():
    draws = population()
    np.testing.assert_allclose(moments(draws).std["w"], draws.std()["w"])
    low_rank = Gaussian(jnp.zeros(2), jnp.full(2, 3.0), jnp.full((1, 2), 4.0))
    np.testing.assert_allclose(moments(low_rank).std, [5.0, 5.0])
    mixture = Mixture(
        [Gaussian(jnp.array([-1.0]), 1.0), Gaussian(jnp.array([3.0]), 2.0)], [0.5, 0.5]
    )
    np.testing.assert_allclose(moments(mixture).mean, [1.0])
    np.testing.assert_allclose(moments(mixture).std ** 2, [2.5 + 4.0], rtol=1e-6)
    with pytest.raises(TypeError, match=r"got a dict, expected Draws, a Gaussian or a Mixture"):
        moments({"w": jnp.ones(2)})


def test_the_mean_at_once_is_the_compiled_one():
    keys = jax.random.split(jax.random.key(0), 2)
    params = {
        "w": 3 + jax.random.normal(keys[0], (50, 4, 3)),
        "half": jax.random.normal(keys[1], (50, 5)).astype(jnp.bfloat16),
        "steps": jnp.arange(50),
    }
    for own in (params, {"w": params["w"], "steps": params["steps"]}):
        at_once = Draws(own).mean()
        compiled = jax.jit(lambda p: Draws(p).mean())(own)
        for name in own:
            assert at_once[name].dtype == compiled[name].dtype == own[name].dtype
            np.testing.assert_allclose(
                np.float32(at_once[name]), np.float32(compiled[name]), rtol=1e-6
            )
        assert at_once["steps"] == 0


def test_the_mean_of_numpy_draws_does_not_follow_them():
    stacked = np.ones((3, 64), np.float32)
    mean = Draws({"w": stacked}).mean()["w"]
    counters = np.arange(6).reshape(3, 2)
    first = Draws({"w": stacked, "n": counters}).mean()["n"]
    stacked[:], counters[:] = 7, 9
    np.testing.assert_array_equal(mean, 1)
    np.testing.assert_array_equal(first, [0, 1])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_means_of_half_precision_do_not_overflow(dtype: type) -> None:
    draws = Draws({"a": jnp.full((3000, 2), 100.0, dtype)})
    mean = draws.mean()["a"]
    assert mean.dtype == dtype
    np.testing.assert_allclose(np.asarray(mean, np.float32), 100.0)


@pytest.mark.parametrize("spread", [1e-4, 3e-4, 300.0])
def test_spreads_in_half_precision(spread: float) -> None:
    x = (spread * np.random.default_rng(0).normal(size=(200, 50))).astype(np.float16)
    expected = np.std(x.astype(float), axis=0, ddof=1)
    np.testing.assert_allclose(Draws({"w": x}).std()["w"], expected, rtol=2e-3)
    np.testing.assert_allclose(moments(Draws({"w": x})).std["w"], expected, rtol=2e-3)
    q = Gaussian(jnp.zeros(20000, jnp.float16), jnp.full(20000, 0.01, jnp.float16))
    std = float(np.float16(0.01))
    wanted = -20000 * (np.log(std) + np.log(2 * np.pi) / 2)
    assert float(q.log_density(q.mean)) == pytest.approx(wanted, rel=1e-3)
