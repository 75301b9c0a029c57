"""Random graphs of supported operators compute what PyTorch computes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

import onebasin as ob

WIDTH = 4
Operation = Callable[["Graph", Tensor, Tensor], Tensor]


def conv(g: "Graph", x: Tensor, y: Tensor) -> Tensor:
    return functional.conv1d(x[:, None], g.kernel, g.bias[:3], padding=1).mean(1)


def attend(g: "Graph", x: Tensor, y: Tensor) -> Tensor:
    q, k = x.reshape(-1, 2, 2), y.reshape(-1, 2, 2)
    return functional.scaled_dot_product_attention(q, k, q).reshape(-1, WIDTH)


def written(g: "Graph", x: Tensor, y: Tensor) -> Tensor:
    z = x.clone()
    z[:, 1:3] *= 0.5
    z[:, 0] = y[:, -1]
    return z


OPERATIONS: dict[str, Operation] = {
    "linear": lambda g, x, y: functional.linear(x, g.weight, g.bias),
    "add": lambda g, x, y: torch.add(x, y, alpha=0.5),
    "sub": lambda g, x, y: x - y * g.bias,
    "product": lambda g, x, y: x * torch.sigmoid(y),
    "quotient": lambda g, x, y: x / (1 + y.abs()),
    "power": lambda g, x, y: (1 + x.pow(2)).pow(0.5),
    "relu": lambda g, x, y: functional.relu(x),
    "gelu": lambda g, x, y: functional.gelu(x),
    "silu": lambda g, x, y: functional.silu(x),
    "elu": lambda g, x, y: functional.elu(x),
    "softplus": lambda g, x, y: functional.softplus(x, beta=2.0),
    "tanh": lambda g, x, y: x.tanh() + y.tanh(),
    "clamp": lambda g, x, y: x.clamp(-0.5, 0.7),
    "leaky": lambda g, x, y: functional.leaky_relu(x, 0.1),
    "softmax": lambda g, x, y: x.softmax(-1),
    "log softmax": lambda g, x, y: functional.log_softmax(x, -1) * 0.1,
    "layer norm": lambda g, x, y: functional.layer_norm(x, (WIDTH,), g.bias, eps=1e-2),
    "group norm": lambda g, x, y: functional.group_norm(x, 2, g.bias, eps=1e-2),
    "batch norm": lambda g, x, y: functional.batch_norm(x, *g.moments(), g.bias),
    "mean": lambda g, x, y: x - x.mean(-1, keepdim=True),
    "spread": lambda g, x, y: x / (1 + y.std(-1, keepdim=True)),
    "sum": lambda g, x, y: x + y.sum(-1, keepdim=True) * 0.1,
    "largest": lambda g, x, y: x - y.amax(-1, keepdim=True),
    "running sum": lambda g, x, y: x.cumsum(-1) * 0.3,
    "flip": lambda g, x, y: x.flip(-1) + y.roll(1, -1),
    "halves": lambda g, x, y: torch.cat([x.chunk(2, -1)[1], y[:, :2]], dim=-1),
    "stack": lambda g, x, y: torch.stack([x, y], 1).max(1).values,
    "matrix": lambda g, x, y: torch.einsum("bi,ij->bj", x, g.weight) * y,
    "permuted": lambda g, x, y: x.view(-1, 2, 2).permute(0, 2, 1).reshape(-1, WIDTH),
    "where": lambda g, x, y: torch.where(x > y, x, y * 0.5),
    "masked": lambda g, x, y: x.masked_fill(y > 0.5, 0.0),
    "gathered": lambda g, x, y: x.gather(1, g.order.expand(x.shape[0], -1)),
    "indexed": lambda g, x, y: x[:, g.order],
    "sorted": lambda g, x, y: x.sort(-1).values,
    "padded": lambda g, x, y: functional.pad(x, (1, 1))[:, 1:-1] + y[:, ::2].repeat(1, 2),
    "glu": lambda g, x, y: functional.glu(torch.cat([x, y], -1)),
    "pooled": lambda g, x, y: functional.avg_pool1d(x[:, None], 3, 1, 1).squeeze(1),
    "peaks": lambda g, x, y: functional.max_pool1d(x[:, None], 3, 1, 1).squeeze(1),
    "conv": conv,
    "attend": attend,
    "written": written,
    "mixed": lambda g, x, y: torch.lerp(x, y, 0.3),
    "norm": lambda g, x, y: functional.normalize(x + 0.1, dim=-1),
    "negative": lambda g, x, y: -x + torch.maximum(x, y) - torch.minimum(x, y),
}


class Graph(nn.Module):
    """Each step takes two of the values before it."""

    order: Tensor
    weight: Any
    bias: Any

    def __init__(self, steps: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.steps = steps
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) * 0.5)
        self.bias = nn.Parameter(torch.randn(WIDTH) * 0.5)
        self.kernel = nn.Parameter(torch.randn(3, 1, 3) * 0.5)
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))

    def moments(self) -> tuple[Tensor, Tensor]:
        weight = self.weight.detach()
        return weight[0], 1 + weight[1].abs()

    def forward(self, x: Tensor) -> Tensor:
        values = [functional.linear(x, self.weight, self.bias), x]
        for name, first, second in self.steps:
            operation = OPERATIONS[name]
            values.append(
                operation(self, values[first % len(values)], values[second % len(values)])
            )
        return values[-1] + self.kernel.sum()


STEPS = st.lists(
    st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9), st.integers(0, 9)),
    min_size=3,
    max_size=9,
)


# Each example is an export: making a failing one smaller takes minutes.
@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(steps=STEPS, seed=st.integers(0, 10))
def test_random_graph(steps: list[tuple[str, int, int]], seed: int) -> None:
    torch.manual_seed(seed)
    module = Graph(steps).double()
    x = torch.randn(3, WIDTH, dtype=torch.float64)
    with jax.enable_x64(True):
        net, params = ob.from_torch(module, x)
        more = torch.randn(5, WIDTH, dtype=torch.float64)
        found = jax.jit(net.apply)(params, jnp.asarray(more.numpy()))
        expected = module(more).detach().numpy()
        scale = max(np.abs(expected).max(), 1e-9)
        np.testing.assert_allclose(np.asarray(found), expected, atol=1e-11 * scale, rtol=1e-9)


def test_every_operation_by_itself() -> None:
    """All of them at once, so that none is missing where the random graphs are few."""
    torch.manual_seed(0)
    module: Any = Graph([(name, 0, 1) for name in OPERATIONS])

    def outputs(self: Graph, x: Tensor) -> list[Tensor]:
        y = functional.linear(x, self.weight, self.bias)
        return [OPERATIONS[name](self, y, x) for name, _, _ in self.steps]

    module.forward = outputs.__get__(module)
    x = torch.randn(3, WIDTH)
    net, params = ob.from_torch(module, x)
    for name, a, b in zip(OPERATIONS, net.apply(params, x.numpy()), module(x), strict=True):
        np.testing.assert_allclose(a, b.detach(), rtol=1e-4, atol=1e-5, err_msg=name)
