"""Programs in other words compute the same, and show what single primitives hide."""

from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo.case import Factor, as_float64, factor, normal, plain

import onebasin as ob
from onebasin.symmetry.parity import expanded
from onebasin.symmetry.program import evaluate, trace
from onebasin.symmetry.rewrite import rewritten
from onebasin.symmetry.rules_elementwise import ODD

Array = jax.Array
Params = dict[str, Array]
Point = Callable[[Params, Array], Array]

SHAPES = {"w": (2, 4), "b": (4,), "m": (4, 3), "c": (3,), "v": (3,)}
FLIP, STAY = (factor(4, "pf"), factor(3, "pf")), (factor(4, "p"), factor(3, "p"))


def surface(activation: Callable[[Array], Array] = jnp.tanh) -> Point:
    """A network of two hidden layers that gives one number."""

    def apply(params: Params, x: Array) -> Array:
        h = activation(x @ params["w"] + params["b"])
        return activation(h @ params["m"] + params["c"]) @ params["v"]

    return apply


def each(point: Point) -> Point:
    return lambda params, x: jax.vmap(lambda one: point(params, one))(x)


def along(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The derivative along the first coordinate."""
    return lambda x: jax.jvp(function, (x,), (jnp.array([1.0, 0.0], x.dtype),))[1]


def laplacian(params: Params, x: Array) -> Array:
    return jnp.trace(jax.hessian(lambda x: surface()(params, x))(x))


def burgers(params: Params, x: Array) -> Array:
    """The residual u_t + u u_x - u_xx of a network, as physics-informed ones are fitted."""
    u = lambda t, x: surface()(params, jnp.stack([t, x]))  # noqa: E731
    t, x = x
    u_x = jax.grad(u, argnums=1)
    return jax.grad(u)(t, x) + u(t, x) * u_x(t, x) - 0.1 * jax.grad(u_x, argnums=1)(t, x)


def derivative(wrap: Callable[..., Callable[[Array], Array]], point: Point) -> Point:
    return each(lambda params, x: wrap(lambda x: point(params, x))(x))


def between(function: Callable[[Array], Array]) -> Point:
    def apply(params: Params, x: Array) -> Array:
        h = function(jnp.tanh(x @ params["w"] + params["b"]))
        return function(jnp.tanh(h @ params["m"] + params["c"])) @ params["v"]

    return apply


MODELS: dict[str, tuple[Point, tuple[Factor, ...]]] = {
    "gradient": (derivative(jax.grad, surface()), FLIP),
    "gradient of a sum": (
        lambda params, x: jax.grad(lambda x: surface()(params, x).sum())(x),
        FLIP,
    ),
    "along a direction": (derivative(along, surface()), FLIP),
    "along it twice": (derivative(lambda f: along(along(f)), surface()), FLIP),
    "along it three times": (derivative(lambda f: along(along(along(f))), surface()), FLIP),
    "hessian": (derivative(jax.hessian, surface()), FLIP),
    "hessian forwards": (derivative(lambda f: jax.jacfwd(jax.jacfwd(f)), surface()), FLIP),
    "laplacian": (each(laplacian), FLIP),
    "burgers": (each(burgers), FLIP),
    "gradient of sine": (derivative(jax.grad, surface(jnp.sin)), FLIP),
    "gradient of sigmoid": (derivative(jax.grad, surface(jax.nn.sigmoid)), STAY),
    "gradient of gelu": (derivative(jax.grad, surface(jax.nn.gelu)), STAY),
    "gradient of tanh and one": (
        derivative(jax.grad, surface(lambda h: jnp.tanh(h) + jnp.tanh(h) ** 2)),
        STAY,
    ),
    "conjugates": (between(lambda y: y * (1 + y) * (1 - y)), FLIP),
    "conjugates of two": (between(lambda y: y * (2 + y) * (y - 2)), FLIP),
    "cube of a sum, odd part": (between(lambda y: (1 + y) ** 3 - (1 - y) ** 3), FLIP),
    "clip of conjugates": (between(lambda y: jnp.clip(y * (1 + y) * (1 - y), -0.1, 0.1)), FLIP),
    "numbers that cancel": (
        between(lambda y: y * (1 + y) * (1 - y) * jnp.exp(jnp.ones_like(y) - jnp.ones_like(y))),
        FLIP,
    ),
    "angle and remainder": (between(lambda y: jnp.arctan2(y, -2.0) + jnp.fmod(y, 0.3)), FLIP),
    "no conjugates": (between(lambda y: y * (1 + y) * (2 - y)), STAY),
    "sum alone": (between(lambda y: 1 - y), STAY),
    "square of a sum": (between(lambda y: y * (1 + y) ** 2), STAY),
    "cube of a sum, rest": (between(lambda y: (1 + y) ** 3 - y**3), STAY),
    "what cancels is read": (between(lambda y: (1 + y) * (1 - y) * (1 + y)), STAY),
}


@pytest.mark.parametrize("name", MODELS)
def test_group(name: str) -> None:
    function, expected = MODELS[name]
    model = plain(function, SHAPES, normal(0, 5, 2))
    sym = ob.discover(*model)
    assert Counter((f.size, f.copies, f.kinds) for f in sym.factors) == Counter(expected)
    for seed in range(2):
        ob.check_symmetry(sym, *model, seed=seed, num_elements=4, power=False)


@pytest.mark.parametrize("name", MODELS)
def test_same_numbers(name: str) -> None:
    function, params, x = plain(MODELS[name][0], SHAPES, normal(0, 5, 2))
    with jax.enable_x64(True):
        params, x = as_float64(params), as_float64(x)
        program = trace(function, params, x)
        other = expanded(rewritten(program), ODD)
        arguments = [*jax.tree.leaves(params), x]
        expected = evaluate(program, arguments, program.outputs)
        found = evaluate(other, arguments, other.outputs)
    assert all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(found, expected, strict=True)
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-9, atol=1e-12)


def test_nothing_to_say() -> None:
    """A program without such groups is handed back as it is."""
    program = trace(lambda w, x: jnp.exp(x @ w), jnp.ones((2, 3)), jnp.ones((4, 2)))
    assert expanded(rewritten(program), ODD) is program
