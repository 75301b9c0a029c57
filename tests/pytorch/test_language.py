"""Language models as they are: named inputs, outputs in classes of their own, and caches."""

import dataclasses
from collections import UserDict
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import onebasin as ob
from onebasin.torch import ConversionError


class RunningCache:
    """Keys and values of the tokens so far, of no kind that torch knows."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors


@dataclasses.dataclass
class Outputs:
    logits: torch.Tensor
    memory: Any = None


class Pair(NamedTuple):
    logits: torch.Tensor
    memory: Any


class Text(nn.Module):
    """One layer of attention from words to logits, whose configuration asks for a cache."""

    def __init__(self, returns: Any = Outputs, words: int = 11) -> None:
        super().__init__()
        self.words = nn.Embedding(words, 8)
        self.inner, self.outer = nn.Linear(8, 12), nn.Linear(12, 8)
        self.config = SimpleNamespace(use_cache=True)
        self.returns = returns

    def forward(
        self, input_ids: torch.Tensor, attention_mask: Any = None, use_cache: Any = None
    ) -> Any:
        h = self.words(input_ids)
        if attention_mask is not None:
            h = h * attention_mask[..., None]
        h = h + self.outer(torch.relu(self.inner(h)))
        logits = h @ self.words.weight.T
        asked = self.config.use_cache if use_cache is None else use_cache
        return self.returns(logits, RunningCache(h) if asked else None)


def ids(batch: int = 4) -> torch.Tensor:
    return torch.randint(0, 11, (batch, 5))


MASK = torch.ones(4, 5).index_fill_(1, torch.tensor([4]), 0)


@pytest.mark.parametrize(
    "inputs",
    [
        {"input_ids": ids()},
        {"input_ids": ids(), "attention_mask": MASK},
        {"input_ids": ids(1)},
        UserDict({"input_ids": ids(), "attention_mask": MASK}),
    ],
    ids=["one", "two", "a batch of one", "as a tokenizer gives them"],
)
def test_dictionaries_of_tensors_are_inputs(inputs: Any) -> None:
    torch.manual_seed(0)
    module = Text()
    net, params = ob.from_torch(module, inputs)
    expected = module(**inputs).logits.detach()
    found = net.apply(params, {name: x.numpy() for name, x in inputs.items()})
    np.testing.assert_allclose(found["logits"], expected, rtol=1e-4, atol=1e-5)
    symmetry = ob.discover(module, None, inputs)
    assert max(factor.size for factor in symmetry.factors) == 12
    assert repr(ob.discover(module, inputs)) == repr(symmetry)
    assert repr(ob.discover(net.apply, params, inputs)) == repr(symmetry)
    assert ob.check_symmetry(symmetry, module, inputs) < 1e-9
    assert ob.check_symmetry(symmetry, module, module.state_dict(), inputs) < 1e-9


@pytest.mark.parametrize("returns", [Outputs, Pair, lambda *both: both, lambda *both: list(both)])
def test_caches_are_left_out(returns: Any) -> None:
    module = Text(returns)
    net, params = ob.from_torch(module, ids())
    found = net.apply(params, ids().numpy())
    logits = found["logits"] if returns is Outputs else found[0]
    assert logits.shape == (4, 5, 11)
    assert module.config.use_cache
    assert "forward" not in vars(module)
    assert isinstance(module(ids()), type(returns(1, 2)))


def test_caches_that_are_asked_for_are_left_out() -> None:
    inputs = {"input_ids": ids(), "use_cache": True}
    net, params = ob.from_torch(Text(), inputs)
    arrays = {"input_ids": inputs["input_ids"].numpy(), "use_cache": True}
    assert list(net.apply(params, arrays)) == ["logits"]


def test_a_forward_of_ones_own_is_put_back() -> None:
    module = Text()
    own = module.forward
    module.forward = own
    ob.from_torch(module, ids())
    assert vars(module)["forward"] is own
    with pytest.raises(ConversionError, match="raised IndexError"):
        ob.from_torch(module, ids() + 100)
    assert vars(module)["forward"] is own
    assert module.config.use_cache


def bert(T: Any) -> Any:
    return T.BertModel(
        T.BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=24,
        )
    )


def gpt2(T: Any) -> Any:
    config = T.GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    return T.GPT2LMHeadModel(config)


SMALL = {
    **{"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"num_key_value_heads": 1, "intermediate_size": 24, "max_position_embeddings": 32},
}


def llama(T: Any) -> Any:
    return T.LlamaForCausalLM(T.LlamaConfig(**SMALL))


@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_published_architectures(make: Any) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    module = make(transformers).eval()
    inputs = {"input_ids": torch.randint(0, 50, (3, 7))}
    symmetry = ob.discover(module, inputs)
    widths = {factor.size for factor in symmetry.factors}
    assert widths & {24, 64}
    assert symmetry.log_copies() > 100
