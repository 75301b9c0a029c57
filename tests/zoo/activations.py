"""Activations, each with what it keeps of permutations, scalings and signs.

Plain functions with hidden units h = x @ w + b between 3 inputs and 2 outputs.
"""

from collections.abc import Callable, Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp

from .case import Case, Factor, Model, factor, linen, normal, plain

Array = jax.Array
Params = dict[str, Array]
H = 7
X = (11, 3)


def hidden(between: Callable[[Array], Array], outgoing: int = H) -> Model:
    """3 -> H units -> `between` -> 2, the last map reading `outgoing` values."""

    def apply(params: Params, x: Array) -> Array:
        return between(x @ params["w"] + params["b"]) @ params["v"]

    return plain(apply, {"w": (3, H), "b": (H,), "v": (outgoing, 2)}, normal(0, 11, 3))


def plain_case(
    name: str,
    apply_fn: Callable[[Params, Array], Array],
    shapes: Mapping[str, tuple[int, ...]],
    factors: tuple[Factor, ...] | None,
    dimension: int,
    note: str = "",
) -> Case:
    return Case(name, lambda: plain(apply_fn, shapes, normal(0, *X)), factors, dimension, note)


def activation_case(
    name: str,
    function: Callable[[Array], Array],
    kinds: str,
    dimension: int = 0,
    smooth: bool = True,
) -> Case:
    factors = (factor(H, kinds),)
    return Case(name, lambda: hidden(function), factors, dimension, smooth=smooth)


def crelu(h: Array) -> Array:
    return jnp.concatenate([jax.nn.relu(h), jax.nn.relu(-h)], axis=-1)


def through_int(h: Array) -> Array:
    return jax.nn.relu(4 * h).astype(jnp.int32).astype(h.dtype)


class PReLU(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        return nn.Dense(2)(nn.PReLU()(nn.Dense(H)(x)))


def prelu_per_unit(params: Params, x: Array) -> Array:
    h = x @ params["w"] + params["b"]
    return jnp.where(h > 0, h, params["slope"] * h) @ params["v"]


def maxout(params: Params, x: Array) -> Array:
    pieces = (x @ params["w"] + params["b"]).reshape(x.shape[0], 5, 3)
    return pieces.max(axis=-1) @ params["v"]


CASES = (
    # Even: only the incoming weights flip. Homogeneous of degree 2: v absorbs the square.
    activation_case("abs", jnp.abs, "psf", H),
    activation_case("square", jnp.square, "psf", H),
    activation_case("sin", jnp.sin, "pf"),
    activation_case("cos", jnp.cos, "pf"),
    activation_case("sign", jnp.sign, "psf", H, smooth=False),
    activation_case("step", lambda h: jnp.where(h > 0, 1.0, 0.0), "ps", H, smooth=False),
    activation_case("jump-at-half", lambda h: jnp.where(h > 0.5, h, 0.0), "p", smooth=False),
    activation_case("relu6", lambda h: jax.nn.relu6(4 * h), "p"),
    activation_case("float-to-int", through_int, "p", smooth=False),
    activation_case("hard-tanh", jax.nn.hard_tanh, "pf"),
    Case(
        "crelu",
        lambda: hidden(crelu, 2 * H),
        (factor(H, "ps"),),
        H,
        note="A unit that flips swaps its two halves: no sign of one index set.",
    ),
    Case("prelu", lambda: linen(PReLU(), normal(0, *X)), (factor(H, "ps"),), H),
    plain_case(
        "prelu-per-unit",
        prelu_per_unit,
        {"w": (3, H), "b": (H,), "slope": (H,), "v": (H, 2)},
        (factor(H, "ps"),),
        H,
    ),
    plain_case(
        "maxout",
        maxout,
        {"w": (3, 15), "b": (15,), "v": (5, 2)},
        (factor(5, "ps"), factor(3, "p", copies=5)),
        5,
    ),
)
