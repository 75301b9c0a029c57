import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onebasin import nets
from onebasin.infer import ggn, lanczos
from onebasin.infer.laplace import curvature, laplace
from onebasin.infer.linear_sites import sites_of
from onebasin.infer.loop import DivergenceError, Journal
from onebasin.infer.priors import Laplace, Normal
from onebasin.infer.problem import Problem
from onebasin.infer.spectra import eigen
from onebasin.infer.vectors import from_vector, to_vector
from onebasin.posterior import Gaussian, Mixture


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Several batches, the last one not full."""
    monkeypatch.setattr(ggn, "_MAX_BATCH", 4)


@functools.cache
def regression(noise: float | None = 0.5, temperature: float = 1.0) -> Problem:
    """Four inputs and a bias, each prior scale another."""
    x = normal(0, 20, 4)
    y = x @ jnp.array([1.0, -0.5, 0.2, 0.0]) + 0.3
    prior = Normal({"Dense_0/kernel": 0.7, "": 2.0})
    net = nets.mlp(hidden=(), outputs=1)
    return Problem(net, (x, y), prior, "gaussian", noise, temperature)


@functools.cache
def classes(hidden: tuple[int, ...] = (4,), count: int = 9) -> Problem:
    x = normal(1, count, 3)
    labels = jnp.arange(count) % 3
    net = nets.mlp(hidden=hidden, outputs=3, activation="tanh")
    return Problem(net, (x, labels), Normal({"Dense_0": 0.5, "": 1.5}))


@functools.cache
def images() -> Problem:
    """A valid convolution over the whole image: one position."""

    def apply(params, x):
        y = jax.lax.conv_general_dilated(
            x, params["kernel"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.tanh(y + params["bias"]).reshape(len(x), -1) @ params["head"]

    def init(key, x):
        shapes = {"kernel": (3, 3, 2, 4), "bias": (4,), "head": (4, 3)}
        rng = np.random.default_rng(0)
        return {name: jnp.asarray(rng.normal(size=s) / 3, "f") for name, s in shapes.items()}

    x = normal(2, 5, 3, 3, 2)
    return Problem(nets.Net(init, apply), (x, jnp.arange(5) % 3), Normal(1.0))


def network(problem: Problem):
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32) / 2, problem.shapes())


@jax.jit
def outputs_and_jacobian(problem: Problem, params):
    def outputs(vector):
        return problem.net.apply(from_vector(vector, params), problem.inputs)

    return outputs(to_vector(params)), jax.jacrev(outputs)(to_vector(params))


def exact(problem: Problem, params):
    """The Gauss-Newton matrix from dense Jacobians."""
    outputs, jacobian = (np.asarray(x, np.float64) for x in outputs_and_jacobian(problem, params))
    total = 0.0
    for j, f in zip(jacobian, outputs, strict=True):
        if problem.likelihood == "gaussian":
            assert problem.noise is not None
            bend = np.eye(len(f)) / problem.noise**2
        else:
            p = np.exp(f) / np.exp(f).sum()
            bend = np.diag(p) - np.outer(p, p)
        total = total + j.T @ bend @ j
    return total


@jax.jit
def dense(spectrum, ones):
    return jax.vmap(lambda e: spectrum.apply(lambda x: x, e))(jnp.diag(ones))


def found(problem: Problem, params, structure: str, rank: int = 1000, probes: int | None = None):
    """The matrix that a structure holds, in the weights' own units."""
    stacked = jax.tree.map(lambda x: np.asarray(x)[None], problem.join(params))
    ones = jnp.ones(len(to_vector(params)))
    (spectrum,), (fit,) = curvature(
        Journal(None), jax.random.key(4), problem, stacked, ones, structure, rank, None, probes
    )
    np.testing.assert_allclose(fit, problem.log_likelihood(problem.join(params)), rtol=1e-5)
    return np.asarray(dense(spectrum, ones)), spectrum


def flat(draws) -> np.ndarray:
    return np.concatenate([x.reshape(len(draws), -1) for x in jax.tree.leaves(draws.params)], 1)


def block(problem: Problem, number: int) -> np.ndarray:
    model = sites_of(problem)
    return model.places(model.sites[number]).ravel()


@pytest.mark.parametrize("structure", ["kron", "low-rank", "full"])
def test_linear_regression_has_its_exact_posterior(structure):
    problem = regression(temperature=0.5)
    x = np.concatenate([np.ones((20, 1)), np.asarray(problem.inputs)], axis=1)
    precision = x.T @ x / 0.25 + np.diag([0.25, *4 * [1 / 0.49]])
    mean = np.linalg.solve(precision, x.T @ np.asarray(problem.targets)[:, 0] / 0.25)
    init = {"Dense_0": {"bias": mean[:1], "kernel": mean[1:, None]}}
    init = jax.tree.map(jnp.float32, init)
    draws = laplace(
        jax.random.key(0),
        problem,
        structure=structure,
        init=init,
        epochs=0,
        num_samples=20_000,
    )
    np.testing.assert_array_equal(draws.info["prior_multiplier"], 1)
    samples = flat(draws)
    covariance = 0.5 * np.linalg.inv(precision)
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(samples.mean(0), mean, atol=4 * scale.max() / np.sqrt(20_000))
    np.testing.assert_allclose(
        np.cov(samples.T) / np.outer(scale, scale),
        covariance / np.outer(scale, scale),
        atol=0.04,
    )
    shifted = samples - mean
    density = -0.5 * np.einsum("ni,ij,nj->n", shifted, np.linalg.inv(covariance), shifted)
    density -= 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    np.testing.assert_allclose(draws.log_density, density, rtol=1e-3, atol=1e-3)


def test_marginal_likelihood_of_linear_regression_is_that_of_the_gaussian_process():
    problem = regression()
    x = np.concatenate([np.ones((20, 1)), np.asarray(problem.inputs)], axis=1)
    y = np.asarray(problem.targets)[:, 0]
    prior = np.diag([4.0, *4 * [0.49]])
    mean = prior @ x.T @ np.linalg.solve(x @ prior @ x.T + 0.25 * np.eye(20), y)
    init = {"Dense_0": {"bias": jnp.float32(mean[:1]), "kernel": jnp.float32(mean[1:, None])}}
    draws = laplace(
        jax.random.key(0), problem, prior_precision=None, init=init, epochs=0, num_samples=1
    )
    kernel = x @ prior @ x.T + 0.25 * np.eye(20)
    expected = -0.5 * (y @ np.linalg.solve(kernel, y) + np.linalg.slogdet(2 * np.pi * kernel)[1])
    np.testing.assert_allclose(draws.info["log_marginal_likelihood"], expected, rtol=1e-4)


def test_diagonal_full_and_low_rank_are_those_of_the_exact_matrix():
    problem = classes()
    params = network(problem)
    expected = exact(problem, params)
    diagonal, _ = found(problem, params, "diagonal")
    np.testing.assert_allclose(diagonal, np.diag(np.diag(expected)), rtol=1e-5, atol=1e-6)
    for structure in ("full", "low-rank"):
        whole, _ = found(problem, params, structure)
        np.testing.assert_allclose(whole, expected, atol=2e-5)
    values = np.linalg.eigvalsh(expected)[::-1]
    _, few = found(problem, params, "low-rank", rank=3)
    np.testing.assert_allclose(np.sort(few.values)[::-1], values[:3], rtol=1e-4)


@pytest.mark.parametrize("structure", ["diagonal", "full", "last-layer", "kron"])
def test_probes_estimate_the_same_matrix(structure):
    problem = classes()
    params = network(problem)
    expected, _ = found(problem, params, structure)
    rough, near = (found(problem, params, structure, probes=n)[0] for n in (1, 4000))
    errors = [np.linalg.norm(x - expected) / np.linalg.norm(expected) for x in (rough, near)]
    assert errors[1] < 0.03
    assert errors[0] > 2 * errors[1]


def test_one_probe_is_enough_for_one_output():
    problem = regression()
    params = problem.net.init(jax.random.key(0), problem.inputs[:1])
    for structure in ("diagonal", "full", "kron"):
        whole, one = (found(problem, params, structure, probes=n)[0] for n in (None, 1))
        np.testing.assert_allclose(one, whole, rtol=1e-5, atol=1e-6)


def test_last_layer_is_a_block_of_the_exact_matrix():
    problem = classes()
    params = network(problem)
    own = block(problem, -1)
    expected = np.zeros((len(to_vector(params)),) * 2)
    expected[np.ix_(own, own)] = exact(problem, params)[np.ix_(own, own)]
    np.testing.assert_allclose(found(problem, params, "last-layer")[0], expected, atol=1e-5)
    draws = laplace(
        jax.random.key(0),
        problem,
        structure="last-layer",
        prior_precision=None,
        init=params,
        epochs=0,
        num_samples=20_000,
    )
    samples = flat(draws)
    precision = expected[np.ix_(own, own)] + np.eye(len(own)) / 1.5**2
    np.testing.assert_allclose(np.cov(samples[:, own].T), np.linalg.inv(precision), atol=0.08)
    rest = np.setdiff1d(np.arange(samples.shape[1]), own)
    assert not np.ptp(samples[:, rest], axis=0).any()


def test_kron_is_the_product_of_its_factors():
    problem = classes()
    params = network(problem)
    got, _ = found(problem, params, "kron")
    x = np.asarray(problem.inputs, np.float64)
    first, second = (jax.tree.map(np.float64, params[f"Dense_{i}"]) for i in range(2))
    hidden = np.tanh(x @ first["kernel"] + first["bias"])
    logits = hidden @ second["kernel"] + second["bias"]
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    bend = [np.diag(q) - np.outer(q, q) for q in p]
    slopes = [second["kernel"].T * (1 - h**2) for h in hidden]
    rights = [sum(j.T @ b @ j for j, b in zip(slopes, bend, strict=True)), sum(bend)]
    for number, (enters, right) in enumerate(zip((x, hidden), rights, strict=True)):
        a = np.concatenate([enters, np.ones((9, 1))], axis=1)
        own = block(problem, number)
        np.testing.assert_allclose(
            got[np.ix_(own, own)], np.kron(a.T @ a / 9, right), rtol=1e-4, atol=1e-5
        )
    own = block(problem, 0)
    assert not got[np.ix_(own, block(problem, 1))].any()


def test_kron_is_exact_for_one_example_and_one_position():
    problem = images()
    one = Problem(problem.net, (problem.inputs[:1], problem.targets[:1]), problem.prior)
    params = network(one)
    got, expected = found(one, params, "kron")[0], exact(one, params)
    for number in range(2):
        own = np.ix_(block(one, number), block(one, number))
        np.testing.assert_allclose(got[own], expected[own], atol=2e-5)


def test_convolutions_have_the_exact_diagonal():
    net = nets.cnn(channels=(2,), dense=3, outputs=3, activation="tanh", pool="average")
    x = normal(2, 5, 4, 4, 2)
    problem = Problem(net, (x, jnp.arange(5) % 3))
    params = network(problem)
    expected = np.diag(exact(problem, params))
    got, _ = found(problem, params, "diagonal")
    np.testing.assert_allclose(np.diag(got), expected, rtol=1e-4, atol=1e-6)


def test_own_likelihoods_and_learned_noise_give_the_same_matrix():
    problem = regression()

    def own(outputs, targets):
        return -0.5 * jnp.sum((outputs - targets[:, None]) ** 2, axis=-1) / 0.25

    train = (problem.inputs, problem.targets[:, 0])
    other = Problem(problem.net, train, problem.prior, own)
    params = network(problem)
    expected = exact(problem, params)
    np.testing.assert_allclose(found(other, params, "full")[0], expected, rtol=1e-4)
    learned = regression(noise=None)
    draws = laplace(
        jax.random.key(0), learned, init=params, epochs=0, num_samples=3, structure="full"
    )
    np.testing.assert_allclose(draws.statistics["noise"], np.ones(3))


def test_lanczos_finds_repeated_eigenvalues():
    """Three outputs of a linear map: every eigenvalue occurs three times."""
    x = normal(0, 20, 4)
    net = nets.mlp(hidden=(), outputs=3, bias=False)
    problem = Problem(net, (x, jnp.zeros((20, 3))), likelihood="gaussian", noise=1.0)
    params = network(problem)
    got, _ = found(problem, params, "low-rank")
    np.testing.assert_allclose(got, exact(problem, params), rtol=1e-3, atol=1e-3)
    assert lanczos.Lanczos(5) == lanczos.Lanczos(5)


@pytest.mark.parametrize("structure", ["low-rank"])
def test_several_networks_from_a_start_and_the_same_again(structure):
    def run():
        return laplace(
            jax.random.key(5),
            classes(),
            structure=structure,
            prior_precision="marginal-likelihood",
            num_networks=2,
            num_samples=3,
            epochs=2,
            rank=4,
        )

    first, second = run(), run()
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert first.info["prior_multiplier"].shape == (2,)
    assert np.isfinite(first.info["log_marginal_likelihood"]).all()
    if structure == "diagonal":
        assert isinstance(first, Mixture)
    else:
        assert len(first) == 6
        assert first.modes == (0, 1)
        assert np.isfinite(first.log_density).all()


def test_the_prior_can_be_replaced():
    problem = classes()
    params = network(problem)

    def std(**settings):
        q = laplace(
            jax.random.key(0), problem, structure="diagonal", init=params, epochs=0, **settings
        )
        assert isinstance(q, Gaussian)
        return np.asarray(to_vector(q.std))

    curvature = np.diag(exact(problem, params))
    np.testing.assert_allclose(std(prior_precision=4.0), (curvature + 4) ** -0.5, rtol=1e-4)
    other = Problem(problem.net, (problem.inputs, problem.targets), Laplace(0.5))
    q = laplace(
        jax.random.key(0),
        other,
        structure="diagonal",
        init=params,
        epochs=0,
        prior_precision=None,
    )
    np.testing.assert_allclose(to_vector(q.std), (curvature + 2) ** -0.5, rtol=1e-4)


def test_eigenvalues_of_any_size_have_orthonormal_vectors():
    """Rank 40 of 200, eigenvalues from 1e-12 to 1e6, as units that are dead on most data have."""
    basis = np.linalg.qr(normal(0, 200, 40).astype(np.float64))[0]
    sizes = np.geomspace(1e-12, 1e6, 40)
    matrix = ((basis * sizes) @ basis.T).astype(np.float32)
    values, vectors = (np.asarray(x, np.float64) for x in eigen(matrix))
    assert values.min() >= 0
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(200), atol=3e-7)
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, atol=3e-8 * 1e6)


@pytest.mark.parametrize("structure", ["kron", "low-rank"])
def test_curvature_that_overflows_is_named(structure):
    problem = Problem(nets.mlp((), 2), (normal(0, 8, 3) * 1e25, np.zeros(8, int)), Normal(1.0))
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape), problem.shapes())
    with pytest.raises(DivergenceError, match=r"curvature .* finite"):
        laplace(jax.random.key(0), problem, init=zero, epochs=0, structure=structure)


def test_bad_input_is_named():
    problem = classes()
    with pytest.raises(ValueError, match="expected one of kron, diagonal"):
        laplace(jax.random.key(0), problem, structure="kronecker")
    with pytest.raises(ValueError, match="expected a positive number, 'calibrated'"):
        laplace(jax.random.key(0), problem, prior_precision=-1.0)
    with pytest.raises(ValueError, match="probes=2 with structure='low-rank'"):
        laplace(jax.random.key(0), problem, structure="low-rank", probes=2)
    with pytest.raises(ValueError, match="probes=0"):
        laplace(jax.random.key(0), problem, probes=0)
    with pytest.raises(ValueError, match="num_samples=0"):
        laplace(jax.random.key(0), problem, num_samples=0)
    with pytest.raises(MemoryError, match="needs 3,844 bytes"):
        laplace(
            jax.random.key(0),
            problem,
            structure="full",
            memory=1000,
            init=network(problem),
            epochs=0,
        )
