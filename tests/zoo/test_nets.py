from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onebasin import nets


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
        (lambda: nets.optunet(outputs=0), r"outputs=0.*a positive integer"),
        (lambda: shapes(nets.optunet(), 1, 32, 32, 3), r"\(1, 32, 32, 3\).*\(batch, 28, 28, 1\)"),
        (lambda: shapes(nets.cnn(), 1, 784), r"cnn got inputs of shape \(1, 784\).*reshape"),
    ],
)
def test_bad_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
