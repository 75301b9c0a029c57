import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onebasin import nets
from onebasin.infer.linear_sites import LinearSites
from onebasin.infer.vectors import to_vector


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + nn.MultiHeadDotProductAttention(2, qkv_features=4)(nn.LayerNorm()(x))
        return nn.Dense(3)(x.mean(axis=1))


def attention() -> nets.Net:
    return nets.Net(
        lambda key, x: Attention().init(key, x)["params"],
        lambda p, x: Attention().apply({"params": p}, x),
    )


def transposed() -> nets.Net:
    """Positions before and behind the units, with matrices on either side of the product."""

    def apply(params, x):
        hidden = jnp.tanh(jnp.einsum("hi,bit->bht", params["first"], x))
        return jnp.einsum("bht,tho->bo", hidden, params["last"])

    shapes = {"first": (5, 4), "last": (3, 5, 2)}
    return nets.Net(lambda key, x: {k: jnp.zeros(n) for k, n in shapes.items()}, apply)


def sequence() -> nets.Net:
    """A matrix with two axes of outputs, shared by all positions, and one behind them."""

    def apply(params, x):
        heads = jnp.tanh(jnp.einsum("bti,ihk->bthk", x, params["heads"]))
        return jnp.einsum("bthk,hko->bo", heads, params["out"])

    shapes = {"heads": (4, 2, 3), "out": (2, 3, 2)}
    return nets.Net(lambda key, x: {k: jnp.zeros(n) for k, n in shapes.items()}, apply)


NETWORKS = {
    "transposed": (transposed, (4, 3)),
    "sequence": (sequence, (3, 4)),
    "mlp": (lambda: nets.mlp(hidden=(5, 4), outputs=3, activation="tanh"), (6,)),
    "no bias": (lambda: nets.mlp(hidden=(5,), outputs=3, bias=False), (6,)),
    "cnn": (lambda: nets.cnn(channels=(2, 3), dense=4, outputs=3), (8, 8, 1)),
    "resnet": (lambda: nets.resnet((1, 1), outputs=3, width=2, norm="layer"), (4, 4, 2)),
    "attention": (attention, (3, 4)),
}


def model_of(name):
    make, shape = NETWORKS[name]
    net = make()
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(7, *shape)), jnp.float32)
    shapes = jax.eval_shape(net.init, jax.random.key(0), inputs[:1])
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape) / 2, x.dtype), shapes)
    return net, params, inputs


@pytest.mark.parametrize(
    ("name", "sites", "others"),
    [("cnn", 4, 0), ("resnet", 7, 12), ("attention", 5, 2)],
)
def test_sites_and_their_derivatives_make_the_gradient(name, sites, others):
    net, params, inputs = model_of(name)
    model = LinearSites(net.apply, params, inputs[:1])
    assert len(model.sites) == sites
    assert len(model.others) == others
    cotangent = jnp.array([[1.0, -2.0, 0.5]])

    @jax.jit
    def both(params):
        outputs, rows, pull = model.pullback(params, inputs[:1])
        direct, vjp = jax.vjp(lambda p: net.apply(p, inputs[:1]), params)
        return outputs, rows, pull(cotangent), direct, vjp(cotangent)[0]

    outputs, rows, (derivatives, rest), direct, expected = both(params)
    np.testing.assert_allclose(outputs, direct, rtol=1e-5, atol=1e-6)
    gradient = np.zeros(len(to_vector(params)))
    for site, a, g in zip(model.sites, rows, derivatives, strict=True):
        gradient[model.places(site)] += np.asarray(a).T @ np.asarray(g)
    gradient[model.other_places()] = to_vector([*rest, jnp.zeros(0)])
    np.testing.assert_allclose(gradient, to_vector(expected), rtol=1e-4, atol=1e-5)


def test_places_cover_every_weight_once():
    net, params, inputs = model_of("resnet")
    model = LinearSites(net.apply, params, inputs[:1])
    places = [model.places(site).ravel() for site in model.sites]
    found = np.sort(np.concatenate([*places, model.other_places()]))
    np.testing.assert_array_equal(found, np.arange(len(to_vector(params))))


def test_a_kernel_that_is_used_twice_is_no_site():
    def apply(params, x):
        return jnp.tanh(x @ params["w"]) @ params["w"] + params["b"] + x @ params["v"].T

    params = {"w": jnp.eye(3), "b": jnp.ones(3), "v": jnp.ones((3, 3))}
    model = LinearSites(apply, params, jnp.ones((1, 3)))
    names = sorted(params)
    assert [names[site.kernel] for site in model.sites] == ["v"]
    assert [names[i] for i in model.others] == ["b", "w"]
    assert [names[i] for i in model.additions] == ["b"]
    np.testing.assert_array_equal(model.sites[0].kernel_index, np.arange(9).reshape(3, 3).T)


def test_activations_keep_their_own_derivatives():
    """relu at 0 has derivative 0, where the max that it is made of has 1/2."""
    net = nets.mlp(hidden=(4,), outputs=1)
    params = jax.jit(net.init)(jax.random.key(0), jnp.zeros((1, 3)))
    _, _, pull = LinearSites(net.apply, params, jnp.zeros((1, 3))).pullback(
        params, jnp.zeros((1, 3))
    )
    np.testing.assert_array_equal(pull(jnp.ones((1, 1)))[0][0], 0)


def drawn_by_weights(net, mean, std, inputs, key):
    leaves, structure = jax.tree.flatten(mean)
    keys = jax.random.split(key, len(leaves))
    spread = jax.tree.leaves(std)
    drawn = [
        m + s * jax.random.normal(k, m.shape) for m, s, k in zip(leaves, spread, keys, strict=True)
    ]
    return net.apply(jax.tree.unflatten(structure, drawn), inputs)


@pytest.mark.parametrize("name", ["mlp", "cnn", "transposed", "sequence"])
def test_local_draws_have_the_distribution_of_drawn_weights(name):
    net, mean, inputs = model_of(name)
    inputs = inputs[:3]
    std = jax.tree.map(lambda x: 0.2 + 0.1 * jnp.abs(x), mean)
    model = LinearSites(net.apply, mean, inputs[:1])
    count = 8_000
    keys = jax.random.split(jax.random.key(3), 2 * count)
    local = jax.jit(jax.vmap(lambda k: model.local_outputs(mean, std, inputs, k)))(keys[:count])
    direct = jax.jit(jax.vmap(lambda k: drawn_by_weights(net, mean, std, inputs, k)))(keys[count:])
    error = np.sqrt((local.var(0) + direct.var(0)) / count)
    np.testing.assert_array_less(np.abs(local.mean(0) - direct.mean(0)), 4 * error)
    np.testing.assert_allclose(local.var(0), direct.var(0), rtol=0.12)
    across = [np.corrcoef(drawn[:, 0, 0], drawn[:, 1, 0])[0, 1] for drawn in (local, direct)]
    assert abs(across[0]) < 0.05 < 0.2 < abs(across[1])  # examples have noise of their own


@pytest.mark.parametrize("name", ["no bias", "cnn"])
def test_local_draws_have_the_same_expected_gradient(name):
    net, mean, inputs = model_of(name)
    labels = jnp.array([0, 1, 2, 0, 1, 2, 0])
    std = jax.tree.map(lambda x: jnp.full_like(x, 0.3), mean)
    model = LinearSites(net.apply, mean, inputs[:1])

    def loss(outputs):
        return -jnp.mean(jax.nn.log_softmax(outputs)[jnp.arange(7), labels])

    def gradients(draw):
        slope = jax.grad(lambda q, k: loss(draw(*q, inputs, k)), 0)
        keys = jax.random.split(jax.random.key(4), 8_000)
        return jax.jit(jax.vmap(lambda k: slope((mean, std), k)))(keys)

    local = jax.vmap(to_vector)(gradients(model.local_outputs))
    direct = jax.vmap(to_vector)(gradients(lambda *a: drawn_by_weights(net, *a)))
    error = np.sqrt((local.var(0) + direct.var(0)) / len(local))
    assert np.max(np.abs(local.mean(0) - direct.mean(0)) / error) < 4.5
    assert local.var(0).mean() < 0.6 * direct.var(0).mean()
