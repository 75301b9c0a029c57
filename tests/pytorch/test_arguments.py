"""Public functions take PyTorch modules, state dicts and tensors as they are."""

import pickle
from collections import OrderedDict
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import nn

import onebasin as ob
from onebasin.torch import ConversionError
from pytorch.modules import build


def make() -> nn.Module:
    layers = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    return nn.Sequential(*layers).eval()


torch.manual_seed(0)
FIRST, SECOND = make(), make()
X, Y = torch.randn(30, 4), torch.randint(0, 3, (30,))
NET, A = ob.from_torch(FIRST, X)
B = ob.from_torch(SECOND, X)[1]
SYMMETRY = ob.discover(NET.apply, A, X.numpy())
MIDDLE = {name: 0.9 * x for name, x in A.items()}
AT_WORK = {"cost": "activations", "apply_fn": NET.apply, "inputs": X.numpy()}
ALIKE: dict[str, tuple[Any, Any]] = {
    "align modules": (
        lambda: ob.align(SYMMETRY, SECOND, to=FIRST).params,
        lambda: ob.align(SYMMETRY, B, to=A).params,
    ),
    "align state dicts": (
        lambda: ob.align(SYMMETRY, SECOND.state_dict(), to=FIRST.state_dict()).params,
        lambda: ob.align(SYMMETRY, B, to=A).params,
    ),
    "align on data": (
        lambda: (
            ob.align(SYMMETRY, SECOND, FIRST, cost="activations", apply_fn=FIRST, inputs=X).params
        ),
        lambda: ob.align(SYMMETRY, B, A, **AT_WORK).params,
    ),
    "canonicalize": (
        lambda: ob.canonicalize(SYMMETRY, FIRST),
        lambda: ob.canonicalize(SYMMETRY, A),
    ),
    "interpolate": (
        lambda: ob.interpolate(FIRST, SECOND.state_dict(), 0.3),
        lambda: ob.interpolate(A, B, 0.3),
    ),
    "barrier": (
        lambda: ob.barrier(ob.marginal_loss(FIRST, X, Y), FIRST, SECOND, 3).curve,
        lambda: ob.barrier(ob.marginal_loss(NET.apply, X.numpy(), Y.numpy()), A, B, 3).curve,
    ),
    "losses": (
        lambda: ob.plane(ob.losses(FIRST, (X, Y)), FIRST, SECOND, MIDDLE, 3).values,
        lambda: ob.plane(ob.losses(NET.apply, (X.numpy(), Y.numpy())), A, B, MIDDLE, 3).values,
    ),
    "reset of statistics": (
        lambda: ob.reset_batch_norm(FIRST, FIRST, X).repaired,
        lambda: ob.reset_batch_norm(NET.apply, A, X.numpy()).repaired,
    ),
    "repair": (
        lambda: ob.repair(FIRST, A, FIRST, SECOND, X).repaired,
        lambda: ob.repair(NET.apply, A, A, B, X.numpy()).repaired,
    ),
    "predict": (
        lambda: ob.predict(FIRST, A, X),
        lambda: ob.predict(NET.apply, A, X.numpy()),
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_same_as_with_arrays(name: str) -> None:
    found, expected = (function() for function in ALIKE[name])
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("params", [FIRST, FIRST.state_dict(), None])
def test_discover(params: Any) -> None:
    assert str(ob.discover(FIRST, params, X)) == str(SYMMETRY)
    assert str(ob.discover(NET.apply, A, X)) == str(SYMMETRY)


def test_check_of_a_module() -> None:
    assert ob.check_symmetry(SYMMETRY, FIRST, FIRST, X) < 1e-9


def compiled(module: nn.Module) -> Any:
    return torch.compile(module, backend="eager")


WRAPPED = {
    "in parallel": nn.DataParallel,
    "compiled": compiled,
    "both": lambda module: nn.DataParallel(compiled(module)),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_wrapped_modules_are_what_they_wrap(wrap: Any) -> None:
    wrapped = wrap(make())
    params = ob.from_torch(wrapped, X)[1]
    assert list(params) == list(A)
    assert repr(ob.discover(wrapped, X)) == repr(SYMMETRY)
    state = ob.torch.state_dict(A, wrapped)
    assert set(state) == set(wrapped.state_dict())
    wrapped.load_state_dict(state)
    ob.to_torch(B, wrapped)
    assert all(np.array_equal(ob.from_torch(wrapped, X)[1][name], B[name]) for name in B)
    moved = ob.align(SYMMETRY, wrapped, to=FIRST).params
    np.testing.assert_array_equal(moved["0.weight"], ob.align(SYMMETRY, B, to=A).params["0.weight"])


def test_the_inputs_are_enough_for_a_module() -> None:
    assert str(ob.discover(FIRST, X)) == str(SYMMETRY)
    assert str(ob.discover(FIRST, inputs=X)) == str(SYMMETRY)
    assert ob.check_symmetry(SYMMETRY, FIRST, X, num_elements=3) < 1e-9
    assert ob.check_symmetry(SYMMETRY, FIRST, inputs=X) < 1e-9


@pytest.mark.parametrize("kind", ["modules", "state dicts"])
def test_a_list_of_networks_is_draws(kind: str) -> None:
    modules = [FIRST, SECOND, make()]
    given = modules if kind == "modules" else [module.state_dict() for module in modules]
    params = [ob.from_torch(module, X)[1] for module in modules]
    expected = ob.Draws.stack(params, mode=[0, 1, 2])
    for found, wanted in (
        (ob.align_many(SYMMETRY, given).draws, ob.align_many(SYMMETRY, expected).draws),
        (ob.compact(SYMMETRY, given).posterior, ob.compact(SYMMETRY, expected).posterior),
        (ob.predict(FIRST, given, X), ob.predict(NET.apply, expected, X.numpy())),
    ):
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    assert ob.align_many(SYMMETRY, given).draws.mode.tolist() == [0, 1, 2]


def test_masks_are_no_parameters() -> None:
    """Buffers that the converted function does not have are left out."""
    module, tokens = build("gpt")
    symmetry = ob.discover(module, module, tokens)
    assert "h.0.attn.bias" in module.state_dict()
    assert "h.0.attn.bias" not in ob.canonicalize(symmetry, module)


def test_inference_takes_a_module() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    problem = ob.Problem(module, (X, Y))
    draws = ob.infer.ensemble(jax.random.key(0), problem, num_networks=3, epochs=2)
    assert draws.params["0.weight"].shape == (3, 8, 4)
    symmetry = ob.discover(module, module, X)
    assert ob.align_many(symmetry, draws, cost="activations", apply_fn=module, inputs=X).draws
    assert isinstance(ob.compact(symmetry, draws).posterior, ob.Gaussian)


def test_what_cannot_be_converted() -> None:
    with pytest.raises(ConversionError, match=r"call module.eval\(\) first"):
        ob.discover(nn.Sequential(nn.Linear(4, 2), nn.Dropout()), None, X)
    with pytest.raises(ConversionError, match="the inputs are a NoneType, expected a tensor"):
        ob.align(SYMMETRY, B, A, cost="activations", apply_fn=FIRST)
    with pytest.raises(ConversionError, match=r"'weight' is on the device 'meta'"):
        ob.canonicalize(SYMMETRY, nn.Linear(4, 2, device="meta"))
    with pytest.raises(ConversionError, match=r"an argument is on the device 'meta'"):
        ob.discover(NET.apply, A, torch.empty(4, 4, device="meta"))
    with pytest.raises(ob.SymmetryError, match=r"another order, for which dict\(params\)"):
        SYMMETRY.act(SYMMETRY.identity(), OrderedDict(reversed(A.items())))


def test_functions_can_be_pickled() -> None:
    for function in (ob.align, ob.compact, ob.discover, ob.predict):
        assert pickle.loads(pickle.dumps(function)) is function
