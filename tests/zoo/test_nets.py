from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onebasin import nets
from onebasin.nets.state import is_trained_apart


def shapes(net: nets.Net, *shape: int) -> Any:
    return jax.eval_shape(lambda key: net.init(key, jnp.ones(shape)), jax.random.key(0))


def size(params: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def test_optunet_has_392_parameters() -> None:
    assert size(shapes(nets.optunet(), 1, 28, 28, 1)) == 392


class PlainOptuNet(nn.Module):
    """OptuNet, layer by layer."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.Conv(2, (4, 4), padding="VALID", use_bias=False)(x))
        x = nn.max_pool(x, (3, 3), strides=(3, 3))
        x = nn.Conv(10, (5, 5), padding="VALID", feature_group_count=2, use_bias=False)(x)
        return nn.Dense(10)(nn.relu(x).mean(axis=(1, 2)))


def test_optunet_computes_what_its_layers_do() -> None:
    plain, net = PlainOptuNet(), nets.optunet()
    images = jax.random.normal(jax.random.key(0), (5, 28, 28, 1))
    params = plain.init(jax.random.key(1), images)["params"]
    same = jax.tree.map(np.array_equal, params, net.init(jax.random.key(1), images))
    assert jax.tree.all(same)

    def loss(apply: Any, params: Any) -> Any:
        return jnp.sum(jnp.sin(apply(params, images)))

    expected = jax.value_and_grad(lambda p: loss(lambda q, x: plain.apply({"params": q}, x), p))
    found = jax.value_and_grad(lambda p: loss(net.apply, p))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        found(params),
        expected(params),
    )


def test_resnet20_is_that_of_izmailov() -> None:
    assert size(shapes(nets.resnet20(), 1, 32, 32, 3)) == 274_042


def test_resnet18_is_that_of_torch() -> None:
    params = shapes(nets.resnet18(), 1, 32, 32, 3)
    assert set(params) == {"params", "batch_stats"}
    assert size(params["params"]) == 11_220_132


@pytest.mark.parametrize("norm", ["frn", "layer", "group", None])
def test_params_are_plain_without_running_statistics(norm: str | None) -> None:
    params = shapes(nets.resnet((1,), norm=norm, width=4), 1, 8, 8, 3)
    assert set(params) == {"conv", "stage1_block1", "head"} | ({"norm"} if norm else set())


@pytest.mark.parametrize("identity_start", [True, False])
@pytest.mark.parametrize("norm", ["frn", "layer", "group", "batch"])
def test_blocks_that_start_as_the_identity_add_nothing(norm: str, identity_start: bool) -> None:
    net = nets.resnet((1, 2), 3, norm, 4, identity_start=identity_start)
    images = jax.random.normal(jax.random.key(0), (2, 8, 8, 3))
    params = net.init(jax.random.key(1), images)

    def other(path: Any, leaf: jax.Array) -> jax.Array:
        is_inside = "conv2" in jax.tree_util.keystr(path)
        return jax.random.normal(jax.random.key(2), leaf.shape) if is_inside else leaf

    changed = jax.tree_util.tree_map_with_path(other, params)
    same = np.array_equal(net.apply(params, images), net.apply(changed, images))
    assert same == identity_start


def test_grey_images_need_no_channel_axis() -> None:
    for net in (nets.optunet(), nets.cnn((2,), 3, 4)):
        images = jax.random.normal(jax.random.key(0), (2, 28, 28))
        params = net.init(jax.random.key(1), images)
        outputs = net.apply(params, images)
        assert (outputs == net.apply(params, images[..., None])).all()


def test_mlp_flattens() -> None:
    net = nets.mlp((5,), 2)
    inputs = jax.random.normal(jax.random.key(0), (3, 4, 5))
    params = net.init(jax.random.key(1), inputs)
    assert (net.apply(params, inputs) == net.apply(params, inputs.reshape(3, 20))).all()
    assert size(params) == 20 * 5 + 5 + 5 * 2 + 2
    assert size(shapes(nets.mlp((5,), 2, bias=False), 3, 20)) == 20 * 5 + 5 * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nets.mlp(activation="rulu"), r"activation='rulu'.*'relu', 'leaky_relu'"),
        (lambda: nets.cnn(activation="swish"), r"activation='swish'.*'silu'"),
        (lambda: nets.cnn(pool="min"), r"pool='min'.*'max', 'average'"),
        (lambda: nets.resnet20(norm="instance"), r"norm='instance'.*'frn', 'layer'.*None"),
        (lambda: nets.resnet20(norm=None, identity_start=True), r"norm=None.*normalisation"),
        (lambda: nets.resnet18(activation=None), r"activation=None.*'relu'"),
        (lambda: nets.mlp(hidden=(5, 0)), r"hidden=\(5, 0\).*positive integers"),
        (lambda: nets.mlp(hidden=4), r"hidden=4, expected a tuple such as \(4,\)"),
        (lambda: nets.cnn(channels=8), r"channels=8, expected a tuple such as \(8,\)"),
        (lambda: nets.resnet((1,), block="wide"), r"block='wide'.*'basic', 'bottleneck'"),
        (lambda: nets.resnet18(stem="5x5"), r"stem='5x5'.*'3x3', '7x7'"),
        (lambda: nets.wide_resnet(depth=12), r"depth=12.*10, 16"),
        (lambda: nets.vit(norm="batch"), r"norm='batch'.*'layer', 'rms'"),
        (lambda: nets.vit(width=10, heads=4), r"width=10 and heads=4.*multiple"),
        (lambda: shapes(nets.vit(patch=5), 1, 8, 8, 3), r"8 x 8 pixels.*patches of 5"),
        (lambda: nets.gpt(9, heads=4, kv_heads=3), r"kv_heads=3"),
        (lambda: nets.gpt(9, width=12, heads=4, positions="rotary"), r"3 dimensions.*even"),
        (lambda: shapes(nets.gpt(9), 1, 8), r"type float32, expected tokens"),
        (lambda: nets.optunet(outputs=0), r"outputs=0.*a positive integer"),
        (lambda: shapes(nets.optunet(), 1, 32, 32, 3), r"\(1, 32, 32, 3\).*\(batch, 28, 28, 1\)"),
        (lambda: shapes(nets.cnn(), 1, 784), r"cnn got inputs of shape \(1, 784\).*reshape"),
    ],
)
def test_bad_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("net", "shape", "count"),
    [
        (nets.resnet18(outputs=1000, stem="7x7"), (1, 224, 224, 3), 11_689_512),
        (nets.resnet34(outputs=1000, stem="7x7"), (1, 224, 224, 3), 21_797_672),
        (nets.resnet50(outputs=1000, stem="7x7"), (1, 224, 224, 3), 25_557_032),
        (nets.wide_resnet(28, 10, outputs=10), (1, 32, 32, 3), 36_479_194),
    ],
)
def test_residual_networks_have_the_published_number_of_weights(
    net: nets.Net, shape: tuple[int, ...], count: int
) -> None:
    assert size(shapes(net, *shape)["params"]) == count


def test_language_models_have_the_published_number_of_weights() -> None:
    def count(net: nets.Net) -> int:
        tokens = jnp.zeros((1, 4), int)
        return size(jax.eval_shape(net.init, jax.random.key(0), tokens))

    assert count(nets.gpt(50_257, 1024, 12, 12, 768)) == 124_439_808
    llama = nets.gpt(
        32_000,
        4096,
        32,
        32,
        4096,
        11_008,
        norm="rms",
        mlp="swiglu",
        positions="rotary",
        tied=False,
        bias=False,
    )
    assert count(llama) == 6_738_415_616


def llama_like(**changes: Any) -> nets.Net:
    settings = {"norm": "rms", "mlp": "swiglu", "positions": "rotary", "kv_heads": 2}
    return nets.gpt(13, 16, 2, 4, 16, tied=False, bias=False, **{**settings, **changes})


@pytest.mark.parametrize("net", [nets.gpt(13, 16, 2, 4, 16), llama_like()])
def test_a_position_does_not_see_those_after_it(net: nets.Net) -> None:
    tokens = jax.random.randint(jax.random.key(0), (2, 9), 0, 13)
    params = net.init(jax.random.key(1), tokens)
    changed = tokens.at[:, 6:].set((tokens[:, 6:] + 1) % 13)
    before, after = net.apply(params, tokens), net.apply(params, changed)
    np.testing.assert_allclose(before[:, :6], after[:, :6], rtol=1e-5, atol=1e-6)
    assert np.abs(before[:, 6:] - after[:, 6:]).max() > 1e-3


def test_turned_queries_and_keys_see_the_difference_of_their_positions_alone() -> None:
    from onebasin.nets._transformer import turned

    query, key = jax.random.normal(jax.random.key(0), (2, 1, 1, 8))
    queries, keys = (turned(jnp.broadcast_to(x, (12, 1, 8)))[:, 0] for x in (query, key))
    scores = queries @ keys.T
    for offset in range(-5, 6):
        diagonal = jnp.diagonal(scores, offset)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-4, atol=1e-5)
    assert np.ptp(scores[0]) > 0.1


def test_batch_norm_in_training_uses_the_batch_and_moves_the_statistics() -> None:
    net = nets.resnet((1,), 3, "batch", 4)
    images = 3 + 2 * jax.random.normal(jax.random.key(0), (16, 8, 8, 3))
    variables = net.init(jax.random.key(1), images)
    outputs, state = net.apply(variables, images, train=True)
    stem = jax.lax.conv_general_dilated(
        images,
        variables["params"]["conv"]["kernel"],
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    stem = stem + variables["params"]["conv"]["bias"]
    found = state["batch_stats"]["norm"]
    np.testing.assert_allclose(found["mean"], 0.1 * stem.mean((0, 1, 2)), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found["var"], 0.9 + 0.1 * stem.var((0, 1, 2)), rtol=1e-3)
    # Where the statistics are those of the batch, training and inference are one function.
    for _ in range(200):
        _, state = net.apply(variables["params"], images, state=state, train=True)
    still = net.apply(variables["params"], images, state=state)
    np.testing.assert_allclose(still, outputs, rtol=1e-3, atol=1e-3)


def test_half_precision_keeps_running_statistics_whole() -> None:
    net = nets.resnet((1,), 3, "batch", 4)
    images = jax.random.normal(jax.random.key(0), (16, 8, 8, 3))
    variables = net.init(jax.random.key(1), images)
    half = nets.in_bfloat16(net)
    outputs, state = half.apply(variables, images, train=True)
    whole, expected = net.apply(variables, images, train=True)
    assert {x.dtype for x in jax.tree.leaves((outputs, state))} == {np.dtype(np.float32)}
    np.testing.assert_allclose(outputs, whole, atol=0.1)
    mean, var = (state["batch_stats"]["norm"][name] for name in ("mean", "var"))
    np.testing.assert_allclose(mean, expected["batch_stats"]["norm"]["mean"], atol=1e-3)
    np.testing.assert_allclose(var, expected["batch_stats"]["norm"]["var"], rtol=1e-2)


def test_weights_without_their_statistics_are_refused() -> None:
    net = nets.resnet18(outputs=3, width=2)
    images = jnp.ones((1, 8, 8, 3))
    variables = net.init(jax.random.key(0), images)
    with pytest.raises(ValueError, match="running statistics"):
        net.apply(variables["params"], images)


def test_inputs_are_scaled_inside() -> None:
    plain = nets.mlp((5,), 2)
    net = nets.scale_inputs(plain, mean=(1.0, 2.0, 3.0), std=(2.0, 4.0, 8.0))
    inputs = np.array([[1, 2, 3], [3, 6, 11]], np.uint8)
    params = net.init(jax.random.key(0), inputs)
    expected = plain.apply(params, jnp.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    np.testing.assert_allclose(net.apply(params, inputs), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"std=0.*positive"):
        nets.scale_inputs(plain, std=0)


def test_a_scaled_network_is_still_told_that_it_is_trained() -> None:
    net = nets.in_bfloat16(nets.scale_inputs(nets.resnet((1,), 3, "batch", 4), 128, 64))
    images = jax.random.randint(jax.random.key(0), (4, 8, 8, 3), 0, 256).astype(jnp.uint8)
    variables = net.init(jax.random.key(1), images)
    outputs, state = net.apply(variables, images, train=True)
    assert outputs.shape == (4, 3)
    assert is_trained_apart(net.apply)
    assert not is_trained_apart(nets.mlp((5,), 2).apply)
    assert set(state) == {"batch_stats"}
