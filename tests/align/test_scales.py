"""Scales in the alignment of two: kept where they do no harm, found where they keep units apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import CASES

import onebasin as ob

WIDE = jnp.ones((2, 40))


def distance(a, b):
    pairs = zip(*map(jax.tree.leaves, (a, b)), strict=True)
    return sum(float(jnp.sum((x - y) ** 2)) for x, y in pairs)


def noisy(params, noise):
    rng = np.random.default_rng(3)
    return jax.tree.map(
        lambda x: x + noise * jnp.std(x) * rng.normal(size=x.shape).astype(x.dtype), params
    )


@pytest.fixture(scope="module")
def pair():
    net = ob.nets.mlp(hidden=(24, 20, 16), outputs=4)
    reference, other = (net.init(jax.random.key(seed), WIDE) for seed in (0, 1))
    return ob.discover(net.apply, reference, WIDE), reference, other


def test_no_farther_than_without_scales_or_in_canonical_ones(pair):
    symmetry, reference, other = pair
    found = {s: ob.align(symmetry, other, to=reference, scaling=s) for s in (None, "min-mass")}
    default = ob.align(symmetry, other, to=reference)
    away = {s: distance(a.params, reference) for s, a in found.items()}
    assert distance(default.params, reference) <= min(away.values()) * (1 + 1e-6)


def test_the_cost_is_the_distance_of_what_is_returned(pair):
    symmetry, reference, other = pair
    for spread in (0.0, 0.7):
        g = symmetry.random(jax.random.key(2), ("permutation", "scaling"), spread=spread)
        moving = symmetry.act(g, other)
        found = ob.align(symmetry, moving, to=reference)
        assert found.cost_before == pytest.approx(distance(moving, reference), rel=1e-4)
        assert found.cost == pytest.approx(distance(found.params, reference), rel=1e-4)


@pytest.mark.parametrize("spread", [0.02, 0.3, 1.5])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_planted_scales_are_found_however_large(pair, spread, noise):
    symmetry, reference, _ = pair
    near = noisy(reference, noise)
    g = symmetry.random(jax.random.key(7), ("permutation", "scaling"), spread=spread)
    found = ob.align(symmetry, symmetry.act(g, near), to=reference)
    assert distance(found.params, reference) <= 4 * distance(near, reference) + 1e-6
    back = symmetry.compose(found.element, g)
    for name, permutation in back.permutations.items():
        np.testing.assert_array_equal(permutation, symmetry.identity().permutations[name])


def test_gaussians_are_told_from_their_scales(pair):
    symmetry, reference, _ = pair
    own = ob.Gaussian(reference, jax.tree.map(lambda x: 0.05 + 0.1 * jnp.abs(x), reference))
    g = symmetry.random(jax.random.key(5), spread=1.0)
    found = ob.align(symmetry, ob.push_forward(symmetry, g, own), to=own, cost="wasserstein")
    assert distance(found.params.mean, own.mean) < 1e-6
    assert found.cost == pytest.approx(float(ob.wasserstein(found.params, own)) ** 2, abs=1e-5)


def test_scales_that_noise_makes_are_left():
    """Canonical scales of networks apart differ by chance, and put them farther apart."""
    net = ob.nets.mlp(hidden=(96, 96, 96), outputs=10)
    reference = net.init(jax.random.key(0), jnp.ones((2, 200)))
    symmetry = ob.discover(net.apply, reference, jnp.ones((2, 200)))
    g = symmetry.random(jax.random.key(1), ("permutation",))
    moving = symmetry.act(g, noisy(reference, 1.0))
    found = ob.align(symmetry, moving, to=reference)
    assert all(not np.any(scales) for scales in found.element.log_scales.values())
    canonical = ob.align(symmetry, moving, to=reference, scaling="min-mass").params
    assert distance(canonical, reference) > 1.001 * distance(found.params, reference)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "sides", [("kernel", "bias"), ("outgoing",), ("kernel", "bias", "outgoing")]
)
def test_units_without_weights_are_no_reason_to_scale(pair, sides):
    symmetry, reference, _ = pair
    dead = jax.tree.map(np.array, reference)
    if "outgoing" in sides:
        dead["Dense_1"]["kernel"][:3] = 0
    for name in {"kernel", "bias"} & set(sides):
        dead["Dense_0"][name][..., :3] = 0
    g = symmetry.random(jax.random.key(3), ("permutation",))
    found = ob.align(symmetry, symmetry.act(g, dead), to=dead)
    assert distance(found.params, dead) < 1e-9


def weight_norm(params, inputs):
    kernel = params["kernel"] / jnp.linalg.norm(params["kernel"], axis=0)
    return jnp.tanh(inputs @ kernel) @ params["out"]


def steps(params, inputs):
    return jnp.where(inputs @ params["kernel"] > 0, 1.0, 0.0) @ params["out"]


@pytest.mark.parametrize("apply_fn", [weight_norm, steps])
def test_scales_that_no_balance_tells_are_found(apply_fn):
    """Kernels that can be scaled by themselves have no mass to be balanced with."""
    first, second, third = jax.random.split(jax.random.key(0), 3)
    params = {"kernel": jax.random.normal(first, (3, 5)), "out": jax.random.normal(second, (5, 2))}
    symmetry = ob.discover(apply_fn, params, jax.random.normal(third, (6, 3)))
    for seed in range(3):
        g = symmetry.random(jax.random.key(seed))
        assert ob.align(symmetry, symmetry.act(g, params), to=params).cost < 1e-8


def test_units_that_scales_led_astray_are_found_again():
    """Matched as they are, a wrong match that no scale of matched units would make better."""
    (case,) = (case for case in CASES if case.name == "mlp-linear")
    apply_fn, params, inputs = case.build()
    symmetry = ob.discover(apply_fn, params, inputs)
    g = symmetry.random(jax.random.key(12))
    moving = symmetry.act(g, params)
    assert ob.align(symmetry, moving, to=params, scaling=None).cost > 1
    assert ob.align(symmetry, moving, to=params).cost < 1e-8
