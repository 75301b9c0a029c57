import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from onebasin import Element, SymmetryError, discover
from onebasin.posterior import Draws, Gaussian, Mixture, log_volume, push_forward


def relu_net(params, x):
    return jax.nn.relu(x @ params["in"] + params["bias"]) @ params["out"]


def tanh_net(params, x):
    return jnp.tanh(x @ params["in"] + params["bias"]) @ params["out"]


SHAPES = {"in": (2, 4), "bias": (4,), "out": (4, 2)}


def tree(seed, *lead):
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.normal(size=(*lead, *shape))) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def groups():
    return {net.__name__: discover(net, tree(0), jnp.ones((1, 2))) for net in (relu_net, tanh_net)}


def element(sym, seed, scaling=0.5):
    """A random element, made in NumPy: there is nothing to compile."""
    rng, identity = np.random.default_rng(seed), sym.identity(np)
    return Element(
        {k: rng.permuted(v, axis=-1) for k, v in identity.permutations.items()},
        {k: scaling * rng.standard_normal(v.shape) for k, v in identity.log_scales.items()},
        {k: rng.choice(np.array([-1, 1], v.dtype), v.shape) for k, v in identity.signs.items()},
    )


def elements(sym, n):
    return jax.tree.map(lambda *x: np.stack(x), *(element(sym, seed) for seed in range(n)))


def gaussian(seed, rank=2):
    return Gaussian(tree(seed), jax.tree.map(jnp.abs, tree(seed + 1)), tree(seed + 2, rank))


def assert_same(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("net", ["relu_net", "tanh_net"])
@given(seed=st.integers(0, 1000), rank=st.sampled_from([0, 2]))
def test_density_is_carried_along(groups, net, seed, rank):
    """log q'(g.x) = log q(x) - log|det g|."""
    sym, q, x = groups[net], gaussian(seed, rank), tree(seed + 9)
    g = element(sym, seed)
    moved = push_forward(sym, g, q)
    volume = log_volume(sym, g, x)
    np.testing.assert_allclose(
        moved.log_density(sym.act(g, x)), q.log_density(x) - volume, rtol=1e-9, atol=1e-9
    )
    mixture = Mixture([q, gaussian(seed + 3, rank)], [0.4, 0.6])
    np.testing.assert_allclose(
        push_forward(sym, g, mixture).log_density(sym.act(g, x)),
        mixture.log_density(x) - volume,
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("net", ["relu_net", "tanh_net"])
def test_permutations_and_signs_keep_volume_and_density_exactly(groups, net):
    sym, x = groups[net], jax.tree.map(lambda v: v.astype("f"), tree(1))
    g = element(sym, 0, scaling=0.0)
    assert float(log_volume(sym, g, x)) == 0
    draws = Draws.stack([x, x], log_density=jnp.array([1.5, 2.5]))
    np.testing.assert_array_equal(push_forward(sym, g, draws).log_density, draws.log_density)


@pytest.mark.usefixtures("float64")
def test_the_volume_is_the_determinant(groups):
    sym, x = groups["relu_net"], tree(0)
    g = element(sym, 3)
    flat, unravel = ravel_pytree(x)
    matrix = jax.jacobian(lambda v: ravel_pytree(sym.act(g, unravel(v)))[0])(flat)
    np.testing.assert_allclose(log_volume(sym, g, x), np.linalg.slogdet(matrix)[1], rtol=1e-10)
    with_volume = Draws.stack([x], log_density=jnp.zeros(1))
    np.testing.assert_allclose(
        push_forward(sym, g, with_volume).log_density, [-log_volume(sym, g, x)], rtol=1e-10
    )


@pytest.mark.parametrize("net", ["relu_net", "tanh_net"])
def test_sampling_and_moving_commute(groups, net):
    sym, q, n = groups[net], gaussian(5), 20_000
    g = element(sym, 1)
    moved = push_forward(sym, g, q)
    draws = push_forward(sym, g, q.sample(jax.random.key(2), n))
    sd = jax.tree.map(jnp.sqrt, moved.variance())
    jax.tree.map(
        lambda m, mean, s: np.testing.assert_array_less(abs(m - mean), 5 * s / np.sqrt(n)),
        draws.mean(),
        moved.mean,
        sd,
    )
    assert_same(draws.std(), sd, rtol=5 / np.sqrt(2 * n))
    rows, expected = draws.params["in"][:, 0, 0], draws.params["out"][:, 0, 0]
    correlated = jnp.sum(moved.factor["in"][:, 0, 0] * moved.factor["out"][:, 0, 0])
    tolerance = 5 * sd["in"][0, 0] * sd["out"][0, 0] / np.sqrt(n) * np.sqrt(2)
    assert abs(np.cov(rows, expected)[0, 1] - correlated) < tolerance


@pytest.mark.usefixtures("float64")
def test_one_element_per_draw_undoes_one_element_per_draw(groups):
    sym = groups["relu_net"]
    draws = Draws(tree(0, 5), mode=jnp.arange(5))
    g = elements(sym, 5)
    moved = push_forward(sym, g, draws)
    np.testing.assert_allclose(
        relu_net(moved[3], jnp.ones((1, 2))), relu_net(draws[3], jnp.ones((1, 2))), rtol=1e-9
    )
    back = push_forward(sym, jax.vmap(sym.inverse)(g), moved)
    assert_same(back.params, draws.params, rtol=1e-9)
    assert back.modes == (0, 1, 2, 3, 4)


def test_mixtures_take_one_element_for_each(groups):
    sym, q = groups["tanh_net"], gaussian(1)
    g, h = element(sym, 0), sym.identity()
    moved = push_forward(sym, [h, g], Mixture([q, q]))
    assert_same(moved.components[0].mean, q.mean)
    assert_same(moved.components[1].mean, sym.act(g, q.mean))
    with pytest.raises(ValueError, match="got 1 elements for 2 components"):
        push_forward(sym, [g], Mixture([q, q]))


def test_bad_input_is_named(groups):
    sym = groups["relu_net"]
    g = elements(sym, 3)
    with pytest.raises(ValueError, match="g is a stack of elements"):
        push_forward(sym, g, gaussian(0))
    with pytest.raises(ValueError, match="or with 5 draws in front"):
        push_forward(sym, g, Draws(tree(0, 5)))
    with pytest.raises(ValueError, match=r"of factor .* have shape None"):
        push_forward(sym, groups["tanh_net"].identity()._replace(log_scales={}), gaussian(0))
    with pytest.raises(TypeError, match="got a dict, expected Draws"):
        push_forward(sym, sym.identity(), tree(0))
    with pytest.raises(TypeError, match="got a list for g"):
        push_forward(sym, [sym.identity()], gaussian(0))
    with pytest.raises(SymmetryError, match="not of the model"):
        push_forward(sym, sym.identity(), Gaussian(jnp.ones(3), 1.0))


def test_pushing_forward_compiles(groups):
    sym, q = groups["relu_net"], gaussian(0)
    g = element(sym, 0)
    compiled = jax.jit(lambda g, q: push_forward(sym, g, q))(g, q)
    assert_same(compiled.std, push_forward(sym, g, q).std, rtol=1e-6)
    many = jax.vmap(lambda h: push_forward(sym, h, q))(jax.tree.map(lambda x: x[None], g))
    assert many.mean["in"].shape == (1, 2, 4)
