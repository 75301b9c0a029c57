"""Outputs, gradients, jit and vmap: the converted function is the module."""

import copy
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import onebasin as ob
from pytorch.modules import MODULES, build


def as_arrays(inputs: Any, dtype: Any = None) -> Any:
    def array(x: Any) -> Any:
        x = np.asarray(x)
        return x.astype(dtype) if dtype and x.dtype.kind == "f" else x

    return jax.tree.map(array, inputs)


def call(module: torch.nn.Module, inputs: Any) -> list[torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = module(*inputs) if isinstance(inputs, tuple) else module(inputs)
    return jax.tree.leaves(outputs)


def largest(found: Any, expected: list[torch.Tensor]) -> float:
    """The largest difference relative to the largest entry of each output."""
    leaves = jax.tree.leaves(found)
    assert len(leaves) == len(expected)
    worst = 0.0
    for a, b in zip(leaves, expected, strict=True):
        reference = b.detach().numpy()
        assert a.shape == reference.shape
        scale = max(float(np.abs(reference).max()), 1e-12)
        worst = max(worst, float(np.abs(np.asarray(a) - reference).max()) / scale)
    return worst


def weighted(leaves: Any, library: Any) -> Any:
    """A number that depends on every entry of the outputs, and in another way on each."""
    total: Any = 0.0
    for leaf in leaves:
        flat = leaf.reshape(-1)
        weights = np.cos(np.arange(flat.shape[0]))
        total = total + (flat * library(weights)).sum()
    return total


def autograd(module: torch.nn.Module, inputs: Any) -> dict[str, np.ndarray]:
    module.zero_grad()
    weighted(call(module, inputs), torch.from_numpy).backward()
    return {
        name: np.zeros(tuple(x.shape)) if x.grad is None else x.grad.numpy()
        for name, x in module.named_parameters()
    }


@pytest.mark.parametrize("name", MODULES)
def test_module(name: str) -> None:
    module, inputs = build(name)
    net, params = ob.from_torch(module, inputs)
    arrays = as_arrays(inputs)
    assert largest(net.apply(params, arrays), call(module, inputs)) < 1e-5

    other, _ = build(name, seed=1)
    state = other.state_dict()
    stacked = {name: jnp.stack([x, state[name].numpy()]) for name, x in params.items()}
    both = jax.jit(jax.vmap(net.apply, in_axes=(0, None)))(stacked, arrays)
    for number, single in enumerate((module, other)):
        one = jax.tree.map(lambda x, n=number: x[n], both)
        assert largest(one, call(single, inputs)) < 1e-5

    double = copy.deepcopy(module).double()
    doubles = jax.tree.map(lambda x: x.double() if x.is_floating_point() else x, inputs)
    with jax.enable_x64(True):
        wide = {k: jnp.asarray(np.asarray(x), jnp.float64) for k, x in params.items()}
        data = as_arrays(inputs, np.float64)

        def loss(p: Any) -> Any:
            outputs = net.apply(p, data)
            return weighted(jax.tree.leaves(outputs), jnp.asarray), outputs

        (_, outputs), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(wide)
        assert largest(outputs, call(double, doubles)) < 1e-12
        expected = autograd(double, doubles)
        scale = max(float(np.abs(x).max()) for x in expected.values())
        for key, reference in expected.items():
            np.testing.assert_allclose(gradient[key], reference, atol=1e-10 * scale, err_msg=key)
