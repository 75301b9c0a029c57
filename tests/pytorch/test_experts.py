"""Mixtures of experts: tokens sorted by expert and put back, or weights fetched for each token."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import onebasin as ob
from onebasin.torch.ops.grouping import grouped_mm, histc, product
from onebasin.torch.table import FAMILIES, TABLE
from pytorch.test_language import SMALL

DIM, WIDTH, EXPERTS, CHOSEN = 6, 5, 4, 2


def multiplied(x: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """What transformers does where PyTorch has no grouped product."""
    result, start = x.new_zeros(len(x), weights.shape[2]), 0
    for number, end in enumerate(offs.tolist()):
        result[start:end] = x[start:end] @ weights[number]
        start = end
    return result


@pytest.fixture(scope="module", autouse=True)
def operator() -> Iterator[None]:
    op = torch.library.custom_op("onebasin_test::grouped", multiplied, mutates_args=())
    op.register_fake(lambda x, weights, offs: x.new_empty(x.shape[0], weights.shape[2]))
    ob.torch.register("onebasin_test.grouped")(grouped_mm)
    yield
    TABLE.pop("onebasin_test.grouped")
    FAMILIES.pop("onebasin_test.grouped")


class Experts(nn.Module):
    """Tokens go to the best two of four experts with gated units."""

    def __init__(self, way: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.way = way
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.inner = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH, DIM) / 2)
        self.bias = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH))
        self.outer = nn.Parameter(torch.randn(EXPERTS, DIM, WIDTH) / 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, DIM)
        chances = torch.softmax(self.router(tokens), -1)
        best, which = torch.topk(chances, CHOSEN, dim=-1)
        found = self.way(self, tokens, best.reshape(-1), which.reshape(-1))
        return (tokens + found).reshape(x.shape)


def gated(h: torch.Tensor) -> torch.Tensor:
    gate, up = h.chunk(2, dim=-1)
    return nn.functional.silu(gate) * up


def summed(h: torch.Tensor) -> torch.Tensor:
    return h.view(-1, CHOSEN, DIM).sum(1)


def fetched(m: Experts, tokens: torch.Tensor, best: torch.Tensor, which: torch.Tensor) -> Any:
    h = tokens.repeat_interleave(CHOSEN, dim=0)
    h = torch.bmm(m.inner[which], h.unsqueeze(-1)).squeeze(-1) + m.bias[which]
    h = torch.bmm(m.outer[which], gated(h).unsqueeze(-1)).squeeze(-1)
    return summed(h * best.unsqueeze(-1))


def grouped(
    m: Experts, tokens: torch.Tensor, best: torch.Tensor, which: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted outputs of experts, sorted by expert, and where they come from."""
    own, places = torch.sort(which, stable=True)
    h = tokens[places // CHOSEN]
    sizes = torch.histc(own.float(), bins=EXPERTS, min=0, max=EXPERTS - 1)
    ends = torch.cumsum(sizes, 0, dtype=torch.int32)
    op = torch.ops.onebasin_test.grouped
    h = op(h, m.inner.transpose(-2, -1), ends) + m.bias[own]
    h = op(gated(h), m.outer.transpose(-2, -1), ends)
    return h * best[places].unsqueeze(-1), places


def by_index_put(m: Experts, *routed: torch.Tensor) -> Any:
    h, places = grouped(m, *routed)
    back = torch.empty_like(places)
    back[places] = torch.arange(places.size(0))
    return summed(h[back])


def by_argsort(m: Experts, *routed: torch.Tensor) -> Any:
    h, places = grouped(m, *routed)
    return summed(h[torch.argsort(places)])


def by_writing(m: Experts, *routed: torch.Tensor) -> Any:
    h, places = grouped(m, *routed)
    result = torch.zeros_like(h)
    result[places] = h
    return summed(result)


def by_adding(m: Experts, *routed: torch.Tensor) -> Any:
    h, places = grouped(m, *routed)
    return torch.zeros_like(routed[0]).index_add(0, places // CHOSEN, h)


WAYS = [fetched, by_index_put, by_argsort, by_writing, by_adding]


def in_order(m: Experts, *routed: torch.Tensor) -> Any:
    """The order makes a difference."""
    return summed(grouped(m, *routed)[0].cumsum(0))


def numbered(m: Experts, *routed: torch.Tensor) -> Any:
    h, places = grouped(m, *routed)
    return summed((h * torch.arange(len(places))[:, None])[torch.argsort(places)])


def of_all(m: Experts, *routed: torch.Tensor) -> Any:
    h, places = grouped(m, *routed)
    return summed(torch.softmax(h, 0) + h.flip(0) + h.mean(0) + places[:, None])


ORDERS = [in_order, numbered, of_all]


@pytest.mark.parametrize("way", [*WAYS, *ORDERS])
def test_the_function_is_the_module(way: Any) -> None:
    torch.manual_seed(0)
    module, x = Experts(way), torch.randn(3, 2, DIM)
    net, params = ob.from_torch(module, x)
    np.testing.assert_allclose(
        net.apply(params, x.numpy()), module(x).detach(), rtol=1e-4, atol=1e-5
    )
    two = jax.vmap(net.apply, in_axes=(0, None))(
        {name: np.stack([w, 2 * w]) for name, w in params.items()}, x.numpy()
    )
    np.testing.assert_allclose(two[0], module(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_experts_trade_places(way: Any) -> None:
    torch.manual_seed(0)
    module, x = Experts(way), torch.randn(3, 2, DIM)
    symmetry = ob.discover(module, x)
    experts, units = symmetry.factors
    assert (experts.size, units.size, units.copies) == (EXPERTS, WIDTH, EXPERTS)
    assert ob.check_symmetry(symmetry, module, x) < 1e-9


@pytest.mark.parametrize("way", ORDERS)
def test_experts_stay_where_their_order_matters(way: Any) -> None:
    torch.manual_seed(0)
    symmetry = ob.discover(Experts(way), torch.randn(3, 2, DIM))
    assert all(factor.size != EXPERTS or factor.copies > 1 for factor in symmetry.factors)


def test_products_of_rows_that_are_many() -> None:
    """As one, and matrix by matrix; a group that has no matrix gives zero."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x = jnp.asarray(rng.normal(size=(3, 2400)))
        weights = jnp.asarray(rng.normal(size=(2, 2400, 2400)))
        groups = jnp.array([1, 2, 0])
        found = product(x, weights, groups)
        few = product(x[:, :50], weights[:, :50, :7], groups)
        ends = grouped_mm(x, weights, jnp.array([1, 3]))
    x, weights = np.asarray(x), np.asarray(weights)
    zero, small, part = np.zeros(2400), x[:, :50], weights[:, :50, :7]
    np.testing.assert_allclose(found, [x[0] @ weights[1], zero, x[2] @ weights[0]], atol=1e-9)
    wanted = [small[0] @ part[1], np.zeros(7), small[2] @ part[0]]
    np.testing.assert_allclose(few, wanted, atol=1e-12)
    wanted = [x[0] @ weights[0], x[1] @ weights[1], x[2] @ weights[1]]
    np.testing.assert_allclose(ends, wanted, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"bins": 7}, {"bins": 5, "min": -1, "max": 1.5}])
def test_histograms(options: Any) -> None:
    x = torch.randn(200, generator=torch.Generator().manual_seed(0))
    x[:3] = torch.tensor([-1.0, 1.5, 0.5])
    np.testing.assert_array_equal(histc(x.numpy(), **options), torch.histc(x, **options))
    whole = torch.arange(9).repeat(3).float()
    found = histc(whole.numpy(), 9, 0, 8)
    np.testing.assert_array_equal(found, torch.histc(whole, 9, 0, 8))


def mixtral(T: Any) -> Any:
    more = {"num_local_experts": 4, "num_experts_per_tok": 2}
    return T.MixtralForCausalLM(T.MixtralConfig(**SMALL, **more))


def qwen(T: Any) -> Any:
    more = {"moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
    return T.Qwen3MoeForCausalLM(T.Qwen3MoeConfig(**SMALL, **more))


def deepseek(T: Any) -> Any:
    names = "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"
    more = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1}
    config = T.DeepseekV3Config(
        **SMALL | {"num_hidden_layers": 2, "num_key_value_heads": 2},
        **{"first_k_dense_replace": 1, "moe_intermediate_size": 8},
        **more,
        **dict.fromkeys(names, 4),
    )
    return T.DeepseekV3ForCausalLM(config)


@pytest.mark.parametrize("make", [mixtral, qwen, deepseek])
def test_published_architectures(make: Any) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    module = make(transformers).eval()
    inputs = {"input_ids": torch.randint(0, 50, (3, 7))}
    factors = ob.discover(module, inputs).factors
    found = [factor for factor in factors if factor.name.endswith("mlp.gate.weight")]
    # In groups of experts, two by two, for the last.
    assert [factor.size * factor.copies for factor in found] == [4]
