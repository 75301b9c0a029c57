"""What a person gets wrong, and the sentence they read."""

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir
from zoo.case import normal, plain

import onebasin as ob

from .models import MODELS, UNITS, units

Array = jax.Array
Params = dict[str, Array]
X = normal(0, 5, 3)


def relu_net(params: Params, x: Array) -> Array:
    return jax.nn.relu(x @ params["w"] + params["b"]) @ params["v"]


def params_of(**more: Any) -> dict[str, Any]:
    return {**plain(relu_net, UNITS, X)[1], **more}


@pytest.mark.parametrize(
    ("leaf", "what"), [("relu", "str"), (0.5, "float"), (object(), "object"), (len, "builtin")]
)
def test_parameters_that_are_no_arrays(leaf: Any, what: str) -> None:
    params = {"layer": {"w": jnp.ones((3, 2)), "extra": leaf}}
    with pytest.raises(ob.SymmetryError, match=f"'layer/extra' is a {what}.*expected an array"):
        ob.discover(lambda params, x: x @ params["layer"]["w"], params, X)


def test_says_what_to_do_about_them() -> None:
    with pytest.raises(ob.SymmetryError, match=r"equinox\.partition, nnx\.split"):
        ob.discover(lambda params, x: x, {"act": "relu"}, X)


def test_apply_fn_that_fails() -> None:
    with pytest.raises(ob.SymmetryError, match="could not be traced: KeyError: 'kernel'") as caught:
        ob.discover(lambda params, x: x @ params["kernel"], params_of(), X)
    assert isinstance(caught.value.__cause__, KeyError)


def test_apply_fn_with_the_arguments_swapped() -> None:
    with pytest.raises(ob.SymmetryError, match="could not be traced"):
        ob.discover(lambda x, params: relu_net(params, x), params_of(), X)


@pytest.mark.parametrize("apply_fn", [None, "model", {"apply": relu_net}])
def test_apply_fn_that_cannot_be_called(apply_fn: Any) -> None:
    kind = type(apply_fn).__name__
    with pytest.raises(ob.SymmetryError, match=f"apply_fn is a {kind}, expected a function"):
        ob.discover(apply_fn, params_of(), X)


def test_unused_parameters_are_reported_and_left_alone() -> None:
    params = params_of(never=jnp.ones((4, 4)), dead=jnp.ones(4), empty=jnp.ones((0, 4)))

    def apply(params: Params, x: Array) -> Array:
        _ = x @ jnp.ones((3, 4)) * params["dead"]
        return relu_net(params, x)

    sym = ob.discover(apply, params, X)
    assert set(sym.unused) == {"never", "dead"}
    assert "never" in str(sym)
    assert not {"never", "dead"} & {site.path for f in sym.factors for site in f.sites}
    moved = sym.act(sym.random(jax.random.key(0)), params)
    np.testing.assert_array_equal(moved["never"], params["never"])
    assert sym.scaling_dimension() == 4


def test_units_that_nothing_reads_do_not_count() -> None:
    """Five units, of which a slice keeps three: the other two are no symmetry."""
    model = units(lambda h: jax.nn.relu(h)[:, :3], {"w": (3, 5), "b": (5,), "v": (3, 2)})
    sym = ob.discover(*model)
    assert [(f.size, set(f.kinds)) for f in sym.factors] == [(3, {"permutation", "scaling"})]
    moved = sym.act(sym.random(jax.random.key(0)), model[1])
    np.testing.assert_array_equal(moved["w"][:, 3:], model[1]["w"][:, 3:])


def test_integer_parameters_are_left_alone() -> None:
    params = params_of(order=jnp.array([2, 0, 1, 3]), on=jnp.array(True), step=jnp.array(3))

    def apply(params: Params, x: Array) -> Array:
        h = relu_net({**params, "v": jnp.eye(4, dtype=x.dtype)}, x)[:, params["order"]]
        return jnp.where(params["on"], h, params["step"] * h) @ params["v"]

    sym = ob.discover(apply, params, X)
    moved = sym.act(sym.random(jax.random.key(0)), params)
    for name in ("order", "on", "step"):
        assert moved[name].dtype == params[name].dtype
        np.testing.assert_array_equal(moved[name], params[name])
        assert name not in {site.path for f in sym.factors for site in f.sites}
        assert name not in sym.unused


def test_random_keys_among_the_parameters() -> None:
    params = params_of(key=jax.random.key(3))

    def apply(params: Params, x: Array) -> Array:
        noise = jax.random.normal(params["key"], x.shape, x.dtype)
        return relu_net(params, x + noise)

    sym = ob.discover(apply, params, X)
    assert sym.scaling_dimension() == 4
    moved = sym.act(sym.random(jax.random.key(0)), params)
    assert moved["key"] == params["key"]


@pytest.mark.parametrize("number", [jnp.nan, jnp.inf])
def test_outputs_that_are_not_finite(number: float) -> None:
    with pytest.raises(ob.SymmetryError, match="NaN or infinity at the check"):
        ob.discover(lambda params, x: relu_net(params, x) + number, params_of(), X)


def noisy(x: Array) -> Array:
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    draw = lambda x: np.random.normal(size=x.shape).astype(x.dtype)  # noqa: E731
    return x + jax.pure_callback(draw, shape, x)


def noisy_scan(x: Array) -> Array:
    return jax.lax.scan(lambda c, _: (noisy(c), None), x, None, length=2)[0]


@pytest.mark.filterwarnings("ignore::onebasin.UnknownPrimitiveWarning")
@pytest.mark.parametrize("noise", [noisy, noisy_scan])
def test_models_that_draw_random_numbers_on_the_host(noise: Any) -> None:
    with pytest.raises(ob.SymmetryError, match="draws random numbers inside"):
        ob.discover(lambda params, x: relu_net(params, noise(x)), params_of(), X)


mystery = Primitive("mystery")
mystery.def_abstract_eval(lambda x: x)
mystery.def_impl(lambda x: np.cumsum(np.asarray(x), axis=-1))
mlir.register_lowering(
    mystery, mlir.lower_fun(lambda x: jnp.cumsum(x, axis=-1), multiple_results=False)
)


def test_unknown_primitives_are_named_once_and_cost_no_truth() -> None:
    """Between two layers: what it touches is held fixed, the layer behind it still moves."""

    def apply(params: Params, x: Array) -> Array:
        h = mystery.bind(mystery.bind(jax.nn.relu(x @ params["w"])))
        return jax.nn.relu(h @ params["u"]) @ params["v"]

    params = plain(apply, {"w": (3, 4), "u": (4, 5), "v": (5, 2)}, X)[1]
    with pytest.warns(ob.UnknownPrimitiveWarning, match="mystery") as caught:
        sym = ob.discover(apply, params, X)
    assert len(caught) == 1
    assert str(caught[0].message).count("mystery") == 1
    assert caught[0].filename == __file__
    assert [(f.size, set(f.kinds)) for f in sym.factors] == [(5, {"permutation", "scaling"})]
    ob.check_symmetry(sym, apply, params, X)


@pytest.mark.parametrize(
    ("params", "what"),
    [
        ({"w": jnp.ones((3, 4)), "b": jnp.ones(4)}, "'v' is missing; expected 3 leaves, b, v, w"),
        ({"w": 1.0, "bias": 2.0, "v": 3.0}, "'bias' is not one of its leaves"),
        (params_of(b=jnp.ones(5)), r"'b' has shape \(5,\), expected \(4,\)"),
        (
            params_of(v=jnp.ones((7, 4, 2))),
            r"'v' has shape \(7, 4, 2\).*one more axis in front of every",
        ),
    ],
)
def test_parameters_of_another_model(params: Any, what: str) -> None:
    sym = ob.discover(relu_net, params_of(), X)
    with pytest.raises(ob.SymmetryError, match=what):
        sym.act(sym.identity(), params)
    with pytest.raises(ob.SymmetryError, match=what):
        ob.check_symmetry(sym, relu_net, params, X)


def tanh_net(params: Params, x: Array) -> Array:
    return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"]


def test_elements_of_another_group() -> None:
    sym = ob.discover(relu_net, params_of(), X)
    wide = params_of(w=jnp.ones((3, 6)), b=jnp.ones(6), v=jnp.ones((6, 2)))
    renamed = ob.discover(lambda p, x: relu_net(p["net"], x), {"net": params_of()}, X)
    stack = jax.vmap(sym.random)(jax.random.split(jax.random.key(0), 3))
    cases = [
        (ob.discover(relu_net, wide, X), r"have shape \(6,\), expected \(4,\): the element is of"),
        (renamed, r"of factor 'net' are not of this group \(its factors: w\)"),
        (
            ob.discover(tanh_net, params_of(), X),
            r"signs of factor 'w' are not of this group \(that f",
        ),
    ]
    found = [(other.identity(), what) for other, what in cases]
    for g, what in [*found, (stack, "those of 3 stacked elements, expected one")]:
        for call in (
            lambda g=g: sym.act(g, params_of()),
            lambda g=g: jax.jit(sym.act)(g, params_of()),
            lambda g=g: sym.inverse(g),
            lambda g=g: sym.compose(g, sym.identity()),
            lambda g=g: sym.compose(sym.identity(), g),
        ):
            with pytest.raises(ValueError, match=what):
                call()
    many = jax.tree.map(lambda x: x[None], cases[0][0].identity())
    with pytest.raises(ValueError, match="the element is of another group"):
        sym.act_many(many, jax.tree.map(lambda x: x[None], params_of()))


def test_what_is_no_element() -> None:
    params = params_of()
    sym = ob.discover(relu_net, params, X)
    aligned = ob.align(sym, params, to=params)
    for odd, said in (
        (None, "a NoneType"),
        (3, "an int"),
        (aligned, r"an Alignment.*pass its \.element$"),
    ):
        for call in (
            lambda g: sym.act(g, params),
            lambda g: sym.act_many(g, params),
            lambda g: sym.inverse(g),
            lambda g: sym.compose(sym.identity(), g),
        ):
            with pytest.raises(TypeError, match=f"got {said}") as caught:
                call(odd)
            assert "expected an element of the group" in str(caught.value)


def test_unknown_factor() -> None:
    with pytest.raises(KeyError, match="no factor is called 'z'; there are: w"):
        ob.discover(relu_net, params_of(), X).factor("z")


def corrupted() -> dict[str, str]:
    text = ob.discover(*MODELS["heads"]()).to_json()
    data = json.loads(text)
    found = {"nothing": "", "no JSON": "{", "a list": "[]", "a number": "3", "cut off": text[:-40]}
    found["another file"] = json.dumps({"hello": 1})
    found["another version"] = json.dumps({**data, "version": 99})
    for field in ("factors", "leaves", "sizes", "parents", "dimensions", "unused", "format"):
        found[f"no {field}"] = json.dumps({k: v for k, v in data.items() if k != field})
        found[f"{field} a number"] = json.dumps({**data, field: 3})
    for field in ("factors", "leaves", "parents"):
        found[f"{field} a list"] = json.dumps({**data, field: [1]})
        found[f"{field} text"] = json.dumps({**data, field: "text"})
    return found


CORRUPTED = corrupted()


@pytest.mark.parametrize("name", CORRUPTED)
def test_json_that_is_no_symmetry(name: str) -> None:
    with pytest.raises(ob.SymmetryError, match="not a symmetry written by onebasin"):
        ob.Symmetry.from_json(CORRUPTED[name])


def test_files(tmp_path: Any) -> None:
    sym = ob.discover(relu_net, params_of(), X)
    sym.save(tmp_path / "group.json")
    assert ob.Symmetry.load(tmp_path / "group.json").to_json() == sym.to_json()
    with pytest.raises(FileNotFoundError):
        ob.Symmetry.load(tmp_path / "none.json")


def test_a_group_of_nothing() -> None:
    """No parameters, no inputs, no dependence: nothing to find, and nothing to trip over."""
    for apply_fn, params, inputs in (
        (lambda params, x: x, {}, X),
        (lambda params, x: params["w"], {"w": jnp.ones(3)}, None),
        (lambda params, x: (jnp.ones(2), None, 3), {"w": jnp.ones(3)}, X),
        (lambda params, x: x[:0] @ params["w"], {"w": jnp.ones((3, 2))}, X),
    ):
        sym = ob.discover(apply_fn, params, inputs)
        assert sym.factors == ()
        assert "no symmetry" in str(sym)
        assert sym.log_copies() == sym.scaling_dimension() == 0
        moved = sym.act(sym.random(jax.random.key(0)), params)
        assert jax.tree.all(jax.tree.map(np.array_equal, moved, params))
        assert ob.check_symmetry(sym, apply_fn, params, inputs) == 0


def test_numpy_parameters_and_shapes() -> None:
    params = jax.tree.map(np.asarray, params_of())
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (params, X))
    assert ob.discover(relu_net, params, X).factors == ob.discover(relu_net, *shapes).factors


def test_what_was_not_looked_for_is_said() -> None:
    lines = str(ob.discover(relu_net, params_of(), X)).splitlines()
    assert lines[-1].startswith("not looked for: maps that mix units")
    assert all(len(line) <= 100 for line in lines)


def test_dataclasses_are_frozen() -> None:
    sym = ob.discover(relu_net, params_of(), X)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sym.factors = ()  # type: ignore[misc]
