"""Training in half precision: the arithmetic is, the weights and what is found are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.infer.mean_field import FreeEnergy

NET = ob.nets.resnet((1, 1), 5, "frn", 4, "silu")
HALF = ob.nets.in_bfloat16(NET)
INPUTS = jax.random.normal(jax.random.key(0), (24, 8, 8, 3))
LABELS = jax.random.randint(jax.random.key(1), (24,), 0, 5)


def problem(net: ob.Net) -> ob.Problem:
    return ob.Problem(net, (INPUTS, LABELS), ob.Normal(0.3))


def gradient(net: ob.Net, local: bool) -> tuple[float, np.ndarray]:
    target = problem(net)
    mean = target.init(jax.random.key(2))
    variables = {"mean": mean, "log_std": jax.tree.map(lambda x: jnp.full_like(x, -3.0), mean)}
    energy = FreeEnergy(1, local)
    value, found = jax.value_and_grad(
        lambda v: energy(target, v, (INPUTS, LABELS), jax.random.key(3))
    )(variables)
    leaves = jax.tree.leaves(found)
    assert {leaf.dtype for leaf in leaves} == {np.dtype("float32")}
    return float(value), np.concatenate([np.ravel(leaf) for leaf in leaves])


@pytest.mark.parametrize("local", [True, False])
def test_gradients_are_those_of_single_precision_but_for_rounding(local: bool) -> None:
    value, exact = gradient(NET, local)
    other, rounded = gradient(HALF, local)
    assert other == pytest.approx(value, rel=1e-3)
    assert 0 < np.linalg.norm(rounded - exact) < 0.03 * np.linalg.norm(exact)


def test_every_product_is_in_half_precision() -> None:
    params = NET.init(jax.random.key(0), INPUTS[:1])
    program = jax.make_jaxpr(HALF.apply)(params, INPUTS)
    products = [
        [variable.aval.dtype for variable in equation.invars]
        for equation in program.jaxpr.eqns
        if equation.primitive.name in ("conv_general_dilated", "dot_general")
    ]
    assert products
    assert all(dtype == jnp.bfloat16 for operands in products for dtype in operands)
    assert program.out_avals[0].dtype == jnp.float32


def test_equal_networks_share_their_programs() -> None:
    assert ob.nets.in_bfloat16(NET) == HALF


def test_integer_inputs_stay_as_they_are() -> None:
    table = ob.Net(lambda key, x: jnp.ones((4, 2)), lambda table, x: table[x])
    looked_up = ob.nets.in_bfloat16(table).apply(jnp.ones((4, 2)), jnp.array([1, 3]))
    assert looked_up.shape == (2, 2)
    assert looked_up.dtype == jnp.float32


def test_networks_are_trained_as_well() -> None:
    losses = []
    for net in (NET, HALF):
        found = ob.infer.ensemble(
            jax.random.key(0), problem(net), num_networks=1, epochs=20, batch_size=8
        )
        assert {leaf.dtype for leaf in jax.tree.leaves(found.params)} == {np.dtype("float32")}
        losses.append(np.asarray(found.info["loss"])[:, 0])
    assert losses[0][-1] < 0.9 * losses[0][0]
    assert losses[1][-1] == pytest.approx(losses[0][-1], rel=0.02)
