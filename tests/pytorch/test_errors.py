"""Every bad input ends in one sentence that says what to do."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import onebasin as ob
from onebasin.symmetry import discover
from onebasin.torch import ConversionError
from onebasin.torch.table import FAMILIES, TABLE


class Function(nn.Module):
    """A linear layer and then anything."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.linear(x))


def branches(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x


X = torch.randn(4, 3)
REFUSED: dict[str, tuple[nn.Module, str]] = {
    "dropout": (nn.Sequential(nn.Linear(3, 3), nn.Dropout()), r"\(1\): call module.eval\(\)"),
    "batch norm": (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), r"\(1\): call module.eval"),
    "dropout by function": (
        Function(lambda x: nn.functional.dropout(x, 0.5, training=True)),
        r"aten.dropout.default\): call module.eval\(\)",
    ),
    "random numbers": (
        Function(lambda x: x + torch.randn_like(x)),
        "draws random numbers in forward.*randn_like",
    ),
    "branches": (Function(branches), "torch.export cannot trace.*torch.where"),
    "a mask of unknown size": (Function(lambda x: x[x > 0]), "torch.where"),
    "complex weights": (nn.Linear(3, 3, dtype=torch.complex64), "'weight' is of type.*complex"),
    "another device": (
        nn.Linear(3, 3, device="meta"),
        r"on the device 'meta': call module.cpu\(\)",
    ),
    "lazy": (nn.LazyLinear(3), "has no shape yet: run the module once"),
    "no parameters": (nn.ReLU(), "no floating-point parameters"),
    "other inputs": (nn.Linear(5, 3), "raised RuntimeError: .*on the example inputs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    module, sentence = REFUSED[name]
    with pytest.raises(ConversionError, match=sentence) as caught:
        ob.from_torch(module, X)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_modules() -> None:
    with pytest.raises(ConversionError, match=r"compiled by torch.jit"):
        ob.from_torch(torch.jit.script(nn.Linear(3, 3)), X)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantised_weights() -> None:
    module = nn.Module()
    module.register_buffer("w", torch.quantize_per_tensor(X, 0.1, 0, torch.qint8))
    with pytest.raises(ConversionError, match="'w' is a quantised tensor"):
        ob.from_torch(module, X)


def test_doubles_need_doubles() -> None:
    with pytest.raises(ConversionError, match=r"narrows to float32: switch on jax_enable_x64"):
        ob.from_torch(nn.Linear(3, 3).double(), X.double())


def test_inputs_that_are_none() -> None:
    module = nn.Linear(3, 3)
    with pytest.raises(ConversionError, match="the inputs are a str, expected a tensor"):
        ob.from_torch(module, "abc")
    with pytest.raises(ConversionError, match=r"an input is a shape.*give an example"):
        ob.from_torch(module, jax.ShapeDtypeStruct((4, 3), jnp.float32))
    with pytest.raises(ConversionError, match=r"got a str, expected a torch.nn.Module"):
        ob.from_torch("module", X)
    with pytest.raises(ConversionError, match="an input is on the device 'meta'"):
        ob.from_torch(module, torch.empty(4, 3, device="meta"))


def test_all_missing_operators_at_once() -> None:
    module = Function(lambda x: torch.linalg.svdvals(x.t() @ x) + torch.special.airy_ai(x).sum())
    with pytest.raises(ConversionError, match="no rule for") as caught:
        ob.from_torch(module, X)
    assert "airy_ai" in str(caught.value)
    assert "svd" in str(caught.value)
    assert "onebasin.torch.register" in str(caught.value)


def test_a_rule_of_ones_own() -> None:
    module = Function(torch.special.spherical_bessel_j0)
    with pytest.raises(ConversionError, match=r"aten.special_spherical_bessel_j0.default"):
        ob.from_torch(module, X)
    try:

        @ob.torch.register("aten.special_spherical_bessel_j0")
        def wrong(x: Any) -> Any:
            return x

        with pytest.raises(ConversionError, match=r"differs from the module by .* in float64"):
            ob.from_torch(module, X)

        @ob.torch.register("aten.special_spherical_bessel_j0")
        def right(x: Any) -> Any:
            return jnp.sinc(x / jnp.pi)

        net, params = ob.from_torch(module, X)
        found = net.apply(params, X.numpy())
        np.testing.assert_allclose(found, module(X).detach(), rtol=1e-4, atol=1e-6)
    finally:
        TABLE.pop("aten.special_spherical_bessel_j0", None)
        FAMILIES.pop("aten.special_spherical_bessel_j0", None)


def test_operators_of_ones_own() -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        return 3 * x

    triple = torch.library.custom_op("onebasin_test::triple", plain, mutates_args=())
    triple.register_fake(torch.empty_like)
    try:
        ob.torch.register("onebasin_test.triple")(lambda x: 3 * x)
        net, params = ob.from_torch(Function(triple), X)
        expected = 3 * (X.numpy() @ params["linear.weight"].T + params["linear.bias"])
        np.testing.assert_allclose(net.apply(params, X.numpy()), expected, rtol=1e-5, atol=1e-5)
    finally:
        TABLE.pop("onebasin_test.triple", None)
        FAMILIES.pop("onebasin_test.triple", None)


@pytest.mark.parametrize("name", ["softsign", "aten.", "aten.add.Tensor.more", 3])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(ValueError, match="expected its namespace and name"):
        ob.torch.register(name)


def test_calls_that_do_not_fit() -> None:
    net, params = ob.from_torch(nn.Linear(3, 2), X)
    assert net.apply(params, np.ones((7, 3), np.float32)).shape == (7, 2)
    with pytest.raises(ValueError, match=r"shape \(7, 4\).*converted for \(any, 3\)"):
        net.apply(params, np.ones((7, 4), np.float32))
    with pytest.raises(ValueError, match="give them in the same form"):
        net.apply(params, (np.ones((7, 3), np.float32),) * 2)
    with pytest.raises(ValueError, match="the parameters have no 'bias'"):
        net.apply({"weight": params["weight"]}, X.numpy())


def test_a_fixed_batch_stays_fixed() -> None:
    """`len` of a tensor is a number of its own to the exporter, and not a size."""
    net, params = ob.from_torch(Function(lambda x: x.expand(2, len(x), -1)), X)
    assert net.apply(params, X.numpy()).shape == (2, 4, 3)
    with pytest.raises(ValueError, match=r"converted for \(4, 3\): convert it again"):
        net.apply(params, np.ones((5, 3), np.float32))


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_module_that_takes_its_batch_size(batch: int) -> None:
    """Of one example or two it is the size that was given, and not one that export prefers."""
    module = Function(lambda x: x.view(len(x), 1, -1).expand(len(x), 2, -1))
    x = X[:batch]
    net, params = ob.from_torch(module, x)
    np.testing.assert_allclose(
        net.apply(params, x.numpy()), module(x).detach(), rtol=1e-5, atol=1e-6
    )
    assert ob.discover(module, x).log_copies() == 0
    with pytest.raises(ValueError, match=rf"\({batch}, 3\).*for any batch write x.shape\[0\]"):
        net.apply(params, np.ones((batch + 1, 3), np.float32))


def test_modules_are_left_as_they_are() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    assert module.training
    ob.from_torch(module, X)
    assert module.training
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.get_default_dtype() == torch.float32
    assert all(p.requires_grad for p in module.parameters())


def test_discovery_alone_says_how_to_convert() -> None:
    with pytest.raises(ob.SymmetryError, match=r"a PyTorch module.*onebasin.from_torch"):
        discover(nn.Linear(3, 2), {}, X)
