"""The proof: wrong groups are caught, and the culprit is named."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo.case import normal, plain

import onebasin as ob
from onebasin.symmetry.elements import Block

from .models import MODELS, still, units

Array = jax.Array
Params = dict[str, Array]


def altered(sym: ob.Symmetry, path: str, change: Callable[[Block], Block]) -> ob.Symmetry:
    """The same group with the blocks of one leaf changed."""
    leaves = tuple(
        dataclasses.replace(leaf, blocks=tuple(map(change, leaf.blocks)))
        if leaf.path == path
        else leaf
        for leaf in sym.leaves
    )
    return dataclasses.replace(sym, leaves=leaves)


def with_exponents(block: Block, factor: float) -> Block:
    scalings = tuple(dataclasses.replace(w, exponent=w.exponent * factor) for w in block.scalings)
    return dataclasses.replace(block, scalings=scalings)


def without_signs(block: Block) -> Block:
    return dataclasses.replace(block, signs=())


SITES = [
    (name, factor.name, path)
    for name in ("relu", "tanh", "heads", "grouped", "scan", "batch norm", "dense net")
    for factor in ob.discover(*MODELS[name]()).factors
    for path in dict.fromkeys(site.path for site in factor.sites)
]


@pytest.mark.parametrize(("name", "factor", "path"), SITES)
def test_a_site_left_out_is_caught(name: str, factor: str, path: str) -> None:
    model = MODELS[name]()
    broken = still(ob.discover(*model), path)
    with pytest.raises(ob.SymmetryError, match="does not hold: the output changes by") as caught:
        ob.check_symmetry(broken, *model)
    touching = [f for f in broken.factors if path in {site.path for site in f.sites}]
    named = [f for f in touching if f"factor {f.name!r} breaks it" in str(caught.value)]
    assert named, caught.value
    assert any(repr(site.path) in str(caught.value) for site in named[0].sites)


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 1.0 + 1e-6])
@pytest.mark.parametrize("name", ["relu", "heads", "grouped", "batch norm"])
def test_a_wrong_exponent_is_caught(name: str, exponent: float) -> None:
    model = MODELS[name]()
    sym = ob.discover(*model)
    factor = next(f for f in sym.factors if "scaling" in f.kinds)
    path = factor.sites[-1].path
    broken = altered(sym, path, lambda block: with_exponents(block, exponent))
    with pytest.raises(ob.SymmetryError, match="breaks it, most likely at parameter"):
        ob.check_symmetry(broken, *model)


@pytest.mark.parametrize("name", ["tanh", "heads", "scan", "dense net", "nested"])
def test_a_missing_sign_is_caught(name: str) -> None:
    model = MODELS[name]()
    sym = ob.discover(*model)
    flipped = [leaf.path for leaf in sym.leaves if any(b.signs for b in leaf.blocks)]
    assert flipped
    for path in flipped:
        broken = altered(sym, path, without_signs)
        with pytest.raises(ob.SymmetryError, match="breaks it, most likely at parameter"):
            ob.check_symmetry(broken, *model, num_elements=12)


def test_a_false_sign_of_one_unit_is_caught_at_once() -> None:
    """A single unit flips or it does not: half of all draws would leave it alone."""
    model = units(jax.nn.relu, {"w": (3, 1), "b": (1,), "v": (1, 2)})
    flips = ob.discover(*units(jnp.tanh, {"w": (3, 1), "b": (1,), "v": (1, 2)}))
    for seed in range(10):
        with pytest.raises(ob.SymmetryError, match="does not hold"):
            ob.check_symmetry(flips, *model, seed=seed)


@pytest.mark.parametrize("seed", range(8))
def test_one_unit_unlike_the_others_is_caught_at_once(seed: int) -> None:
    apply, params, x = units(jax.nn.softplus)
    sym = ob.discover(apply, params, x)

    def other(params: Any, x: Array) -> Array:
        return apply(params, x) + params["b"][0]

    with pytest.raises(ob.SymmetryError, match="does not hold"):
        ob.check_symmetry(sym, other, params, x, num_elements=1, seed=seed, power=False)


def test_units_in_a_ring_are_not_taken_for_free() -> None:
    """Rotations of three units leave this model alone; no other permutation moves all of them."""
    apply, params, x = units(jax.nn.softplus, {"w": (3, 3), "b": (3,), "v": (3, 2)})
    sym = ob.discover(apply, params, x)

    def ring(params: Any, x: Array) -> Array:
        h = jax.nn.softplus(x @ params["w"] + params["b"])
        return h @ params["v"] + (h * jnp.roll(h, 1, axis=-1) ** 2).sum(-1, keepdims=True)

    caught = 0
    for seed in range(8):
        try:
            ob.check_symmetry(sym, ring, params, x, seed=seed, power=False)
        except ob.SymmetryError:
            caught += 1
    assert caught >= 2


def test_a_site_too_many_is_named() -> None:
    """The bias of the output has nothing to do with the hidden units."""

    def apply(params: Params, x: Array) -> Array:
        return jax.nn.relu(x @ params["w"]) @ params["v"] + params["c"]

    model = plain(apply, {"w": (3, 4), "v": (4, 4), "c": (4,)}, normal(0, 5, 3))
    sym = ob.discover(*model)
    factor = sym.factors[0]
    extra = dataclasses.replace(factor, sites=(*factor.sites, ob.Site("c", 0)))
    broken = dataclasses.replace(
        altered(sym, "c", lambda b: dataclasses.replace(b, sides=(factor.name,))), factors=(extra,)
    )
    with pytest.raises(ob.SymmetryError, match=f"factor '{factor.name}' breaks it.* 'c'"):
        ob.check_symmetry(broken, *model)


@pytest.mark.parametrize("between", [jax.nn.gelu, jnp.tanh, lambda h: jnp.maximum(h, 0.1)])
def test_the_group_of_another_model_is_caught(between: Callable[[Array], Array]) -> None:
    sym = ob.discover(*units(jax.nn.relu))
    with pytest.raises(ob.SymmetryError, match="factor 'w' breaks it"):
        ob.check_symmetry(sym, *units(between))


def layer_norm(epsilon: float) -> Any:
    def norm(h: Array) -> Array:
        h = h - h.mean(axis=-1, keepdims=True)
        return jnp.tanh(h / jnp.sqrt(jnp.mean(h**2, axis=-1, keepdims=True) + epsilon))

    return units(norm)


def test_a_scaling_through_an_epsilon_is_caught() -> None:
    """Without its epsilon a LayerNorm forgets the scale in front of it; with it, not quite."""
    exact, usual = layer_norm(0.0), layer_norm(1e-6)
    sym = ob.discover(*exact)
    assert sym.scaling_dimension() == 1
    assert ob.discover(*usual).scaling_dimension() == 0
    assert 1e-9 < ob.check_symmetry(sym, *usual, tolerance=1.0) < 1.0
    with pytest.raises(ob.SymmetryError, match="whole b"):
        ob.check_symmetry(sym, *usual)


@pytest.mark.parametrize(
    "between",
    [
        jax.nn.relu6,
        lambda h: jnp.clip(h, 0, 20),
        lambda h: jnp.where(h > 1e-3, h, 0),
        lambda h: jax.nn.relu(jnp.minimum(h.astype(jnp.float32), 20)),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_clip_far_from_the_values_is_caught(between: Callable[[Array], Array], seed: int) -> None:
    """Scales near 1 never meet it: the net is the ReLU net on all values they lead to."""
    sym = ob.discover(*units(jax.nn.relu))
    with pytest.raises(ob.SymmetryError, match="factor 'w' breaks it"):
        ob.check_symmetry(sym, *units(between), seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_tiny_epsilon_is_caught(seed: int) -> None:
    sym = ob.discover(*layer_norm(0.0))
    with pytest.raises(ob.SymmetryError, match="whole b"):
        ob.check_symmetry(sym, *layer_norm(1e-12), seed=seed)


def deep(dtype: Any, between: Callable[[Array], Array], depth: int) -> Any:
    def apply(params: list[Array], x: Array) -> Array:
        *inner, last = [w.astype(dtype or x.dtype) for w in params]
        for w in inner:
            x = between(x.astype(w.dtype) @ w)
        return x @ last

    sizes = [3, *[6] * (depth - 1), 2]
    params = [
        np.sqrt(2 / rows) * normal(number, rows, columns)
        for number, (rows, columns) in enumerate(itertools.pairwise(sizes))
    ]
    return apply, params, normal(0, 5, 3)


def normed(h: Array) -> Array:
    return jax.nn.relu(h / jnp.sqrt(jnp.mean(h**2, axis=0)))


def powers(h: Array) -> Array:
    """Out of range in single precision long before its root is."""
    return (jax.nn.relu(h) ** 16) ** (1 / 16)


@pytest.mark.parametrize(
    ("dtype", "between", "depth"),
    [
        (None, jax.nn.relu, 50),
        (jnp.float32, jax.nn.relu, 50),
        (jnp.bfloat16, jax.nn.relu, 10),
        (jnp.float16, jax.nn.relu, 10),
        (None, normed, 20),
        (jnp.float32, normed, 10),
        (jnp.bfloat16, normed, 2),
        (jnp.float16, normed, 2),
        (None, powers, 5),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_large_scales_are_no_false_alarm(
    dtype: Any, between: Callable[[Array], Array], depth: int, seed: int
) -> None:
    """Deep networks in every precision, with and without norms."""
    model = deep(dtype, between, depth)
    sym = ob.discover(*model)
    assert sym.scaling_dimension() >= 6 * (depth - 1)
    ob.check_symmetry(sym, *model, power=False, seed=seed)


def test_where_large_scales_overflow_nothing_is_said() -> None:
    """High powers are out of range in single precision; the group is right all the same."""

    def quotient(h: Array) -> Array:
        size = jnp.abs(h.astype(jnp.float32))
        return size**17 / size**16

    model = units(quotient)
    assert ob.check_symmetry(ob.discover(*model), *model, power=False) < 1e-5


def test_a_model_with_outputs_in_bfloat16() -> None:
    apply_fn, params, inputs = units(jax.nn.relu)

    def model(params: Params, x: Array) -> Array:
        return apply_fn(params, x).astype(jnp.bfloat16)

    sym = ob.discover(model, params, inputs)
    assert sym.scaling_dimension() == 4
    with pytest.raises(ob.SymmetryError, match="does not hold"):
        ob.check_symmetry(still(sym, "v"), model, params, inputs)


def test_zeros_do_not_hide_an_error() -> None:
    """An outgoing layer that starts at zero: the check moves it before it looks."""
    apply_fn, params, inputs = units(jax.nn.relu)
    broken = still(ob.discover(apply_fn, params, inputs), "b")
    params = {**params, "v": jnp.zeros((4, 2)), "b": jnp.zeros(4)}
    with pytest.raises(ob.SymmetryError, match="does not hold"):
        ob.check_symmetry(broken, apply_fn, params, inputs)


@pytest.mark.parametrize("name", MODELS)
def test_returns_the_largest_change(name: str) -> None:
    model = MODELS[name]()
    change = ob.check_symmetry(ob.discover(*model), *model, seed=5)
    assert 0 < change < 1e-12


def test_tolerance_and_number_of_elements() -> None:
    model = units(jax.nn.relu)
    sym = ob.discover(*model)
    with pytest.raises(ob.SymmetryError, match=r"allowed 0e\+00"):
        ob.check_symmetry(sym, *model, tolerance=0.0, num_elements=5)
    few, many = (ob.check_symmetry(sym, *model, num_elements=n) for n in (1, 6))
    assert few <= many


@pytest.mark.parametrize("seed", range(6))
def test_dead_units_are_no_lack_of_power(seed: int) -> None:
    """The unit may be dead on all examples, and the group is right all the same."""
    model = units(lambda h: jax.nn.relu(h)[:, 6:], {"w": (3, 7), "b": (7,), "v": (1, 2)})
    ob.check_symmetry(ob.discover(*model), *model, seed=seed)


def test_integer_outputs_must_not_change_at_all() -> None:
    def labels(params: Params, x: Array) -> Array:
        return jnp.argmax(jax.nn.relu(x @ params["w"]) @ params["v"], axis=-1)

    model = plain(labels, {"w": (3, 4), "v": (4, 6)}, normal(0, 200, 3))
    sym = ob.discover(*model)
    broken = still(sym, "v")
    assert ob.check_symmetry(sym, *model, power=False) == 0
    with pytest.raises(ob.SymmetryError, match="changes by 1"):
        ob.check_symmetry(broken, *model)


def test_inputs_of_many_kinds() -> None:
    """Dictionaries, integers, keys, flags, shapes."""

    def apply(params: Params, inputs: dict[str, Any]) -> Array:
        h = params["embed"][inputs["tokens"]] + inputs["x"] @ params["w"]
        h = jnp.where(inputs["flag"], jax.nn.relu(h), 0.0)
        return h @ params["v"] + jax.random.normal(inputs["key"], (5, 2), h.dtype)

    inputs = {
        "tokens": jnp.array([0, 2, 1, 1, 0]),
        "x": normal(0, 5, 3),
        "flag": np.bool_(True),
        "key": jax.random.key(0),
    }
    params = plain(apply, {"embed": (3, 4), "w": (3, 4), "v": (4, 2)}, inputs)[1]
    sym = ob.discover(apply, params, inputs)
    assert sym.scaling_dimension() == 4
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), inputs)
    assert ob.discover(apply, params, {**shapes, "key": inputs["key"]}).factors == sym.factors


def test_complex_parameters_are_checked_in_double_precision() -> None:
    def model(params, x):
        return jnp.real((x @ params["w"]) @ params["v"])

    w, v = (
        jax.random.normal(jax.random.key(n), s, jnp.complex64)
        for n, s in ((0, (4, 6)), (1, (6, 3)))
    )
    symmetry = ob.discover(model, {"w": w, "v": v}, jnp.ones((2, 4)))
    (factor,) = symmetry.factors
    assert factor.size == 6
    assert factor.kinds == {"permutation", "scaling", "sign"}


ZEROS = jnp.zeros((2, 4))


def two_layers(params: Params, x: Array) -> Array:
    return jax.nn.relu(x @ params["w"] + params.get("b", 0.0)) @ params["v"]


def uneven(params: Params, x: Array) -> Array:
    return jax.nn.relu((x @ params["w"]) * jnp.arange(6.0) + params.get("b", 0.0)) @ params["v"]


@pytest.mark.parametrize("bias", [False, True])
def test_zeros_as_inputs_hide_nothing(bias: bool) -> None:
    params = {"w": normal(0, 4, 6), "v": normal(1, 6, 3)}
    if bias:
        params["b"] = normal(2, 6)
    sym = ob.discover(two_layers, params, ZEROS)
    assert ob.check_symmetry(sym, two_layers, params, ZEROS) < 1e-9
    with pytest.raises(ob.SymmetryError, match="does not hold"):
        ob.check_symmetry(sym, uneven, params, ZEROS)


def test_what_says_nothing_proves_nothing() -> None:
    params = {"w": normal(0, 4, 6), "v": normal(1, 6, 3)}
    sym = ob.discover(two_layers, params, jnp.ones((2, 4)))
    for inputs in (jnp.zeros((0, 4)), jax.ShapeDtypeStruct((0, 4), jnp.float32)):
        with pytest.raises(ob.SymmetryError, match="outputs are empty"):
            ob.check_symmetry(sym, two_layers, params, inputs)
        with pytest.raises(ob.SymmetryError, match="outputs are empty"):
            ob.discover(two_layers, params, inputs)
    with pytest.raises(ValueError, match="num_elements=0, expected at least one"):
        ob.check_symmetry(sym, two_layers, params, jnp.ones((2, 4)), num_elements=0)


def test_single_precision_inside_a_model_of_double() -> None:
    with jax.enable_x64(True):
        params = {"w": np.ones((4, 6)) * np.arange(1.0, 7), "v": np.arange(18.0).reshape(6, 3)}

        def model(params: Params, x: Array) -> Array:
            inner = jnp.tanh(x.astype(jnp.float32) @ params["w"].astype(jnp.float32))
            return inner.astype(jnp.float64) @ params["v"]

        sym = ob.discover(model, params, np.ones((2, 4)))
        assert [f.size for f in sym.factors] == [6]
