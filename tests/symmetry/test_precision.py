"""The proof where models round: as strict as their precision lets it be, and no stricter."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from zoo.case import normal, plain

import onebasin as ob

from .models import still, units

Array = jax.Array
Params = dict[str, Array]


def test_single_precision_where_the_model_insists() -> None:
    """A model that casts to float32 inside is checked as it is, and more loosely."""
    model = units(lambda h: jax.nn.relu(h.astype(jnp.float32)))
    sym = ob.discover(*model)
    assert sym.scaling_dimension() == 4
    assert ob.check_symmetry(sym, *model) < 1e-5


def test_half_precision() -> None:
    """Mixed precision is how large models run: rounding to bfloat16 is no broken symmetry."""
    model = units(lambda h: jax.nn.relu(h.astype(jnp.bfloat16)).astype(h.dtype))
    assert ob.discover(*model).scaling_dimension() == 4


@pytest.mark.parametrize("bits", [(8, 23), (5, 10), (8, 7), (5, 7)])
def test_rounding_to_some_bits_is_no_broken_symmetry(bits: tuple[int, int]) -> None:
    model = units(lambda h: jax.nn.relu(jax.lax.reduce_precision(h, *bits)))
    sym = ob.discover(*model)
    assert sym.scaling_dimension() == 4
    ob.check_symmetry(sym, *model)
    with pytest.raises(ob.SymmetryError, match="does not hold"):
        ob.check_symmetry(still(sym, "v"), *model)


@pytest.mark.parametrize(
    "rounded",
    [
        lambda h: h.astype(jnp.float8_e4m3fn).astype(h.dtype),
        lambda h: h.astype(jnp.float8_e5m2).astype(h.dtype),
        lambda h: jax.lax.reduce_precision(h, 4, 3),
    ],
)
def test_formats_of_eight_bits_have_no_scalings(rounded: Callable[[Array], Array]) -> None:
    """A unit that is rescaled there falls on other values; one that is flipped does not."""
    model = units(lambda h: jax.nn.relu(rounded(h)))
    sym = ob.discover(*model)
    assert [f.kinds for f in sym.factors] == [{"permutation"}]
    assert ob.check_symmetry(sym, *model) < 1e-5
    signs = ob.discover(*units(lambda h: jnp.tanh(rounded(h))))
    assert [f.kinds for f in signs.factors] == [{"permutation", "sign"}]


def test_scales_that_are_taken_off_before_rounding_are_free() -> None:
    def scaled(h: Array) -> Array:
        size = jnp.max(jnp.abs(h), axis=0)
        return jax.nn.relu(size * (h / size).astype(jnp.float8_e4m3fn).astype(h.dtype))

    model = units(scaled)
    assert ob.discover(*model).scaling_dimension() == 4


def test_single_precision_beside_the_parameters_is_no_reason_to_be_loose() -> None:
    """A mask in float32 that no parameter goes into: the model still runs in doubles."""

    def apply(params: Params, x: Array) -> Array:
        mask = jnp.tril(jnp.ones((4, 4), jnp.float32)) > 0
        h = jnp.where(mask[: x.shape[0], :1], x @ params["w"], 0)
        return jax.nn.relu(h) @ params["v"]

    model = plain(apply, {"w": (3, 4), "v": (4, 2)}, normal(0, 4, 3))
    assert ob.check_symmetry(ob.discover(*model), *model) < 1e-12


def test_rounding_in_a_loop_is_no_broken_symmetry() -> None:
    def apply(params: Params, x: Array) -> Array:
        def step(h: Array, own: Array) -> tuple[Array, None]:
            short = h.astype(jnp.bfloat16) @ own.astype(jnp.bfloat16)
            return h + jax.nn.relu(short).astype(h.dtype), None

        return lax.scan(step, x @ params["w"], params["layers"])[0] @ params["v"]

    model = plain(apply, {"w": (3, 4), "layers": (2, 4, 4), "v": (4, 2)}, normal(0, 5, 3))
    assert {f.size for f in ob.discover(*model).factors if "permutation" in f.kinds} == {4}


def test_what_a_loop_counts_in_single_precision_is_no_reason_to_be_loose() -> None:
    def apply(params: Params, x: Array) -> Array:
        def step(carry: Any, own: Array) -> tuple[Any, None]:
            h, count = carry
            return (h + jax.nn.relu(h @ own) * (count > 0), count + jnp.float32(1)), None

        (h, _), _ = lax.scan(step, (x @ params["w"], jnp.float32(1)), params["layers"])
        return h @ params["v"]

    model = plain(apply, {"w": (3, 4), "layers": (2, 4, 4), "v": (4, 2)}, normal(0, 5, 3))
    assert ob.check_symmetry(ob.discover(*model), *model) < 1e-12
