import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import onebasin as ob
from onebasin.infer.curvature import largest_curvature
from onebasin.infer.vectors import to_vector
from onebasin.store.fingerprint import fingerprint

from .problems import linear_regression, small_network

DENSITIES = {
    "normal": (ob.Normal(0.7), scipy.stats.norm(scale=0.7)),
    "laplace": (ob.Laplace(0.7), scipy.stats.laplace(scale=0.7)),
    "student": (ob.StudentT(0.7, df=3.0), scipy.stats.t(3.0, scale=0.7)),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_priors_have_the_densities_of_scipy(name: str) -> None:
    prior, oracle = DENSITIES[name]
    params = {"a": jnp.linspace(-2, 2, 6).reshape(2, 3), "b": jnp.ones(())}
    expected = sum(oracle.logpdf(np.asarray(x)).sum() for x in params.values())
    assert float(prior.log_density(params)) == pytest.approx(expected, rel=1e-5)
    drawn = np.asarray(prior.sample(jax.random.key(0), jnp.zeros(20_000)))
    assert scipy.stats.kstest(drawn, oracle.cdf).pvalue > 1e-3
    assert float(prior.spread(jnp.zeros(2))) == pytest.approx(oracle.std(), rel=1e-5)


@pytest.mark.parametrize("name", DENSITIES)
def test_expected_log_densities_are_those_of_draws(name: str) -> None:
    prior, oracle = DENSITIES[name]
    mean, std = jnp.array([0.3, -1.0]), jnp.array([0.5, 0.1])
    draws = np.asarray(mean) + np.asarray(std) * np.random.default_rng(0).normal(size=(200_000, 2))
    keys = jax.random.split(jax.random.key(0), 4000)
    found = jax.vmap(lambda k: prior.expected_log_density(k, mean, std))(keys)
    assert float(found.mean()) == pytest.approx(oracle.logpdf(draws).sum(axis=1).mean(), abs=0.02)


def test_scales_by_layer() -> None:
    params = {"Dense_0": {"kernel": jnp.ones((2, 2))}, "Dense_01": {"kernel": jnp.ones(3)}}
    prior = ob.Normal({"Dense_0": 0.5, "": 2.0})
    assert prior.scales(params) == {"Dense_0": {"kernel": 0.5}, "Dense_01": {"kernel": 2.0}}
    expected = 4 * scipy.stats.norm(scale=0.5).logpdf(1) + 3 * scipy.stats.norm(scale=2).logpdf(1)
    assert float(prior.log_density(params)) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="no scale for 'Dense_01/kernel'"):
        ob.Normal({"Dense_0": 0.5}).log_density(params)


@given(seed=st.integers(0, 1000), batch_size=st.integers(1, 60))
def test_batches_estimate_the_likelihood_without_bias(seed: int, batch_size: int) -> None:
    """The mean over a partition into batches of one size is the value on all data."""
    problem = linear_regression().problem
    batch_size = max(b for b in (1, 4, 15, 60) if b <= batch_size)
    params = {"w": jax.random.normal(jax.random.key(seed), (3,))}
    order = np.random.default_rng(seed).permutation(60).reshape(-1, batch_size)
    found = [float(problem.log_likelihood(params, problem.take(rows))) for rows in order]
    assert np.mean(found) == pytest.approx(float(problem.log_likelihood(params)), rel=1e-4)


def test_log_likelihoods_are_those_of_scipy() -> None:
    problem = small_network()
    params = problem.init(jax.random.key(0))
    means = problem.net.apply(params, problem.inputs)[:, 0]
    expected = scipy.stats.norm(np.asarray(means), 0.2).logpdf(problem.targets[:, 0]).sum()
    assert float(problem.log_likelihood(params)) == pytest.approx(expected, rel=1e-4)

    net = ob.nets.mlp(hidden=(), outputs=3)
    x, y = np.eye(3, dtype=np.float32), np.array([0, 2, 1])
    problem = ob.Problem(net, (x, y))
    params = problem.init(jax.random.key(0))
    expected = np.log(scipy.special.softmax(net.apply(params, x), axis=-1))[np.arange(3), y].sum()
    assert float(problem.log_likelihood(params)) == pytest.approx(expected, rel=1e-5)


def test_a_likelihood_of_ones_own() -> None:
    answer = linear_regression()

    def squares(outputs, targets):
        return -0.5 * ((outputs - targets) / 0.5) ** 2

    own = ob.Problem(
        answer.problem.net, (answer.problem.inputs, answer.problem.targets[:]), likelihood=squares
    )
    params = {"w": jnp.ones(3)}
    gradients = [jax.grad(p.log_density)(params)["w"] for p in (own, answer.problem)]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-5)


def test_learned_noise_is_an_unknown_and_comes_back_as_a_statistic() -> None:
    problem = small_network(learned_noise=True)
    unknowns = problem.init(jax.random.key(0))
    assert set(unknowns) == {"params", "log_noise"}
    draws = ob.infer.hmc(
        jax.random.key(0), problem, num_chains=2, num_samples=30, num_warmup=60, init="random"
    )
    assert jax.tree.structure(draws.params) == jax.tree.structure(problem.shapes())
    assert draws.statistics["noise"].shape == (60,)
    assert 0.005 < np.median(draws.statistics["noise"]) < 0.5
    q = ob.infer.mean_field(jax.random.key(0), problem, epochs=50)
    assert jax.tree.structure(q.mean) == jax.tree.structure(problem.shapes())
    assert q.info["noise"] > 0


def test_problems_pass_through_jit_without_their_data_as_constants() -> None:
    problem = linear_regression().problem
    text = str(jax.make_jaxpr(lambda p, w: p.log_density(w))(problem, {"w": jnp.ones(3)}))
    assert "f32[60,3]" in text.splitlines()[0]
    leaves, structure = jax.tree.flatten(problem)
    again = jax.tree.unflatten(structure, leaves)
    assert float(again.log_density({"w": jnp.ones(3)})) == float(
        problem.log_density({"w": jnp.ones(3)})
    )


NET = ob.nets.mlp(hidden=(3,), outputs=2)
X, Y = np.zeros((5, 4), np.float32), np.zeros(5, np.int32)


def put(array: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


BAD = {
    "labels out of range": ((NET, (X, Y + 2)), {}, r"labels run from 2 to 2.*0 to 1"),
    "labels are floats": ((NET, (X, Y * 1.0)), {}, "integer classes"),
    "lengths": ((NET, (X, Y[:3])), {}, "inputs and targets have 5 and 3 examples, expected"),
    "a number": ((NET, (3.0, Y)), {}, "number without axes, expected arrays whose first axis"),
    "ragged": ((NET, ([[1.0, 2.0], [3.0]], Y)), {}, "different lengths in the inputs"),
    "not a pair": ((NET, X), {}, r"pair \(inputs, targets\)"),
    "unknown likelihood": ((NET, (X, Y)), {"likelihood": "poisson"}, "expected one of categorical"),
    "noise": ((NET, (X, Y)), {"likelihood": "gaussian", "noise": -1.0}, "positive"),
    "noise of classes": ((NET, (X, Y)), {"noise": 1.0}, "belongs to likelihood='gaussian'"),
    "temperature": ((NET, (X, Y)), {"temperature": 0.0}, "positive"),
    "targets": ((NET, (X, Y * 1.0)), {"likelihood": "gaussian"}, "one number for each output"),
    "a function": ((NET.apply, (X, Y)), {}, r"network is a function, expected an onebasin.Net"),
    "three functions": (((NET.init, NET.apply, NET.apply), (X, Y)), {}, "network is a tuple"),
    "prior": ((NET, (X, Y)), {"prior": 0.1}, "expected Normal, Laplace or StudentT"),
    "nan": ((NET, (put(X, (3, 1), np.nan), Y)), {}, "the inputs hold nan at example 3, column 1,"),
    "inf": (
        (NET, (put(X, (2, 0), -np.inf), Y)),
        {},
        "hold -inf at example 2, column 0, and 1 such numbers among 20",
    ),
    "too large for JAX": ((NET, (X.astype(float) + 1e300, Y)), {}, "hold inf at example 0, col"),
    "half": ((NET, (put(X.astype(np.float16), (1, 3), np.inf), Y)), {}, "inf at example 1, col"),
    "images": (
        (NET, (put(np.zeros((5, 2, 2), np.float32), (4, 1, 0), np.nan), Y)),
        {},
        r"nan at example 4, place \(1, 0\)",
    ),
    "nan targets": (
        (NET, (X, put(np.zeros((5, 2)), (1, 1), np.nan))),
        {"likelihood": "gaussian"},
        "the targets hold nan at example 1, column 1",
    ),
    "nan among targets of one's own": (
        (NET, (X, put(np.zeros(5), (2,), np.nan))),
        {"likelihood": lambda a, b: a[:, 0] * b},
        "the targets hold nan at example 2,",
    ),
    "wide labels": (
        (NET, (X, put(Y.astype(np.int64), (3,), 2**32 + 1))),
        {},
        r"the targets hold 4294967297 at example 3, expected whole numbers from -2147483648",
    ),
    "wide numbers": (
        (NET, (X, put(np.zeros((5, 2), np.int64), (0, 1), 2**32 + 1))),
        {"likelihood": "gaussian"},
        "the targets hold 4294967297 at example 0, column 1",
    ),
    "wide inputs": (
        (NET, (put(X.astype(np.uint64), (0, 0), 2**33), Y)),
        {},
        "the inputs hold 8589934592 at example 0, column 0",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_sentence(name: str) -> None:
    arguments, options, message = BAD[name]
    with pytest.raises((ValueError, TypeError), match=message):
        ob.Problem(*arguments, **options)


def test_data_may_be_lists_of_numbers() -> None:
    plain = ob.Problem(NET, (X.tolist(), Y.tolist()))
    assert plain.fingerprint() == ob.Problem(NET, (X, Y)).fingerprint()
    named = ob.Net(lambda key, x: NET.init(key, x["x"]), lambda p, x: NET.apply(p, x["x"]))
    assert ob.Problem(named, ({"x": X.tolist()}, Y)).num_examples == 5


def test_a_pair_of_functions_is_a_network() -> None:
    for pair in ((NET.init, NET.apply), [NET.init, NET.apply]):
        problem = ob.Problem(pair, (X, Y))
        assert problem.net == NET
        assert repr(problem) == repr(ob.Problem(NET, (X, Y)))


def test_bad_scales() -> None:
    with pytest.raises(ValueError, match="positive"):
        ob.Normal(0.0)
    with pytest.raises(ValueError, match="degrees of freedom"):
        ob.StudentT(1.0, df=-1)


def test_a_likelihood_speaks_of_every_example() -> None:
    net = ob.nets.mlp(hidden=(3,), outputs=1)
    x = jnp.ones((5, 2))
    params = net.init(jax.random.key(0), x)

    def squared(outputs: jax.Array, targets: jax.Array) -> jax.Array:
        return -jnp.square(outputs - targets)[:, 0]

    good = ob.Problem(net, (x, x[:, :1]), likelihood=squared)
    assert jnp.isfinite(good.log_likelihood(params))
    bad = ob.Problem(net, (x, x[:, :1]), likelihood=lambda a, b: jnp.mean(squared(a, b)))
    with pytest.raises(
        ValueError, match=r"shape \(\) for 5 examples, expected the log likelihood of"
    ):
        bad.log_likelihood(params)


@pytest.mark.parametrize("count", [999, 1000, 1001, 2500])
@pytest.mark.parametrize("noise", [None, 0.5])
def test_a_density_by_batches_is_the_density(count: int, noise: float | None) -> None:
    net = ob.nets.mlp(hidden=(3,), outputs=1)
    x = jax.random.normal(jax.random.key(0), (count, 2))
    problem = ob.Problem(net, (x, x[:, 0]), likelihood="gaussian", noise=noise, temperature=0.7)
    unknowns = problem.init(jax.random.key(1))
    assert problem.evaluated_log_density(unknowns) == pytest.approx(
        float(problem.log_density(unknowns)), rel=1e-5
    )


def test_looking_at_a_density_takes_less_memory_than_all_activations() -> None:
    net = ob.nets.mlp(hidden=(1000,), outputs=2)
    x, y = jnp.ones((20_000, 4)), jnp.zeros(20_000, jnp.int32)
    problem = ob.Problem(net, (x, y))
    params = problem.init(jax.random.key(0))

    def bytes_of(method) -> int:
        compiled = jax.jit(method).lower(params).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert bytes_of(problem.evaluated_log_density) < bytes_of(problem.log_density) / 5


def test_some_examples_tell_the_curvature_of_all() -> None:
    net = ob.nets.mlp(hidden=(8,), outputs=3)
    x = jax.random.normal(jax.random.key(0), (3000, 5))
    problem = ob.Problem(net, (x, jnp.argmax(x[:, :3], axis=1)))
    position = to_vector(problem.init(jax.random.key(1)))
    whole = largest_curvature(problem, problem.shapes(), position, jax.random.key(2))
    some = largest_curvature(problem, problem.shapes(), position, jax.random.key(2), examples=500)
    assert float(some) == pytest.approx(float(whole), rel=0.2)
    assert float(some) != float(whole)


def test_a_problem_whose_data_were_hashed_is_the_same_problem() -> None:
    problem = linear_regression().problem
    before = fingerprint(problem)
    problem.fingerprint()
    assert fingerprint(problem) == before


def test_data_are_hashed_anew_where_they_are_others() -> None:
    problem = linear_regression().problem
    first = problem.fingerprint()["data"]
    assert problem.fingerprint()["data"] == first
    problem.inputs = problem.inputs + 1
    assert problem.fingerprint()["data"] != first


def test_data_in_a_dictionary_are_named() -> None:
    net = ob.Net(lambda key, x: NET.init(key, x["x"]), lambda p, x: NET.apply(p, x["x"]))
    with pytest.raises(ValueError, match=r"the inputs \(x\) hold nan at example 3, column 1"):
        ob.Problem(net, ({"x": put(X, (3, 1), np.nan)}, Y))


def test_whole_numbers_that_fit_are_taken_whatever_their_width() -> None:
    for dtype in (np.int64, np.uint64, np.int8, np.uint8):
        assert ob.Problem(NET, (X, Y.astype(dtype))).targets.dtype == jnp.int32


NETS = {
    "mlp": (NET, X),
    "half": (ob.nets.in_bfloat16(NET), X),
    "resnet": (ob.nets.resnet20(width=2), np.zeros((5, 8, 8, 3), np.float32)),
    "optunet": (ob.nets.optunet(2), np.zeros((5, 28, 28, 1), np.float32)),
}


@pytest.mark.parametrize("name", NETS)
def test_problems_can_be_pickled(name: str) -> None:
    net, x = NETS[name]
    problem = ob.Problem(net, (x, Y), prior=ob.StudentT(0.5))
    again = pickle.loads(pickle.dumps(problem))
    assert again.net == problem.net
    assert again.fingerprint() == problem.fingerprint()
