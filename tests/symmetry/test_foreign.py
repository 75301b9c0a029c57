"""Primitives of other libraries, and solvers whose loops are made of them."""

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core
from zoo.case import Factor, factor, normal, plain

import onebasin as ob

from .models import units

Array = jax.Array
Params = dict[str, Array]


def primitive(name: str, implementation: Callable[..., Any]) -> core.Primitive:
    made = core.Primitive(name)
    made.def_impl(implementation)
    made.def_abstract_eval(lambda x: x)
    jax.interpreters.mlir.register_lowering(
        made, jax.interpreters.mlir.lower_fun(implementation, multiple_results=False)
    )
    return made


def found(model: Any) -> Counter[Factor]:
    sym = ob.discover(*model)
    for seed in range(3):
        ob.check_symmetry(sym, *model, seed=seed, power=False)
    return Counter((f.size, f.copies, f.kinds) for f in sym.factors)


HALVED = primitive("halved", lambda x: jnp.maximum(x, 0) / 2)
SORTED_OUT = primitive("sorted_out", lambda x: x * jnp.arange(x.shape[-1]))


def test_what_is_written_in_jax_is_read() -> None:
    assert found(units(HALVED.bind)) == Counter([factor(4, "ps")])
    assert found(units(lambda h: SORTED_OUT.bind(jnp.tanh(h)))) == Counter([factor(4, "f")])


def test_what_is_not_written_in_jax_is_held_fixed() -> None:
    def outside(h: Array) -> Array:
        return jax.pure_callback(
            lambda h: np.asarray(h) * np.arange(4, dtype=h.dtype), jax.typeof(h), h
        )

    def from_nowhere(h: Array) -> Array:
        weights = jax.pure_callback(
            lambda: np.arange(4, dtype=h.dtype), jax.ShapeDtypeStruct((4,), h.dtype)
        )
        return jax.nn.relu(h) * weights

    for between in (outside, from_nowhere):
        with pytest.warns(ob.UnknownPrimitiveWarning, match="pure_callback"):
            sym = ob.discover(*units(between))
        assert not any("permutation" in f.kinds for f in sym.factors)


def test_what_raises_an_error_never_returns() -> None:
    def checked(h: Array) -> Array:
        return eqx.error_if(jax.nn.relu(h), jnp.isnan(h).any(), "no number")

    def bounded(h: Array) -> Array:
        return eqx.error_if(jax.nn.relu(h), (h > 1e9).any(), "too large")

    assert found(units(checked)) == Counter([factor(4, "ps")])
    assert found(units(bounded)) == Counter([factor(4, "p")])


def heun(state: Array, step: Array, field: Callable[[Array], Array]) -> tuple[Array, Array]:
    """A step of Heun's method, and how far off it is against what is allowed."""
    first = field(state)
    second = field(state + step * first)
    allowed = 1e-3 + 1e-3 * jnp.abs(state)
    error = jnp.sqrt(jnp.mean((step * (second - first) / 2 / allowed) ** 2))
    return state + step * (first + second) / 2, error


def integrated(loop: Callable[..., Any]) -> Callable[[Params, Array], Array]:
    """A latent state that is carried on with steps of a size that the error sets."""

    def apply(params: Params, x: Array) -> Array:
        def field(state: Array) -> Array:
            return jnp.tanh(state @ params["w"] + params["b"]) @ params["u"]

        def body(carried: Any) -> Any:
            time, step, state = carried
            after, error = heun(state, step, field)
            good = error < 1
            time = jnp.where(good, time + step, time)
            step = step * jnp.clip(0.9 / jnp.sqrt(error), 0.2, 5.0)
            return time, jnp.minimum(step, 1 - time), jnp.where(good, after, state)

        start = jnp.zeros((), x.dtype), jnp.full((), 0.1, x.dtype), x @ params["in"]
        return loop(lambda carried: carried[0] < 1, body, start)[2] @ params["out"]

    return apply


def bounded_loop(going: Any, body: Any, start: Any) -> Any:
    return eqxi.while_loop(going, body, start, max_steps=64, kind="bounded")


def checkpointed_loop(going: Any, body: Any, start: Any) -> Any:
    return eqxi.while_loop(going, body, start, max_steps=64, kind="checkpointed")


LATENT = {"in": (3, 4), "w": (4, 6), "b": (6,), "u": (6, 4), "out": (4, 2)}


@pytest.mark.parametrize("loop", [lax.while_loop, bounded_loop, checkpointed_loop])
def test_latent_states_of_solvers(loop: Callable[..., Any]) -> None:
    """They permute and flip; the tolerance that errors are compared with sets their scale."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = plain(integrated(loop), LATENT, normal(0, 5, 3))
        assert found(model) == Counter([factor(4, "pf"), factor(6, "pf")])
