"""Nothing is missed: the group found against what numbers alone allow."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from zoo.case import Model, normal, plain
from zoo.oracles import scaling_dimension_bound, sign_flips_bruteforce

import onebasin as ob

from .models import MODELS, units
from .movement import concatenate, fold, transpose
from .operations import attention, contract, dense, gram, tied
from .programs import Op, Program

Array = jax.Array
Params = dict[str, Array]
relu = jax.nn.relu


def sign_dimension(sym: ob.Symmetry) -> int:
    """Of the sign flips alone: what is left of the copies without permutations."""
    permutations = sum(
        factor.copies * math.lgamma(factor.size + 1)
        for factor in sym.factors
        if "permutation" in factor.kinds
    )
    dimension = (sym.log_copies() - permutations) / math.log(2)
    assert dimension == pytest.approx(round(dimension), abs=1e-6)
    return round(dimension)


@pytest.mark.parametrize("name", ["scan", "batch norm", "nested", "linear recurrence"])
def test_scalings_of_models(name: str) -> None:
    model = MODELS[name]()
    bound = scaling_dimension_bound(*model, jax.random.key(0))
    assert ob.discover(*model).scaling_dimension() == bound


def norm(x: Array, epsilon: float) -> Array:
    x = x - x.mean(axis=-1, keepdims=True)
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + epsilon)


def shared_gain(params: Params, x: Array) -> Array:
    return (params["g"] * relu(params["g"] * (x @ params["w"]))) @ params["v"]


def there_and_back(params: Params, x: Array) -> Array:
    return relu(x @ params["w"]) @ params["w"].T


def halves(params: Params, x: Array) -> Array:
    """Three relu units, of which two are read twice, once through a square."""
    h = relu(x @ params["w"])
    return h @ params["v"] + jnp.square(h[:, :2]) @ params["u"]


def ratio(params: Params, x: Array) -> Array:
    return (x @ params["w"]) / (1e-3 + jnp.abs(x @ params["u"]).sum(axis=-1, keepdims=True))


def ratio_without_epsilon(params: Params, x: Array) -> Array:
    return (x @ params["w"]) / jnp.abs(x @ params["u"]).sum(axis=-1, keepdims=True)


def product(params: Params, x: Array) -> Array:
    """A product over units: any two flip together, and no one alone."""
    return jnp.prod(x @ params["w"], axis=-1, keepdims=True) * params["v"]


def gated(params: Params, x: Array) -> Array:
    value, gate = jnp.split(x @ params["w"], 2, axis=-1)
    return (value * jax.nn.sigmoid(gate)) @ params["v"]


TINY: dict[str, Callable[[], Model]] = {
    **{
        name: lambda between=between: units(between, {"w": (3, 2), "b": (2,), "v": (2, 1)})  # type: ignore[misc]
        for name, between in {
            "relu": relu,
            "tanh": jnp.tanh,
            "gelu": jax.nn.gelu,
            "abs": jnp.abs,
            "cube": lambda h: h**3,
            "odd polynomial": lambda h: h**3 + h,
            "root": lambda h: jnp.sqrt(jnp.abs(h)),
            "cube root": jnp.cbrt,
            "hard tanh": jax.nn.hard_tanh,
            "clip": lambda h: jnp.clip(h, -0.3, 0.3),
            "clip on one side further": lambda h: jnp.clip(h, -0.3, 0.4),
            "inverse": lambda h: 1 / h,
            "softmax": jax.nn.softmax,
            "layer norm": lambda h: norm(h, 1e-3),
            "relu then tanh": lambda h: jnp.tanh(relu(h)),
            "tanh then relu": lambda h: relu(jnp.tanh(h)),
        }.items()
    },
    "exact layer norm": lambda: units(
        lambda h: norm(h, 0.0) ** 3, {"w": (3, 3), "b": (3,), "v": (3, 1)}
    ),
    "shared gain": lambda: plain(
        shared_gain, {"w": (2, 3), "g": (3,), "v": (3, 2)}, normal(0, 5, 2)
    ),
    "tied": lambda: plain(there_and_back, {"w": (3, 4)}, normal(0, 5, 3)),
    "halves": lambda: plain(halves, {"w": (2, 3), "v": (3, 2), "u": (2, 2)}, normal(0, 5, 2)),
    "ratio": lambda: plain(ratio, {"w": (3, 2), "u": (3, 3)}, normal(0, 5, 3)),
    "exact ratio": lambda: plain(
        ratio_without_epsilon, {"w": (3, 2), "u": (3, 3)}, normal(0, 5, 3)
    ),
    "gated": lambda: plain(gated, {"w": (2, 4), "v": (2, 2)}, normal(0, 5, 2)),
}


@pytest.mark.parametrize("name", list(TINY)[::2])
def test_scalings_of_tiny_nets(name: str) -> None:
    model = TINY[name]()
    bound = scaling_dimension_bound(*model, jax.random.key(0))
    assert ob.discover(*model).scaling_dimension() == bound


@pytest.mark.parametrize("name", TINY)
def test_signs_of_tiny_nets(name: str) -> None:
    model = TINY[name]()
    assert 2 ** sign_dimension(ob.discover(*model)) == sign_flips_bruteforce(*model)


def test_signs_of_a_product_are_a_part() -> None:
    """Pairs of units flip, which no flip of single units says; none of those may be claimed."""
    model = plain(product, {"w": (3, 4), "v": (1,)}, normal(0, 5, 3))
    sym = ob.discover(*model)
    assert 2 ** sign_dimension(sym) < sign_flips_bruteforce(*model) == 2**4
    for seed in range(8):
        ob.check_symmetry(sym, *model, seed=seed)


EITHER_SIDE: dict[str, Callable[[Array], Array]] = {
    "larger of both": lambda h: jnp.maximum(h, -h),
    "smooth larger of both": lambda h: jnp.logaddexp(h, -h),
    "towards zero": jnp.trunc,
    "fractions": lambda h: jnp.modf(h)[0],
    "sine over its argument": jnp.sinc,
    "Bessel, odd": jax.scipy.special.i1,
    "Bessel, even": jax.scipy.special.i0,
    "step": lambda h: jnp.heaviside(h, 0.5),
    "sign turned": lambda h: jnp.copysign(h, -h),
    "length with one": lambda h: jnp.hypot(h, 1.0),
    "difference of softplus": lambda h: jax.nn.softplus(h) - jax.nn.softplus(-h),
    "larger of one and twice the other": lambda h: jnp.maximum(h, -2 * h),
}


@pytest.mark.parametrize("name", EITHER_SIDE)
def test_signs_in_several_primitives(name: str) -> None:
    model = units(EITHER_SIDE[name], {"w": (3, 2), "b": (2,), "v": (2, 1)})
    assert 2 ** sign_dimension(ob.discover(*model)) == sign_flips_bruteforce(*model)


@pytest.mark.parametrize("name", ["larger of both", "sign turned", "length"])
def test_scalings_in_several_primitives(name: str) -> None:
    functions = {**EITHER_SIDE, "length": lambda h: jnp.hypot(h, 2 * h)}
    model = units(functions[name], {"w": (3, 2), "b": (2,), "v": (2, 1)})
    bound = scaling_dimension_bound(*model, jax.random.key(0))
    assert ob.discover(*model).scaling_dimension() == bound


SMOOTH: list[Op] = [dense, dense, contract, fold, gram, attention, tied, transpose, concatenate]


@pytest.mark.parametrize("seed", range(4))
def test_scalings_of_random_programs(seed: int) -> None:
    """Without repeated values nothing hides from exponents, and nothing vanishes by accident."""
    drawn = Program(seed, 4, SMOOTH)
    params, inputs = drawn.params(seed), drawn.inputs(seed)
    bound = scaling_dimension_bound(drawn, params, inputs, jax.random.key(0))
    assert ob.discover(drawn, params, inputs).scaling_dimension() <= bound
