"""Canonical forms: known answers, the laws that they must obey on the zoo, and bad input."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import CASES, THOROUGH, as_float64

from onebasin.align.canonical import canonical_element, canonicalize
from onebasin.align.ordering import ORDERS
from onebasin.align.touches import boxes_of
from onebasin.posterior import Draws
from onebasin.symmetry import Symmetry, SymmetryError, discover

Params = dict[str, jax.Array]

ALL = {case.name: case for case in CASES}
# Scales, signs, several scalings per unit, ties, self-connections, loops, groups, blocks, heads.
QUICK = (
    "mlp-relu",
    "mlp-batchnorm-relu",
    "bilinear-glu",
    "one-gain-two-layers",
    "rnn-relu",
    "residual-scan",
    "grouped-conv",
    "resnet-None-relu",
    "encoder-plain",
    "tiny-leaves",
)


@functools.cache
def built(name: str) -> tuple[Any, Any, Any, Symmetry]:
    model = ALL[name].build()
    return *model, discover(*model)


def mlp(params: Params, x: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ params["in"] + params["bias"]) @ params["out"]


@functools.cache
def group_of_mlp(inputs: int) -> Symmetry:
    params = {"in": jnp.ones((inputs, 3)), "bias": jnp.ones(3), "out": jnp.ones((3, 1))}
    return discover(mlp, params, jnp.ones((1, inputs)))


def three_units(**changes: Any) -> tuple[Params, Symmetry]:
    params = {
        "in": jnp.array([[8.0, 1.0, 2.0], [0.0, 0.0, 1.0]]),
        "bias": jnp.array([0.0, 0.0, 2.0]),
        "out": jnp.array([[2.0], [9.0], [8.0]]),
    }
    return params | changes, group_of_mlp(2)


def difference(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest entry of each leaf."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(
        float(jnp.max(jnp.abs(x - y)) / (jnp.max(jnp.abs(x)) + 1e-30))
        for x, y in pairs
        if x.size and jnp.issubdtype(x.dtype, jnp.floating)
    )


@pytest.mark.parametrize("name", ALL if THOROUGH else QUICK)
def test_laws(name: str, float64: None) -> None:
    """The function stays, canonical forms are fixed points, and g.x has the form of x."""
    with jax.enable_x64(False):
        apply_fn, params, inputs, symmetry = built(name)
    params = as_float64(params)
    element, report = canonical_element(symmetry, params)
    canonical = symmetry.act(element, params)
    again, _ = canonical_element(symmetry, canonical)
    assert difference(canonical, symmetry.act(again, canonical)) < 1e-10
    for seed in range(2):
        moved = symmetry.act(symmetry.random(jax.random.key(seed)), params)
        back, _ = canonical_element(symmetry, moved)
        assert difference(canonical, symmetry.act(back, moved)) < 1e-10
    assert report.gradient < 1e-11
    if not ALL[name].float32_only:
        apply_fn, inputs = jax.jit(apply_fn), as_float64(inputs)
        assert difference(apply_fn(params, inputs), apply_fn(canonical, inputs)) < 1e-10


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["mlp-relu", "mlp-tanh", "mlp-batchnorm-relu", "encoder-plain"])
def test_unit_norm_and_orders(name: str, order: Any, biases: bool, float64: None) -> None:
    with jax.enable_x64(False):
        _, params, _, symmetry = built(name)
    params = as_float64(params)
    move = functools.partial(
        canonicalize, symmetry, scaling="unit-norm", order=order, biases=biases
    )
    canonical = move(params)
    assert difference(canonical, move(canonical)) < 1e-12
    moved = symmetry.act(symmetry.random(jax.random.key(3)), params)
    assert difference(canonical, move(moved)) < 1e-12


def test_minimum_mass_by_hand() -> None:
    params, symmetry = three_units()
    canonical = canonicalize(symmetry, params, order=None)
    expected = [[4, 3, 2 * 64**0.25 / 3**0.5], [0, 0, 64**0.25 / 3**0.5]]
    np.testing.assert_allclose(canonical["in"], expected, rtol=1e-5)
    np.testing.assert_allclose(canonical["out"][:, 0], [4, 3, (9 * 64) ** 0.25], rtol=1e-5)


def test_biases_out_of_the_mass() -> None:
    params, symmetry = three_units()
    element, report = canonical_element(symmetry, params, order=None, biases=False)
    canonical = symmetry.act(element, params)
    for unit in range(3):
        incoming = jnp.linalg.norm(canonical["in"][:, unit])
        np.testing.assert_allclose(incoming, canonical["out"][unit, 0], rtol=1e-5)
    assert np.isclose(report.mass_before, 64 + 1 + 5 + 4 + 81 + 64)
    assert np.isclose(report.mass_after, 2 * (16 + 9 + 5**0.5 * 8))
    assert np.isclose(report.excess_mass, report.mass_before / report.mass_after - 1)


def test_unit_norm_by_hand() -> None:
    params, symmetry = three_units()
    canonical = canonicalize(symmetry, params, "unit-norm", None)
    np.testing.assert_allclose(canonical["out"][:, 0], [16, 9, 24], rtol=1e-5)
    np.testing.assert_allclose(
        jnp.hypot(jnp.linalg.norm(canonical["in"], axis=0), canonical["bias"]), 1, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("order", "expected"),
    [("max", [2, 0, 1]), ("mean", [0, 1, 2]), ("median", [1, 0, 2]), ("first", [2, 1, 0])],
)
def test_orders_by_hand(order: Any, expected: list[int]) -> None:
    units = jnp.array([[1.0, 5.0, 1.5, 1.0], [4.0, 2.0, -2.0, 3.0], [4.5, -9.0, 9.0, -5.0]])
    params = {"in": units.T, "bias": jnp.zeros(3), "out": jnp.ones((3, 1))}
    element, _ = canonical_element(group_of_mlp(4), params, None, order)
    assert element.permutations["in"].tolist() == expected


def test_equal_units_keep_their_order() -> None:
    params, symmetry = three_units(**{"in": jnp.ones((2, 3))})
    element, _ = canonical_element(symmetry, params, None)
    assert element.permutations["in"].tolist() == [0, 1, 2]


def test_largest_incoming_weight_is_positive() -> None:
    _, params, _, symmetry = built("mlp-tanh")
    canonical = canonicalize(symmetry, params, order=None)
    for layer in ("Dense_0", "Dense_1"):
        kernel = np.asarray(canonical[layer]["kernel"])
        largest = np.abs(kernel).argmax(axis=0)
        assert (kernel[largest, np.arange(kernel.shape[1])] > 0).all()
    same = canonicalize(symmetry, params, order=None, signs=False)
    assert difference(same, params) == 0


@pytest.mark.parametrize("name", ["mlp-relu", "bilinear-glu"])
def test_stacked_draws(name: str) -> None:
    _, params, _, symmetry = built(name)
    draws = jax.vmap(
        lambda key: jax.tree.map(
            lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.clone(key), leaf.shape), params
        )
    )(jax.random.split(jax.random.key(0), 8))
    stacked = canonicalize(symmetry, draws)
    compiled = jax.jit(jax.vmap(lambda draw: canonicalize(symmetry, draw)))(draws)
    assert difference(stacked, compiled) < 1e-5
    for i in range(8):
        draw, one = (jax.tree.map(lambda leaf, i=i: leaf[i], tree) for tree in (draws, stacked))
        assert difference(canonicalize(symmetry, draw), one) < 1e-5


def test_draws_keep_what_is_known_of_them() -> None:
    params, symmetry = three_units()
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
    found = canonicalize(symmetry, Draws(stacked, mode=[3, 7]))
    assert isinstance(found, Draws)
    assert found.modes == (3, 7)
    assert difference(found.params, canonicalize(symmetry, stacked)) == 0
    element, _ = canonical_element(symmetry, Draws(stacked))
    assert element.log_scales["in"].shape == (2, 3, 1)


def test_report_of_stacked_draws() -> None:
    params, symmetry = three_units()
    draws = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
    element, report = canonical_element(symmetry, draws)
    assert element.log_scales["in"].shape == (2, 3, 1)
    assert report.sweeps.shape == report.dead.shape == (2,)
    np.testing.assert_allclose(report.mass_after[1], 4 * report.mass_after[0], rtol=1e-5)
    assert "excess" in str(report)


def test_dead_units_are_left_alone() -> None:
    params, symmetry = three_units()
    params |= {
        "in": params["in"].at[:, 0].set(0),
        "out": params["out"].at[1].set(0),
    }
    for scaling in ("min-mass", "unit-norm"):
        element, report = canonical_element(symmetry, params, scaling, None)
        scales = element.log_scales["in"][:, 0]
        assert np.isfinite(scales).all()
        assert scales[0] == 0
        assert scales[2] != 0
        assert report.dead == 2
        assert scaling == "unit-norm" or scales[1] == 0
    nothing = jax.tree.map(jnp.zeros_like, params)
    assert difference(canonicalize(symmetry, nothing), nothing) == 0


def test_scales_far_apart() -> None:
    _, params, _, symmetry = built("mlp-relu")
    _, report = canonical_element(symmetry, params)
    moved = symmetry.act(symmetry.random(jax.random.key(0), spread=6.0), params)
    _, far = canonical_element(symmetry, moved)
    assert far.mass_before > 1e6 * report.mass_before
    np.testing.assert_allclose(far.mass_after, report.mass_after, rtol=1e-5)


def batch_normalised(params: Params, x: jax.Array) -> jax.Array:
    hidden = x @ params["in"]
    centred = hidden - hidden.mean(axis=0)
    normal = centred / jnp.sqrt(jnp.mean(centred**2, axis=0))
    return jax.nn.relu(normal * params["gain"] + params["shift"]) @ params["out"]


def test_batch_norm_has_no_minimum_and_says_so() -> None:
    shapes = {"in": (4, 3), "gain": (3,), "shift": (3,), "out": (3, 2)}
    keys = jax.random.split(jax.random.key(0), 4)
    params = {
        name: jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    symmetry = discover(batch_normalised, params, jax.random.normal(jax.random.key(1), (7, 4)))
    element, report = canonical_element(symmetry, params)
    assert report.unbounded == ("in",)
    assert not report.bounded
    assert "no minimum" in str(report)
    canonical = symmetry.act(element, params)
    np.testing.assert_allclose(jnp.linalg.norm(canonical["in"], axis=0), 1, rtol=1e-5)
    before = canonical["gain"] ** 2 + canonical["shift"] ** 2
    np.testing.assert_allclose(before, jnp.sum(canonical["out"] ** 2, axis=1), rtol=1e-5)


def test_batch_norm_in_inference_is_bounded() -> None:
    _, params, _, symmetry = built("mlp-batchnorm-relu")
    _, report = canonical_element(symmetry, params, biases=False)
    assert report.bounded
    assert report.mass_after < report.mass_before


@pytest.mark.parametrize(
    ("name", "biases"),
    [
        ("mlp-relu", {"Dense_0/bias", "Dense_1/bias", "Dense_2/bias"}),
        (
            "mlp-batchnorm-relu",
            {"params/Dense_0/bias", "params/Dense_1/bias", "batch_stats/layers_1/mean"},
        ),
        ("rnn-relu", {"b"}),
        ("residual-scan", {"b1"}),
    ],
)
def test_what_is_a_bias(name: str, biases: set[str]) -> None:
    _, _, _, symmetry = built(name)
    boxes = boxes_of(symmetry)
    found = {symmetry.leaves[box.leaf].path for box in boxes if box.kernel is not None}
    assert found == biases


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_not_finite(bad: float) -> None:
    params, symmetry = three_units()
    params["bias"] = params["bias"].at[1].set(bad)
    with pytest.raises(ValueError, match="'bias' holds NaN or infinite"):
        canonicalize(symmetry, params)
    draws = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), params)
    with pytest.raises(ValueError, match="'bias' holds NaN or infinite"):
        canonical_element(symmetry, draws)


def test_bad_input() -> None:
    params, symmetry = three_units()
    with pytest.raises(ValueError, match="did you mean 'min-mass'"):
        canonicalize(symmetry, params, "minmass")
    with pytest.raises(ValueError, match="no order 'biggest'"):
        canonicalize(symmetry, params, order="biggest")
    with pytest.raises(SymmetryError, match="not of the model"):
        canonicalize(symmetry, {"in": params["in"]})
    with pytest.raises(SymmetryError, match="'out' has shape"):
        canonicalize(symmetry, params | {"out": jnp.ones((4, 1))})
    with pytest.raises(ValueError, match="no draws"):
        canonicalize(symmetry, jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape)), params))
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), params)
    with pytest.raises(SymmetryError, match="'out' has 1 draws"):
        canonicalize(symmetry, stacked | {"out": stacked["out"][:1]})
