import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.align.barrier import barrier
from onebasin.align.batch_norm import reset_batch_norm
from onebasin.align.layers import Incoming, find_layers
from onebasin.align.paths import interpolate
from onebasin.align.repair import repair, unit_statistics
from onebasin.symmetry import Site

LAYERS = {
    "first/w": Incoming((Site("first/w", 1),), Site("first/b", 0)),
    "second/w": Incoming((Site("second/w", 1),), Site("second/b", 0)),
}


def apply(params, x):
    return capture(params, x)["second/w"] @ params["head"]


def capture(params, x):
    first = x @ params["first"]["w"] + params["first"]["b"]
    second = jax.nn.relu(first) @ params["second"]["w"] + params["second"]["b"]
    return {"first/w": first, "second/w": second}


def network(seed):
    rng = np.random.default_rng(seed)

    def layer(inputs, units):
        return {"w": jnp.asarray(rng.normal(size=(inputs, units)), "f"), "b": jnp.ones(units)}

    return {"first": layer(3, 5), "second": layer(5, 4), "head": jnp.ones((4, 2))}


A, B = network(0), network(1)
INPUTS = jnp.asarray(np.random.default_rng(2).normal(size=(101, 3)), "f")
STATISTICS = unit_statistics(capture, batch_size=10)


def test_streamed_statistics_are_those_of_all_examples():
    found = STATISTICS(A, INPUTS)
    for name, values in capture(A, INPUTS).items():
        np.testing.assert_allclose(found[name].mean, values.mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[name].std, values.std(0), rtol=1e-4)


@pytest.mark.parametrize("shift", [False, True])
def test_units_get_the_statistics_between_those_of_the_ends(shift):
    t = 0.2
    merged = interpolate(A, B, t)
    found = repair(apply, merged, A, B, INPUTS, t, shift=shift, batch_size=30)
    after, ends = STATISTICS(found.repaired, INPUTS), (STATISTICS(A, INPUTS), STATISTICS(B, INPUTS))
    for name in LAYERS:
        goal = interpolate(ends[0][name], ends[1][name], t)
        np.testing.assert_allclose(after[name].std, goal.std, rtol=1e-4)
        if shift:
            np.testing.assert_allclose(after[name].mean, goal.mean, rtol=1e-3, atol=1e-4)
        else:
            assert not np.any(found.shifts[name])
    assert found.raw is merged


def test_as_text_it_is_short():
    found = repair(apply, interpolate(A, B, 0.5), A, B, INPUTS)
    assert repr(found) == "Repaired(52 weights, 9 units in 2 layers)"
    title, _, first, second = str(found).splitlines()
    assert title == "a repaired network of 52 weights"
    low, high = (f"{float(f(found.scales['first/w'])):.4g}" for f in (jnp.min, jnp.max))
    assert first.split()[:5] == ["first/w", "5", low, "to", high]
    assert second.split()[:2] == ["second/w", "4"]
    jax.jit(lambda found: repr(found) and str(found) and found.raw)(found)


def test_an_end_needs_no_repair():
    found = repair(apply, A, A, B, INPUTS, 0.0, shift=True)
    for name in LAYERS:
        np.testing.assert_allclose(found.scales[name], 1, rtol=1e-5)
        np.testing.assert_allclose(found.shifts[name], 0, atol=1e-5)


def test_dead_units_are_left_alone():
    dead = jax.tree.map(lambda x: x, A)
    dead["first"] = {"w": A["first"]["w"].at[:, 2].set(0), "b": A["first"]["b"]}
    found = repair(apply, dead, A, B, INPUTS)
    assert found.scales["first/w"][2] == 1
    assert found.shifts["first/w"][2] == 0
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found.repaired))


def test_repair_along_a_path():
    def path(a, b, t):
        return repair(apply, interpolate(a, b, t), a, b, INPUTS, t).repaired

    def spread(params):
        return jnp.mean(jnp.std(capture(params, INPUTS)["second/w"], axis=0))

    raw, repaired = barrier(spread, A, B, 5), barrier(spread, A, B, 5, path)
    assert raw.curve[2] < 0.9 * raw.reference[2]
    np.testing.assert_allclose(repaired.curve, repaired.reference, rtol=1e-3)


def test_layers_of_the_users_own_give_the_same():
    half = interpolate(A, B, 0.5)
    own = repair(apply, half, A, B, INPUTS, layers=LAYERS, statistics_fn=STATISTICS)
    found = repair(apply, half, A, B, INPUTS)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4), own.repaired, found.repaired
    )


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (None, "expected both or neither"),
        ({}, "no dense or convolutional layer"),
        ({"third": LAYERS["first/w"]}, "gives no layer 'third'; it gives 'first/w', 'second/w'"),
        ({"first/w": Incoming((Site("gone", 1),))}, "no parameter 'gone'"),
        ({"first/w": Incoming((Site("first/w", 0),))}, r"has 5 units, .*shape \(3, 5\)"),
    ],
)
def test_bad_layers_are_named(layers, message):
    with pytest.raises(ValueError, match=message):
        repair(apply, A, A, B, INPUTS, layers=layers, statistics_fn=STATISTICS)


class Convolutional(nn.Module):
    """Grouped convolution, a kernel without bias, half precision, and weights that are shared."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (2, 2), feature_group_count=2, name="grouped")(x)
        x = nn.relu(nn.Conv(3, (1, 1), use_bias=False, name="bare")(nn.relu(x)))
        x = nn.Dense(3, dtype=jnp.bfloat16, name="half")(x).astype(jnp.float32)
        shared = nn.Dense(3, name="shared")
        return nn.Dense(2, name="head")(shared(nn.relu(shared(x))).mean((1, 2)))


def test_layers_are_found_in_the_program():
    module, x = Convolutional(), jnp.ones((2, 4, 4, 2))
    params = module.init(jax.random.key(0), x)["params"]
    layers, capture_fn = find_layers(lambda p, x: module.apply({"params": p}, x), params, x)
    assert layers == {
        "grouped/kernel": Incoming((Site("grouped/kernel", 3),), Site("grouped/bias", 0)),
        "bare/kernel": Incoming((Site("bare/kernel", 3),)),
        "half/kernel": Incoming((Site("half/kernel", 1),), Site("half/bias", 0)),
    }
    _, seen = module.apply({"params": params}, x, capture_intermediates=True)
    for name, value in capture_fn(params, x).items():
        (expected,) = seen["intermediates"][name.removesuffix("/kernel")]["__call__"]
        np.testing.assert_allclose(np.float32(value), np.float32(expected), rtol=1e-2)


@pytest.mark.parametrize("product", [lambda w, x: (w @ x.T).T, lambda w, x: x @ w.T])
def test_units_on_the_first_axis_are_found(product):
    def transposed(params, x):
        return jnp.tanh(product(params["w"], x)) @ params["head"]

    params = {"w": jnp.ones((5, 3)), "head": jnp.ones((5, 2))}
    layers, capture_fn = find_layers(transposed, params, INPUTS)
    assert layers == {"w": Incoming((Site("w", 0),))}
    assert capture_fn(params, INPUTS)["w"].shape == (101, 5)


class Normed(nn.Module):
    """Two BatchNorm layers, one of them along an inner axis; statistics are captured on demand."""

    train: bool = False

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(3, (2, 2))(x)
        self.sow("intermediates", "into_outer", x)
        x = nn.relu(nn.BatchNorm(use_running_average=not self.train, name="outer")(x))
        x = nn.Dense(4)(x)
        self.sow("intermediates", "into_inner", x)
        norm = nn.BatchNorm(use_running_average=not self.train, axis=1, name="inner")
        return nn.Dense(2)(norm(x).mean(axis=(1, 2)))


IMAGES = jnp.asarray(np.random.default_rng(0).normal(size=(25, 4, 4, 2)), "f")


def apply_normed(params, x):
    return Normed().apply(params, x)


@pytest.fixture(scope="module")
def merged():
    ends = [dict(Normed().init(jax.random.key(seed), IMAGES[:1])) for seed in (0, 1)]
    return interpolate(ends[0], ends[1], 0.5)


def test_batch_norm_statistics_become_those_of_the_data(merged):
    found = reset_batch_norm(apply_normed, merged, IMAGES, batch_size=10)
    _, sown = Normed().apply(found.repaired, IMAGES, mutable=["intermediates"])
    axes = {"outer": (0, 1, 2), "inner": (0, 2, 3)}
    for name in axes:
        (values,) = sown["intermediates"][f"into_{name}"]
        stored = found.repaired["batch_stats"][name]
        np.testing.assert_allclose(stored["mean"], values.mean(axes[name]), atol=1e-5)
        np.testing.assert_allclose(stored["var"], values.var(axes[name]), rtol=1e-4)
    assert found.raw is merged
    jax.tree.map(np.testing.assert_array_equal, found.repaired["params"], merged["params"])


def test_a_reset_network_computes_what_it_did_in_training_mode(merged):
    found = reset_batch_norm(apply_normed, merged, IMAGES).repaired
    trained, _ = Normed(train=True).apply(merged, IMAGES, mutable=["batch_stats"])
    np.testing.assert_allclose(apply_normed(found, IMAGES), trained, atol=1e-4)


def test_a_network_aligned_without_scalings_keeps_its_statistics():
    """They are those of its data still; scalings of BatchNorm hold only while they stay."""
    pair = [dict(Normed().init(jax.random.key(seed), IMAGES[:1])) for seed in (0, 1)]
    pair = [reset_batch_norm(apply_normed, p, IMAGES).repaired for p in pair]
    symmetry = ob.discover(apply_normed, pair[0], IMAGES)
    before = apply_normed(pair[1], IMAGES)
    changes = {}
    for scaling in ("min-mass", None):
        moved = ob.align(symmetry, pair[1], to=pair[0], scaling=scaling).params
        np.testing.assert_allclose(apply_normed(moved, IMAGES), before, atol=1e-4)
        again = reset_batch_norm(apply_normed, moved, IMAGES).repaired
        changes[scaling] = float(jnp.max(jnp.abs(apply_normed(again, IMAGES) - before)))
    assert changes[None] < 1e-4
    assert changes["min-mass"] > 1e-2


def test_a_function_of_the_users_own_can_give_the_statistics(merged):
    fresh = jax.tree.map(jnp.ones_like, merged["batch_stats"])
    found = reset_batch_norm(apply_normed, merged, IMAGES, statistics_fn=lambda p, x: fresh)
    assert found.repaired["batch_stats"]["outer"]["mean"][0] == 1
    with pytest.raises(ValueError, match="what statistics_fn gives has no leaf 'inner/mean'"):
        reset_batch_norm(apply_normed, merged, IMAGES, statistics_fn=lambda p, x: {})


def test_what_cannot_be_reset_is_said(merged):
    with pytest.raises(
        ValueError, match=r"no leaf is subtracted .* networks without BatchNorm take"
    ):
        reset_batch_norm(apply, A, INPUTS)
    unused = {**merged, "batch_stats": {**merged["batch_stats"], "more": {"mean": 1.0, "var": 1.0}}}
    with pytest.raises(ValueError, match="'batch_stats/more/mean' is not subtracted"):
        reset_batch_norm(apply_normed, unused, IMAGES)
    with pytest.raises(ValueError, match="no leaves 'mean' and 'var'"):
        reset_batch_norm(apply_normed, {"batch_stats": {"x": jnp.ones(1)}}, IMAGES)
