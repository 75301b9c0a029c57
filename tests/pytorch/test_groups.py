"""Groups: those of Flax twins, and proved in PyTorch itself."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn as tnn

import onebasin as ob
from pytorch.modules import MODULES, ResNet, Tied, ViT, build


class Mlp(nn.Module):
    activation: Callable[[Any], Any] = nn.relu
    norm: str = ""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in (7, 6):
            x = nn.Dense(width)(x)
            if self.norm == "batch":
                x = nn.BatchNorm(use_running_average=True)(x)
            if self.norm == "layer":
                x = nn.LayerNorm()(x)
            x = self.activation(x)
        return nn.Dense(3)(x)


class Cnn(nn.Module):
    groups: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.tanh(nn.Conv(6, (3, 3), feature_group_count=self.groups)(x))
        return nn.Dense(3)(x.reshape(len(x), -1))


class Block(nn.Module):
    outs: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        def conv(y: jax.Array, size: int, stride: int) -> jax.Array:
            y = nn.Conv(self.outs, (size, size), (stride, stride), use_bias=False)(y)
            return nn.BatchNorm(use_running_average=True)(y)

        y = conv(nn.relu(conv(x, 3, self.stride)), 3, 1)
        return nn.relu(y + (x if self.stride == 1 else conv(x, 1, self.stride)))


class TwinResNet(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Conv(8, (3, 3), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = Block(16, 2)(Block(8, 1)(x))
        return nn.Dense(10)(x.mean(axis=(1, 2)))


class TwinViT(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Conv(16, (4, 4), (4, 4))(x)
        x = x.reshape(len(x), -1, 16)
        token = self.param("token", nn.initializers.normal(), (1, 1, 16))
        x = jnp.concatenate([jnp.broadcast_to(token, (len(x), 1, 16)), x], axis=1)
        x = x + self.param("positions", nn.initializers.normal(), (1, 5, 16))
        for _ in range(2):
            x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x))
            x = x + nn.Dense(16)(nn.gelu(nn.Dense(64)(nn.LayerNorm()(x))))
        return nn.Dense(10)(nn.LayerNorm()(x)[:, 0])


class Autoencoder(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        weight = self.param("weight", nn.initializers.normal(), (6, 4))
        inner, outer = (
            self.param(n, nn.initializers.normal(), (s,)) for n, s in (("a", 6), ("b", 4))
        )
        return nn.relu(x @ weight.T + inner) @ weight + outer


class Glu(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(3)(nn.glu(nn.Dense(12)(x)))


def gru(params: Any, x: jax.Array) -> jax.Array:
    """PyTorch's GRU, which has two biases where Flax's has one, in plain JAX."""
    w, u, b, c, head = params

    def step(h: jax.Array, now: jax.Array) -> Any:
        r, z, n = jnp.split(now, 3, -1)
        hr, hz, hn = jnp.split(h @ u.T + c, 3, -1)
        update = nn.sigmoid(z + hz)
        h = (1 - update) * jnp.tanh(n + nn.sigmoid(r + hr) * hn) + update * h
        return h, None

    h, _ = jax.lax.scan(step, jnp.zeros((len(x), 5)), jnp.swapaxes(x @ w.T + b, 0, 1))
    return h @ head


def mlp(activation: Any, norm: Any = None) -> Callable[[], tnn.Module]:
    def make() -> tnn.Module:
        layers: list[tnn.Module] = []
        for ins, outs in ((4, 7), (7, 6)):
            layers += [tnn.Linear(ins, outs), *([norm(outs)] if norm else []), activation()]
        return tnn.Sequential(*layers, tnn.Linear(6, 3))

    return make


def cnn(groups: int) -> Callable[[], tnn.Module]:
    return lambda: tnn.Sequential(
        tnn.Conv2d(1, 4, 3, padding="same"), tnn.ReLU(), tnn.MaxPool2d(2),
        tnn.Conv2d(4, 6, 3, padding="same", groups=groups), tnn.Tanh(),
        tnn.Flatten(), tnn.Linear(6 * 9, 3),
    )  # fmt: skip


def gated() -> tnn.Module:
    return tnn.Sequential(tnn.Linear(4, 12), tnn.GLU(), tnn.Linear(6, 3))


class Last(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = tnn.GRU(3, 5, batch_first=True), tnn.Linear(5, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[1][-1])


GRU = [np.ones(s, "f") for s in ((15, 3), (15, 5), (15,), (15,), (5, 2))]
FLAT, IMAGE = (2, 4), (2, 1, 6, 6)
TWINS: dict[str, tuple[Callable[[], tnn.Module], Any, tuple[int, ...]]] = {
    "mlp, relu": (mlp(tnn.ReLU), Mlp(), FLAT),
    "mlp, tanh": (mlp(tnn.Tanh), Mlp(nn.tanh), FLAT),
    "mlp, gelu": (mlp(tnn.GELU), Mlp(nn.gelu), FLAT),
    "mlp, batch norm": (mlp(tnn.ReLU, tnn.BatchNorm1d), Mlp(norm="batch"), FLAT),
    "mlp, layer norm": (mlp(tnn.ReLU, tnn.LayerNorm), Mlp(norm="layer"), FLAT),
    "cnn": (cnn(1), Cnn(), IMAGE),
    "cnn with groups": (cnn(2), Cnn(2), IMAGE),
    "resnet": (ResNet, TwinResNet(), (2, 1, 8, 8)),
    "vit": (ViT, TwinViT(), (2, 3, 8, 8)),
    "tied autoencoder": (Tied, Autoencoder(), FLAT),
    "gated unit": (gated, Glu(), FLAT),
    "gru": (Last, gru, (2, 6, 3)),
}


def described(symmetry: ob.Symmetry) -> Counter:
    return Counter((f.size, f.copies, tuple(sorted(f.kinds))) for f in symmetry.factors)


@pytest.mark.parametrize("name", TWINS)
def test_group_is_that_of_the_twin(name: str) -> None:
    make, twin, shape = TWINS[name]
    torch.manual_seed(0)
    x = torch.randn(shape)
    net, params = ob.from_torch(make().eval(), x)
    found = ob.discover(net.apply, params, x.numpy())
    own = jnp.asarray(np.moveaxis(x.numpy(), 1, -1) if x.ndim == 4 else x.numpy())
    if isinstance(twin, nn.Module):
        weights = jax.jit(twin.init)(jax.random.key(0), own)
        expected = ob.discover(twin.apply, weights, own)
    else:
        expected = ob.discover(twin, GRU, own)
    assert described(found) == described(expected)
    assert found.log_copies() == pytest.approx(expected.log_copies())
    assert found.scaling_dimension() == expected.scaling_dimension()


class Masked(tnn.Module):
    """An encoder, or attention alone, with the masks that are named."""

    def __init__(self, masks: str, weights: bool | None = None) -> None:
        super().__init__()
        layer = tnn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = tnn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.attention = tnn.MultiheadAttention(16, 4, batch_first=True)
        self.masks, self.weights = masks, weights

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        causal = "causal" in self.masks
        mask = tnn.Transformer.generate_square_subsequent_mask(x.shape[1]) if causal else None
        hidden = padding if "padding" in self.masks else None
        if self.weights is None:
            return self.encoder(x, mask, hidden, is_causal=causal)
        return self.attention(x, x, x, hidden, self.weights, mask)[0]


@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
@pytest.mark.parametrize("weights", [None, False, True])
def test_masks_leave_heads_alike(weights: bool | None) -> None:
    torch.manual_seed(0)
    x, padding = torch.randn(3, 5, 16), torch.zeros(3, 5)
    padding[0, 3:] = -torch.inf
    groups = []
    for masks in ("", "causal", "padding", "causal, padding"):
        module = Masked(masks, weights).eval()
        net, params = ob.from_torch(module, (x, padding))
        groups.append(ob.discover(net.apply, params, (x.numpy(), padding.numpy())))
        moved = groups[-1].act(groups[-1].random(jax.random.key(1)), params)
        with torch.no_grad():
            before = module(x, padding)
            after = ob.to_torch(moved, module)(x, padding)
        assert float((after - before).abs().max() / before.abs().max()) < 1e-4
    assert sum(f.size == 4 and f.copies == 1 for f in groups[0].factors) == (weights is None) + 1
    assert all(described(group) == described(groups[0]) for group in groups)


PROVED = (
    "resnet",
    "vit",
    "gpt",
    "lstm, two layers, both ways",
    "u-net, transposed",
    "text classifier",
)


@pytest.mark.parametrize("name", PROVED)
def test_elements_leave_the_module_alone_in_torch(name: str) -> None:
    """Moved in JAX in single precision, so that the module has to agree in that."""
    module, x = build(name)
    assert name in MODULES
    net, params = ob.from_torch(module, x)
    symmetry = ob.discover(net.apply, params, x.numpy())
    assert symmetry.factors
    with torch.no_grad():
        before = module(x)
        moved = symmetry.act(symmetry.random(jax.random.key(1)), params)
        assert any(not np.array_equal(moved[n], params[n]) for n in params)
        after = ob.to_torch(moved, module)(x)
    assert float((after - before).abs().max() / before.abs().max()) < 1e-4


def test_elements_leave_the_module_alone_in_doubles() -> None:
    module, x = build("resnet")
    module, x = module.double(), x.double()
    with jax.enable_x64(True):
        net, params = ob.from_torch(module, x)
        symmetry = ob.discover(net.apply, params, x.numpy())
        moved = symmetry.act(symmetry.random(jax.random.key(1)), params)
        with torch.no_grad():
            before = module(x)
            after = ob.to_torch(moved, module)(x)
    assert float((after - before).abs().max() / before.abs().max()) < 1e-12
