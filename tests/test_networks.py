"""A network says what its parameters are: its inputs are enough."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob

NET = ob.nets.mlp(hidden=(5,), outputs=2)
X = jnp.ones((3, 4))
PARAMS = NET.init(jax.random.key(0), X)
SYMMETRY = ob.discover(NET.apply, PARAMS, X)


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.BatchNorm(use_running_average=True)(nn.Dense(5)(x))
        return nn.Dense(2)(nn.relu(x))


@pytest.mark.parametrize("net", [NET, (NET.init, NET.apply)], ids=["net", "pair"])
@pytest.mark.parametrize("inputs", [X, jax.ShapeDtypeStruct((3, 4), np.float32)])
def test_discover(net: Any, inputs: Any) -> None:
    assert str(ob.discover(net, inputs)) == str(SYMMETRY)
    assert str(ob.discover(net, inputs=inputs)) == str(SYMMETRY)
    assert str(ob.discover(net, PARAMS, inputs)) == str(SYMMETRY)
    assert str(ob.discover(apply_fn=net, params=PARAMS, inputs=inputs)) == str(SYMMETRY)


def test_check() -> None:
    assert ob.check_symmetry(SYMMETRY, NET, X, num_elements=3) < 1e-9
    assert ob.check_symmetry(SYMMETRY, NET, PARAMS, X) < 1e-9


def test_flax_modules() -> None:
    found = ob.discover(Normed(), X)
    assert [factor.size for factor in found.factors] == [5]
    assert str(found) == str(ob.discover(Normed(), Normed().init(jax.random.key(0), X), X))


def test_functions_say_nothing_of_their_parameters() -> None:
    with pytest.raises(TypeError, match=r"is a function.*pass \(apply_fn, params, inputs\)"):
        ob.discover(NET.apply, X)
    with pytest.raises(TypeError, match="missing"):
        ob.discover(NET)  # type: ignore[call-overload]
