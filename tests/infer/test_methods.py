"""What holds for every method. A new one adds a row."""

import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob

from .problems import linear_regression, small_network

QUICK: dict[str, Any] = {
    "hmc": {"num_chains": 2, "num_samples": 5, "num_warmup": 4, "init": "random"},
    "nuts": {
        "num_chains": 2,
        "num_samples": 4,
        "num_warmup": 3,
        "step_size": 0.02,
        "init": "random",
    },
    "mclmc": {
        "num_chains": 2,
        "num_samples": 5,
        "num_warmup": 2,
        "num_tuning_steps": 100,
        "init": "random",
    },
    "sgld": {"num_chains": 2, "num_samples": 5, "num_warmup": 2, "thin": 3, "init": "prior"},
    "sghmc": {"num_chains": 2, "num_samples": 5, "num_warmup": 2, "thin": 3, "init": "prior"},
    "ensemble": {"num_networks": 2, "epochs": 5},
    "mean_field": {"num_networks": 2, "epochs": 5},
    "swag": {"num_networks": 2, "num_samples": 3, "epochs": 5},
    "laplace": {"num_networks": 2, "num_samples": 4, "epochs": 5},
    "dropout": {"num_networks": 2, "num_samples": 4, "epochs": 5},
}
SAMPLERS = ("hmc", "nuts", "mclmc", "sgld", "sghmc")


# One for all tests: equal calls share compiled programs.
PROBLEM = small_network()


def leaves(posterior) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(posterior)]


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def near(a, b) -> bool:
    """Up to rounding: programs of their own, of the same steps."""
    return all(np.allclose(x, y, 1e-4, 1e-6) for x, y in zip(leaves(a), leaves(b), strict=True))


def quick(name: str, key: int = 0, problem=PROBLEM, **more):
    return getattr(ob.infer, name)(jax.random.key(key), problem, **{**QUICK[name], **more})


def test_the_list_is_complete() -> None:
    methods = {
        name
        for name in ob.infer.__all__
        if inspect.isfunction(getattr(ob.infer, name))
        and next(iter(inspect.signature(getattr(ob.infer, name)).parameters), "") == "key"
    }
    assert methods == set(QUICK)


@pytest.mark.parametrize("name", QUICK)
def test_what_every_method_promises(name: str, tmp_path) -> None:
    problem = PROBLEM
    found = quick(name)
    assert isinstance(found, ob.Draws | ob.Mixture)
    assert found.info["seconds"] > 0
    if isinstance(found, ob.Draws):
        assert found.modes == (0, 1)
        assert np.all(np.diff(found.mode) >= 0)
    one = found[0] if isinstance(found, ob.Draws) else found.components[0].mean
    assert jax.tree.structure(one) == jax.tree.structure(problem.shapes())
    assert problem.net.apply(one, problem.inputs).shape == (20, 1)
    if name in SAMPLERS:
        expected = jax.vmap(problem.log_density)(found.params)
        np.testing.assert_allclose(found.log_density, expected, rtol=1e-3)

    # Bit for bit: in chunks of one, through files, and read again from them.
    assert same(found, quick(name, chunk=1))
    assert same(found, quick(name, chunk=2, run=tmp_path / "run"))
    assert same(found, quick(name, run=tmp_path / "run"))
    assert not same(found, quick(name, key=1))


@pytest.mark.parametrize("name", ["ensemble", "sghmc", "mclmc"])
def test_another_number_of_cores_draws_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = "num_chains" if "num_chains" in QUICK[name] else "num_networks"
    found = []
    for cores in ("1", "2", "4"):
        monkeypatch.setenv("ONEBASIN_THREADS", cores)
        found.append(quick(name, **{counted: 8}))
    assert same(found[0], found[1])
    assert same(found[0], found[2])


class Module(eqx.Module):
    w: jax.Array
    b: jax.Array


@pytest.mark.parametrize("name", ["ensemble", "mean_field"])
def test_parameters_are_any_pytree(name: str) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
    net = ob.Net(lambda key, x: Module(jnp.ones((1, 1)), jnp.zeros(1)), lambda m, x: x @ m.w + m.b)
    problem = ob.Problem(net, (x, 2 * x), likelihood="gaussian", noise=0.5)
    found = quick(name, problem=problem)
    one = found[0] if isinstance(found, ob.Draws) else found.components[0].mean
    assert isinstance(one, Module)


@pytest.mark.parametrize("name", ["ensemble", "sghmc"])
def test_another_problem_does_not_continue_a_run(name: str, tmp_path) -> None:
    quick(name, run=tmp_path / "run")
    with pytest.raises(ob.store.StoreError, match=r"noise|data"):
        quick(name, problem=small_network(learned_noise=True), run=tmp_path / "run")
    with pytest.raises(ob.store.StoreError, match=r"key|seeds"):
        quick(name, key=5, run=tmp_path / "run")


@pytest.mark.parametrize("distance", [1, 10])
def test_the_default_training_of_a_small_problem_reaches_the_best_network(distance: int) -> None:
    """Wherever it starts: a convex problem has one."""
    known = linear_regression()
    net = ob.Net(
        lambda key, x: {"w": distance * jax.random.normal(key, (3,))}, known.problem.net.apply
    )
    train = (known.problem.inputs, known.problem.targets)
    problem = ob.Problem(net, train, likelihood="gaussian", noise=0.5)
    found = ob.infer.ensemble(jax.random.key(0), problem)
    best = problem.log_density({"w": jnp.asarray(known.mean, jnp.float32)})
    np.testing.assert_allclose(found.log_density, best, atol=0.01)


def test_the_default_training_gives_way_to_what_is_given() -> None:
    plain = quick("ensemble", epochs=5)
    assert same(plain, quick("ensemble", epochs=5, learning_rate=3e-3))
    found = ob.infer.ensemble(jax.random.key(0), PROBLEM, num_networks=1, learning_rate=3e-3)
    assert found.info["loss"].shape == (2000, 1)


def test_snapshots_along_training() -> None:
    draws = quick("ensemble", epochs=6, every=2)
    assert draws.statistics["epoch"].tolist() == [2, 4, 6, 2, 4, 6]
    assert draws.mode.tolist() == [0, 0, 0, 1, 1, 1]
    last = quick("ensemble", epochs=6)
    assert near(draws[np.array([2, 5])].params, last.params)


def test_chains_start_where_they_are_told() -> None:
    problem = linear_regression().problem
    far = ob.Draws({"w": jnp.array([[10.0, 0, 0], [-10.0, 0, 0]])})
    draws = ob.infer.sgld(
        jax.random.key(0),
        problem,
        num_chains=2,
        num_samples=1,
        num_warmup=0,
        thin=1,
        step_size=1e-9,
        init=far,
    )
    np.testing.assert_allclose(draws.params["w"], far.params["w"], atol=1e-2)


def test_cycles_keep_the_low_end() -> None:
    draws = quick("sghmc", num_samples=6, num_cycles=2)
    assert len(draws) == 12
    with pytest.raises(ValueError, match="share evenly"):
        quick("sghmc", num_samples=5, num_cycles=2)


def test_many_modes() -> None:
    problem = PROBLEM
    draws = ob.infer.multi_mode(ob.infer.sghmc, 3)(
        jax.random.key(0), problem, **{k: v for k, v in QUICK["sghmc"].items() if k != "num_chains"}
    )
    assert draws.modes == (0, 1, 2)

    def own(key, problem):
        return ob.Gaussian(problem.init(key), 0.1)

    mixture = ob.infer.multi_mode(own, 3)(jax.random.key(0), problem)
    assert isinstance(mixture, ob.Mixture)
    assert not same(mixture.components[0], mixture.components[1])

    def sampled(key, problem):
        return ob.Draws.stack([problem.init(key)])

    assert ob.infer.multi_mode(sampled, 3)(jax.random.key(0), problem).modes == (0, 1, 2)


# What is counted by `modes` in their place.
COUNTED = ("num_chains", "num_networks")


@pytest.mark.parametrize("name", ["hmc", "sghmc", "swag", "laplace", "mean_field"])
def test_many_modes_are_called_like_any_method(name: str) -> None:
    options = {k: v for k, v in QUICK[name].items() if k not in COUNTED}
    method = getattr(ob.infer, name)
    found = ob.infer.multi_mode(jax.random.key(0), PROBLEM, method=method, modes=2, **options)
    assert same(found, quick(name))
    assert same(found, ob.infer.multi_mode(method, 2)(jax.random.key(0), PROBLEM, **options))


def test_many_modes_need_nothing_but_a_key_and_a_problem() -> None:
    found = ob.infer.multi_mode(jax.random.key(0), PROBLEM)
    assert len(found.components) == 5
    named = ob.infer.multi_mode(key=jax.random.key(0), problem=PROBLEM, modes=1, epochs=1)
    assert isinstance(named, ob.Gaussian)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, r"got 0 arguments, expected multi_mode\(key, problem"),
        ((jax.random.key(0),), {}, "got 1 arguments"),
        ((0, PROBLEM), {}, r"an int, .* write jax.random.key\(0\)"),
        (
            (jax.random.key(0), PROBLEM.net),
            {},
            "the problem is a Net, expected an onebasin.Problem",
        ),
        ((jax.random.key(0), PROBLEM), {"method": "swag"}, "the method is a str"),
        ((jax.random.key(0), PROBLEM), {"modes": 0}, "modes=0, expected at least one"),
        ((jax.random.key(0), PROBLEM), {"modes": 2.5}, "modes is a float"),
        ((jax.random.key(0), PROBLEM), {"num_networks": 3}, "expected `modes` in its place"),
        ((ob.infer.swag, 2), {"epochs": 3}, "got epochs next to a method"),
        ((ob.infer.swag, 2), {"modes": 3}, "got modes next to a method"),
    ],
)
def test_many_modes_refuse_other_forms(arguments, options, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ob.infer.multi_mode(*arguments, **options)


BAD = {
    "batch": ("ensemble", {"batch_size": 21}, "batch_size=21 and 20 examples"),
    "no networks": ("ensemble", {"num_networks": 0}, "at least one"),
    "objective": ("ensemble", {"objective": "mse"}, "expected one of map"),
    "start": ("hmc", {"init": "zeros"}, "expected 'random', 'prior', 'ensemble'"),
    "no samples": ("hmc", {"num_samples": 0}, "num_samples=0"),
    "rank": ("swag", {"rank": 9}, "rank=9"),
    "reparameterisation": ("mean_field", {"reparameterisation": "x"}, "expected one of local"),
    "friction": ("sghmc", {"friction": 0.0}, "friction=0.0"),
    "chunk": ("ensemble", {"chunk": 0}, "chunk=0"),
    "step": ("hmc", {"step_size": 0.0}, "step_size=0.0, expected a positive number"),
    "step back": ("nuts", {"step_size": -0.1}, "step_size=-0.1, expected a positive number"),
    "length": ("hmc", {"trajectory_length": -1.0}, "trajectory_length=-1.0"),
    "acceptance": ("hmc", {"target_acceptance": 1.0}, "between 0 and 1"),
    "noise alone": ("sgld", {"step_size": 0.0}, "step_size=0.0"),
    "rate": ("mean_field", {"learning_rate": 0.0}, "learning_rate=0.0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_one_clear_sentence(name: str) -> None:
    method, arguments, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        quick(method, **arguments)


@pytest.mark.parametrize("name", QUICK)
def test_what_comes_first_is_a_key_and_a_problem(name: str) -> None:
    method = getattr(ob.infer, name)
    with pytest.raises(TypeError, match=r"key is an int, .* write jax.random.key\(3\)"):
        method(3, PROBLEM)
    with pytest.raises(TypeError, match=r"key is an array of shape \(2,\)"):
        method(jax.random.split(jax.random.key(0)), PROBLEM)
    with pytest.raises(TypeError, match=r"problem is a Net, expected an onebasin.Problem: write"):
        method(jax.random.key(0), PROBLEM.net)


def test_keys_of_the_older_kind_will_do() -> None:
    found = ob.infer.ensemble(jax.random.PRNGKey(0), PROBLEM, num_networks=2, epochs=5)
    assert near(found, quick("ensemble"))


def test_starts_of_another_number() -> None:
    problem = linear_regression().problem
    with pytest.raises(ValueError, match="got 2 networks to start from, expected 3"):
        ob.infer.hmc(
            jax.random.key(0), problem, num_chains=3, init=ob.Draws({"w": jnp.ones((2, 3))})
        )


def test_a_budget_too_small_for_one_network_says_what_is_needed() -> None:
    with pytest.raises(MemoryError, match=r"needs [\d,]+ bytes .* budget is 10"):
        quick("ensemble", memory=10)


def test_a_budget_makes_groups_and_changes_little() -> None:
    together = quick("ensemble", num_networks=5)
    grouped = quick("ensemble", num_networks=5, memory=20_000)
    for x, y in zip(leaves(together), leaves(grouped), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["sgld", "sghmc"])
def test_a_chain_that_leaves_the_real_numbers_stops(name: str, tmp_path) -> None:
    """What was drawn before is kept, and the same when the run is tried again."""
    arguments = {"num_samples": 40, "thin": 1, "num_warmup": 0, "step_size": 1e3}
    kept = []
    for run in (None, tmp_path / "run", tmp_path / "run"):
        message = r"at step \d+ of 40.*step size 1e\+03"
        with pytest.raises(ob.infer.DivergenceError, match=message) as caught:
            quick(name, run=run, chunk=2, **arguments)
        kept.append(caught.value.draws)
    assert len(kept[0]) >= 2
    assert np.all(np.isfinite(kept[0].log_density))
    assert same(kept[0], kept[1])
    assert same(kept[0], kept[2])


def test_outputs_that_are_nan_are_noticed() -> None:
    problem = linear_regression().problem
    net = ob.Net(problem.net.init, lambda p, x: problem.net.apply(p, x) * jnp.log(x[:, 0] - 1e3))
    train = (problem.inputs, problem.targets)
    bad = ob.Problem(net, train, likelihood="gaussian", noise=0.5)
    with pytest.raises(ob.infer.DivergenceError, match=r"not finite|left the real"):
        ob.infer.hmc(jax.random.key(0), bad, num_chains=2, num_samples=3, init="prior")


def test_networks_are_kept_along_the_way() -> None:
    last = quick("ensemble", epochs=4)
    kept = quick("ensemble", epochs=4, every=2)
    assert kept.statistics["epoch"].tolist() == [2, 4, 2, 4]
    assert kept.mode.tolist() == [0, 0, 1, 1]
    assert near(kept[np.array([1, 3])].params, last.params)
    assert not near(kept[np.array([0, 2])].params, last.params)
    for wrong in (0, 5):
        with pytest.raises(ValueError, match=f"got every={wrong}"):
            quick("ensemble", epochs=4, every=wrong)


def test_swag_stays_near_what_was_trained_where_curvature_is_large() -> None:
    """With a noise of a hundredth the usual rate of SGD leaves the minimum at once."""
    x = jnp.linspace(-2, 2, 40)[:, None]
    problem = ob.Problem(
        ob.nets.mlp(hidden=(8,), outputs=1), (x, jnp.sin(x)), likelihood="gaussian", noise=0.01
    )
    q = ob.infer.swag(jax.random.key(0), problem, num_samples=4, epochs=300, rank=0)
    assert q.info["swag_learning_rate"] < 0.01
    found = ob.predict(problem.net.apply, q, x, link="identity", num_samples=10).mean(axis=0)
    assert float(jnp.sqrt(jnp.mean(jnp.square(found - jnp.sin(x))))) < 0.2
    with pytest.raises(ob.infer.DivergenceError):
        ob.infer.swag(jax.random.key(0), problem, epochs=300, swag_learning_rate=0.01)


def troubles(record) -> list[str]:
    assert all(issubclass(x.category, ob.infer.SamplingWarning) for x in record)
    assert all(x.filename == __file__ for x in record)
    return [str(x.message) for x in record]


FAR = {"step_size": 5.0, "max_leapfrogs": 3, "trajectory_length": 40.0}


@pytest.mark.parametrize("samples", [4, 20])
def test_many_divergent_trajectories_are_said(samples: int, tmp_path) -> None:
    """In two chains, however few draws there are; once a call, on an engine too."""
    with ob.engine.open_engine("local", directory=tmp_path, networks_per_task=1) as engine:
        for more in ({}, {"engine": engine}):
            with pytest.warns(ob.infer.SamplingWarning) as record:
                found = quick("hmc", num_samples=samples, **FAR, **more)
            first, second = troubles(record)
            number = int(np.sum(found.statistics["divergent"]))
            assert number > samples
            assert f"{number} of {2 * samples} draws end trajectories that diverged" in first
            assert "(chains 0, 1): take a smaller step_size" in first
            assert f"{2 * samples} of {2 * samples} draws end trajectories that" in second
            assert "max_leapfrogs=3 cut short (at 38% of the length): raise it" in second
    assert found.info["trajectory_length"] == 15
    assert found.info["asked_trajectory_length"] == 40


def test_nine_of_nine_divergent_draws_are_said() -> None:
    with pytest.warns(ob.infer.SamplingWarning, match="9 of 9 draws .* diverged"):
        quick("hmc", num_chains=1, num_samples=9, step_size=50.0, num_warmup=0)


def test_trajectories_as_long_as_asked_for_are_not_cut_short() -> None:
    found = quick("hmc", step_size=0.01, trajectory_length=0.048, max_leapfrogs=5)
    assert not np.any(found.statistics["shortened"])
    assert np.all(found.statistics["leapfrogs"] == 5)
    with pytest.warns(ob.infer.SamplingWarning, match=r"10 of 10 draws .* \(at 83% of the"):
        found = quick("hmc", step_size=0.01, trajectory_length=0.048, max_leapfrogs=4)
    assert np.all(found.statistics["leapfrogs"] == 4)


def test_trees_that_end_before_they_turn_back_are_said() -> None:
    """Steps so small that no trajectory of three doublings turns back."""
    with pytest.warns(ob.infer.SamplingWarning, match=r"8 of 8 .* max_doublings=3 cut short: rai"):
        found = quick("nuts", step_size=1e-4, max_doublings=3)
    assert np.all(found.statistics["shortened"])
    assert np.all(found.statistics["leapfrogs"] == 7)
    free = quick("nuts", step_size=0.02)
    assert not np.any(free.statistics["shortened"])


@pytest.mark.parametrize("method", ["sgld", "sghmc"])
def test_a_narrow_laplace_prior_sets_the_step(method: str) -> None:
    x = np.full((20, 1), 1e-3, np.float32)
    net = ob.Net(lambda key, x: jnp.zeros(1), lambda w, x: x * w)
    prior = ob.infer.Laplace(0.1)
    problem = ob.Problem(net, (x, x), prior, likelihood="gaussian", noise=1.0)
    found = getattr(ob.infer, method)(
        jax.random.key(0), problem, num_chains=8, num_samples=200, init="prior"
    )
    assert float(found.std()[0]) == pytest.approx(0.1 * 2**0.5, rel=0.25)


@pytest.mark.parametrize("name", ["sgld", "sghmc"])
def test_where_the_best_fit_is_zero_the_default_step_is_made_smaller(name: str, tmp_path) -> None:
    """All weights are zero there, and the curvature is that of the prior alone."""
    x = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    net = ob.nets.mlp(hidden=(8,), outputs=1, activation="tanh", bias=False)
    problem = ob.Problem(net, (x, np.zeros((50, 1))), likelihood="gaussian", noise=0.1)
    options: dict[str, Any] = {"num_chains": 2, "num_samples": 4, "num_warmup": 2}
    found = []
    for _ in range(2):
        with pytest.warns(ob.infer.SamplingWarning, match="were started again with") as record:
            draws = getattr(ob.infer, name)(
                jax.random.key(0), problem, run=tmp_path / "run", **options
            )
        assert len(troubles(record)) == 1
        found.append(draws)
    assert same(*found)
    assert found[0].info["smaller_steps"] >= 1
    assert np.all(np.isfinite(found[0].log_density))
    again = getattr(ob.infer, name)(
        jax.random.key(0), problem, step_size=found[0].info["step_size"], **options
    )
    assert same(found[0], again)


def test_draws_from_a_file_say_how_to_be_read(tmp_path) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
    net = ob.Net(lambda key, x: Module(jnp.ones((1, 1)), jnp.zeros(1)), lambda m, x: x @ m.w + m.b)
    problem = ob.Problem(net, (x, 2 * x), likelihood="gaussian", noise=0.5)
    draws = quick("ensemble", problem=problem)
    ob.store.save(tmp_path / "draws.safetensors", draws)
    with pytest.raises(ValueError, match="by reading it with like=PARAMS, the parameters of one"):
        quick("hmc", problem=problem, init=ob.store.load(tmp_path / "draws.safetensors"))
    read = ob.store.load(tmp_path / "draws.safetensors", like=problem.shapes())
    assert isinstance(quick("hmc", problem=problem, init=read)[0], Module)


def test_a_smaller_energy_variance_is_a_smaller_step() -> None:
    options = {"num_tuning_steps": 1000, "num_samples": 20}
    large, small = (quick("mclmc", energy_variance=v, **options) for v in (5e-3, 5e-5))
    assert small.info["step_size"] < 0.7 * large.info["step_size"]
    seen = [np.median(x.statistics["energy_variance"]) for x in (large, small)]
    assert seen[1] < 0.5 * seen[0]
    with pytest.raises(ValueError, match=r"energy_variance=0.0, expected a positive number"):
        quick("mclmc", energy_variance=0.0)


def test_masks_share_a_batch() -> None:
    """The loss of several masks is the mean of theirs, on their parts of the batch."""
    from onebasin.infer.dropout import Masked, masked, units_of

    units, params = units_of(PROBLEM), PROBLEM.init(jax.random.key(3))
    batch, key = (PROBLEM.inputs, PROBLEM.targets), jax.random.key(4)
    rule = Masked(units, 0.5, 5)
    parts = []
    for number in range(5):
        mask = units.mask(jax.random.fold_in(jax.random.clone(key), number), 0.5)
        own = jax.tree.map(lambda x, n=number: x[4 * n : 4 * n + 4], batch)
        parts.append(PROBLEM.log_likelihood(masked(PROBLEM, units, mask, params), own))
    expected = -(np.mean(parts) + PROBLEM.log_prior(params)) / 20
    np.testing.assert_allclose(rule(PROBLEM, params, batch, jax.random.clone(key)), expected, 1e-5)
    # A divisor of the batch is taken, so that seven are five.
    seven = Masked(units, 0.5, 7)(PROBLEM, params, batch, jax.random.clone(key))
    np.testing.assert_allclose(seven, expected, 1e-5)
    few, many = (quick("dropout", num_masks=n, rate=0.5) for n in (1, 8))
    assert not same(few, many)
    with pytest.raises(ValueError, match="num_masks=0, expected at least one"):
        quick("dropout", num_masks=0)


def test_a_fit_begins_with_the_spread_it_is_given() -> None:
    for spread in (0.01, 0.3):
        q = quick("mean_field", num_networks=1, epochs=1, learning_rate=1e-9, init_std=spread)
        for leaf in jax.tree.leaves(q.std):
            np.testing.assert_allclose(leaf, spread, 1e-4)
    with pytest.raises(ValueError, match=r"init_std=0.0, expected a positive number"):
        quick("mean_field", init_std=0.0)
