import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import attention

from onebasin import nets
from onebasin.infer.dropout import Masked, dropout, hidden_units, units_of
from onebasin.infer.priors import Normal
from onebasin.infer.problem import Problem
from onebasin.posterior.trees import named_leaves


def linear(hidden: int = 5) -> nets.Net:
    """Two linear maps, the second one stored transposed."""

    def init(key, inputs):
        rng = np.random.default_rng(0)
        shapes = {"inner": (inputs.shape[-1], hidden), "outer": (2, hidden)}
        return {name: jnp.asarray(rng.normal(size=shape), "f") for name, shape in shapes.items()}

    return nets.Net(init, lambda p, x: (x @ p["inner"]) @ p["outer"].T)


def test_a_mask_scales_the_outgoing_weights_of_its_units_only():
    net, x = linear(), jnp.ones((1, 3))
    params = net.init(None, x)
    units = hidden_units(net, params, x)
    mask = jnp.array([0.0, 1.25, 1.25, 0.0, 1.25])
    masked = units.apply(mask, params)
    np.testing.assert_array_equal(masked["inner"], params["inner"])
    np.testing.assert_array_equal(masked["outer"], params["outer"] * mask)


def test_the_mean_over_masks_is_the_linear_network():
    net, x = linear(), jax.random.normal(jax.random.key(1), (4, 3))
    params = net.init(None, x)
    units = hidden_units(net, params, x[:1])

    @jax.jit
    @jax.vmap
    def masked_outputs(key):
        return net.apply(units.apply(units.mask(key, 0.3), params), x)

    outputs = np.asarray(masked_outputs(jax.random.split(jax.random.key(2), 20_000)))
    error = outputs.std(0) / np.sqrt(20_000)
    assert np.max(np.abs(outputs.mean(0) - net.apply(params, x)) / error) < 4.5


@pytest.mark.parametrize(
    ("net", "shape", "count"),
    [
        (nets.mlp(hidden=(5, 4), outputs=3), (6,), 9),
        (nets.cnn(channels=(2, 3), dense=4, outputs=3), (8, 8, 1), 9),
        (nets.optunet(), (28, 28, 1), 10),
        (nets.resnet20(width=4), (8, 8, 3), 112),
    ],
)
def test_units_of_networks(net, shape, count):
    x = jax.ShapeDtypeStruct((1, *shape), "float32")
    params = jax.eval_shape(net.init, jax.random.key(0), x)
    units = hidden_units(net, params, x)
    assert units.count == count
    touched = {
        name.rsplit("/", 1)[-1]
        for (name, _), unit in zip(named_leaves(params), units.of_leaf, strict=True)
        if (unit < count).any()
    }
    assert touched == {"kernel"}


def test_dropping_a_unit_is_cutting_its_values_out():
    """In a convolutional network: the channel is zero wherever it is read."""
    net = nets.cnn(channels=(2, 3), dense=4, outputs=3)
    x = jax.random.normal(jax.random.key(0), (2, 8, 8, 1))
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(net.init, jax.random.key(1), x)
    params = jax.tree.map(lambda s: rng.normal(size=s.shape).astype(s.dtype), shapes)
    units = hidden_units(net, params, x[:1])
    silent = jax.tree.map(np.copy, params)
    for leaf in silent["Conv_1"].values():
        leaf[..., 1] = 0
    apply = jax.jit(net.apply)
    masked = apply(units.apply(np.float32([1, 1, 1, 0, 1, 1, 1, 1, 1]), params), x)
    np.testing.assert_allclose(masked, apply(silent, x), rtol=1e-4, atol=1e-4)


def test_attention_heads_and_streams_have_units():
    case = next(case for case in attention.CASES if case.name == "encoder-packed")
    apply, params, x = case.build()
    units = hidden_units(nets.Net(None, apply), params, x)
    names = {
        name
        for (name, _), unit in zip(named_leaves(params), units.of_leaf, strict=True)
        if (unit < units.count).any()
    }
    assert "Block_0/Packed_0/Dense_1/kernel" in names
    assert "Dense_0/kernel" not in names  # it reads the inputs
    masked = units.apply(units.mask(jax.random.key(0), 0.5), params)
    assert np.isfinite(jax.jit(apply)(masked, x)).all()


def test_the_objective_is_the_potential_where_nothing_is_dropped():
    x = jax.random.normal(jax.random.key(0), (12, 3))
    problem = Problem(nets.mlp(hidden=(4,), outputs=2), (x, jnp.arange(12) % 2), Normal(0.5))
    batch = (x[:10], problem.targets[:10])
    objective = Masked(units_of(problem), 0.0, 8)

    @jax.jit
    def both():
        params = problem.init(jax.random.key(1))
        found = objective(problem, params, batch, jax.random.key(2))
        return found, -problem.log_density(params, batch) / 12

    found, expected = both()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert objective == Masked(units_of(problem), 0.0, 8)


def test_draws_are_masked_networks_and_repeat():
    x = jax.random.normal(jax.random.key(0), (12, 3))
    problem = Problem(nets.mlp(hidden=(4,), outputs=1), (x, x[:, 0]), likelihood="gaussian")

    def run(**settings):
        return dropout(
            jax.random.key(0),
            problem,
            rate=0.5,
            num_networks=2,
            num_samples=6,
            epochs=2,
            **settings,
        )

    draws, again = run(), run(chunk=1)
    jax.tree.map(np.testing.assert_array_equal, draws, again)
    assert len(draws) == 12
    assert draws.modes == (0, 1)
    assert draws.statistics["noise"].shape == (12,)
    first = draws.of_mode(0)
    inner, outer = (np.asarray(first.params[f"Dense_{i}"]["kernel"]) for i in range(2))
    assert not np.ptp(inner, axis=0).any()
    assert {len(np.unique(w)) for w in outer[:, :, 0].T} <= {1, 2}
    assert 0 < (outer == 0).mean() < 1


def test_bad_input_is_named():
    x = jnp.ones((4, 3))
    flat = Problem(nets.mlp(hidden=(), outputs=2), (x, jnp.zeros(4, int)))
    with pytest.raises(ValueError, match="no hidden units"):
        dropout(jax.random.key(0), flat)
    with pytest.raises(ValueError, match=r"rate=1\.0"):
        dropout(jax.random.key(0), flat, rate=1.0)


def test_layers_of_a_loop_have_units_of_their_own():
    """As many as when they are written out, and each is cut by itself."""

    def scanned(params, x):
        def layer(h, own):
            return h + jax.nn.relu(h @ own["up"]) @ own["down"], None

        return jax.lax.scan(layer, x @ params["in"], params["layers"])[0] @ params["out"]

    def drawn(shape):
        return jnp.asarray(np.random.default_rng(0).normal(size=shape), "f")

    params = {
        "in": drawn((3, 5)),
        "layers": {"up": drawn((2, 5, 4)), "down": drawn((2, 4, 5))},
        "out": drawn((5, 2)),
    }
    units = hidden_units(nets.Net(None, scanned), params, jnp.ones((1, 3)))
    assert units.count == 5 + 2 * 4
    cut = [
        np.argwhere(np.asarray(units.apply(1.0 - jnp.eye(13)[n], params)["layers"]["down"]) == 0)
        for n in range(13)
    ]
    places = {tuple(map(int, where[0][:2])) for where in cut if len(where)}
    assert places == {(layer, unit) for layer in range(2) for unit in range(4)}
