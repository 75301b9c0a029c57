"""Parameters there and back, and checkpoints in files."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import onebasin as ob
from onebasin.torch import ConversionError
from pytorch.modules import GPT, MODULES, ResNet, build


@pytest.mark.parametrize("name", ["resnet", "gpt", "lstm, two layers, both ways"])
def test_there_and_back_bit_for_bit(name: str) -> None:
    module, x = build(name)
    _, params = ob.from_torch(module, x)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    other = MODULES[name][0]().eval()
    ob.to_torch(params, other)
    for key, value in other.state_dict().items():
        assert torch.equal(value, before[key]) or "num_batches" in key
    assert all(torch.equal(module.state_dict()[k], before[k]) for k in before)
    again = ob.from_torch(other, x)[1]
    assert list(again) == list(params)
    assert all(np.array_equal(again[k], params[k]) for k in params)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_there_and_back(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = nn.Linear(4, 3).to(dtype)
    x = torch.randn(2, 4).to(dtype)
    net, params = ob.from_torch(module, x)
    assert str(params["weight"].dtype) == str(dtype).removeprefix("torch.")
    outputs = net.apply(params, jnp.asarray(x.float().numpy(), params["weight"].dtype))
    assert outputs.dtype == params["weight"].dtype
    found = ob.torch.state_dict(params)
    assert all(torch.equal(found[k], v) for k, v in module.state_dict().items())


def test_parameters_do_not_share_memory_with_the_module() -> None:
    module = nn.Linear(3, 2)
    _, params = ob.from_torch(module, torch.ones(1, 3))
    before = np.array(params["weight"])
    with torch.no_grad():
        module.weight.add_(1)
    assert np.array_equal(params["weight"], before)
    ob.to_torch(params, module)
    with torch.no_grad():
        module.weight.add_(1)
    assert np.array_equal(params["weight"], before)


def test_tied_weights_are_one_parameter() -> None:
    module, x = build("gpt")
    _, params = ob.from_torch(module, x)
    assert "wte.weight" in params
    assert "lm_head.weight" not in params
    full = ob.torch.state_dict(params, module)
    assert set(full) == set(module.state_dict())
    GPT().load_state_dict(full)


def test_masks_and_counts_are_not_parameters() -> None:
    module, x = build("gpt")
    assert not any(name.endswith(".attn.bias") for name in ob.from_torch(module, x)[1])
    module, x = build("resnet")
    params = ob.from_torch(module, x)[1]
    assert "bn1.running_var" in params
    assert not any("num_batches" in name for name in params)
    assert all(jnp.issubdtype(x.dtype, jnp.floating) for x in params.values())


def test_state_that_does_not_fit_names_the_first_key() -> None:
    module, x = build("mlp")
    _, params = ob.from_torch(module, x)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    with pytest.raises(ConversionError, match=r"have no '0.bias', which the module has"):
        ob.to_torch({k: v for k, v in params.items() if k != "0.bias"}, module)
    with pytest.raises(ConversionError, match="have 'more', which the module has not"):
        ob.to_torch({**params, "more": jnp.ones(1)}, module)
    with pytest.raises(ConversionError, match=r"'0.bias' has shape \(2, 8\).*pick one"):
        ob.to_torch({**params, "0.bias": jnp.ones((2, 8))}, module)
    with pytest.raises(ConversionError, match=r"expected a torch.nn.Module"):
        ob.to_torch(module, params)
    with pytest.raises(ConversionError, match="expected a dictionary"):
        ob.torch.state_dict([1])
    assert all(torch.equal(module.state_dict()[k], before[k]) for k in before)


def test_initial_parameters() -> None:
    module, x = build("resnet")
    net, params = ob.from_torch(module, x)
    first, second = (net.init(jax.random.key(seed), x.numpy()) for seed in (0, 1))
    assert jax.tree.map(jnp.shape, first) == jax.tree.map(jnp.shape, params)
    weight = "layer1.0.conv1.weight"
    assert not np.array_equal(first[weight], second[weight])
    assert float(first[weight].std()) == pytest.approx(float(params[weight].std()), rel=0.2)
    assert np.array_equal(first["bn1.running_var"], params["bn1.running_var"])
    stacked = jax.jit(jax.vmap(lambda key: net.init(key, x.numpy())))(
        jax.random.split(jax.random.key(2), 3)
    )
    assert stacked[weight].shape == (3, *params[weight].shape)


def halved(module: nn.Module) -> dict[str, torch.Tensor]:
    state = module.state_dict()
    return {k: v.half() if v.is_floating_point() else v for k, v in state.items()}


def saved(path: Path, state: Any) -> Path:
    if path.suffix == ".safetensors":
        save_file({k: v.contiguous() for k, v in state.items()}, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_checkpoints_in_half_precision(tmp_path: Path, suffix: str) -> None:
    module, x = build("resnet")
    half = {
        f"module.{k}": v.half() if v.is_floating_point() else v
        for k, v in module.state_dict().items()
    }
    path = saved(tmp_path / f"net{suffix}", half)
    params = ob.torch.load_checkpoint(path, ResNet())
    net, _ = ob.from_torch(module, x)
    assert params["fc.weight"].dtype == jnp.float32
    expected = module.half().float()(x)
    found = net.apply(params, x.numpy())
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-4, atol=1e-4)
    other = ob.to_torch(params, ResNet()).eval()
    np.testing.assert_allclose(other(x).detach(), expected.detach(), rtol=1e-5, atol=1e-5)


class OptuNet(nn.Module):
    """The published layout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 4, bias=False)
        self.conv2 = nn.Conv2d(2, 10, 5, groups=2, bias=False)
        self.fc = nn.Linear(10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 3)
        return self.fc(torch.relu(self.conv2(x)).mean((2, 3)))


def resnet18() -> nn.Module:
    return ResNet((64, 128, 256, 512), 2, channels=3)


PUBLISHED: dict[str, Any] = {
    "resnet18": (resnet18, ob.nets.resnet18(outputs=10), (2, 3, 32, 32)),
    "optunet": (OptuNet, ob.nets.optunet(), (2, 1, 28, 28)),
}


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_layouts_load_into_our_zoo_and_torch_modules(
    tmp_path: Path, name: str, suffix: str
) -> None:
    make, ours, shape = PUBLISHED[name]
    torch.manual_seed(0)
    x = torch.randn(shape)
    path = saved(tmp_path / f"net{suffix}", halved(make()))
    own = jnp.asarray(np.moveaxis(x.numpy(), 1, -1))
    like = jax.eval_shape(ours.init, jax.random.key(0), own)
    found = jax.jit(ours.apply)(ob.store.open_torch(path, name, like), own)
    module = make()
    loaded = ob.to_torch(ob.torch.load_checkpoint(path, module), module).eval()
    np.testing.assert_allclose(found, loaded(x).detach(), rtol=1e-3, atol=1e-3)


def test_bad_checkpoints_say_so(tmp_path: Path) -> None:
    module, _ = build("mlp")
    state = module.state_dict()
    with pytest.raises(ConversionError, match="there is no file"):
        ob.torch.load_checkpoint(tmp_path / "none.pt", module)
    torch.save(module, tmp_path / "whole.pt")
    with pytest.raises(ConversionError, match=r"weights_only=True.*state_dict\(\) alone"):
        ob.torch.load_checkpoint(tmp_path / "whole.pt", module)
    with pytest.raises(ob.store.CheckpointError, match="weights_only"):
        ob.store.open_torch(tmp_path / "whole.pt", {"w": "w"}, {"w": np.zeros(1)})
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(ConversionError, match=r"5 bytes\) is not a safetensors file"):
        ob.torch.load_checkpoint(tmp_path / "text.safetensors", module)
    torch.save({"a": 1}, tmp_path / "numbers.pt")
    with pytest.raises(ConversionError, match="something else than tensors"):
        ob.torch.load_checkpoint(tmp_path / "numbers.pt", module)
    wrapped = saved(tmp_path / "wrapped.pt", {"state_dict": state, "epoch": 3})
    assert set(ob.torch.load_checkpoint(wrapped, module)) == set(state)
    missing = saved(tmp_path / "a.pt", {k: v for k, v in state.items() if k != "2.bias"})
    with pytest.raises(ConversionError, match=r"has no tensor '2.bias', and the module has one"):
        ob.torch.load_checkpoint(missing, module)
    more = saved(tmp_path / "b.pt", {**state, "x": torch.ones(1)})
    with pytest.raises(ConversionError, match="has a tensor 'x', and the module has none"):
        ob.torch.load_checkpoint(more, module)
    wrong = saved(tmp_path / "c.pt", {**state, "2.bias": torch.ones(3)})
    with pytest.raises(ConversionError, match=r"'2.bias' of shape \(3,\).*expects \(8,\)"):
        ob.torch.load_checkpoint(wrong, module)
