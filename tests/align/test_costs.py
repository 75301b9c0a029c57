"""Costs: which of those on Gaussians see a swap of variances, and what gains are worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.align.assignment import Assignment
from onebasin.align.channels import GAUSSIAN_COSTS, weights
from onebasin.align.data_cost import DataCost
from onebasin.align.descent import descend
from onebasin.align.pairing import Pairing
from onebasin.align.state import State


def model(params, x):
    return jnp.sum(jax.nn.relu(params["w"] * x), axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def toy():
    """One hidden layer of two units, one weight each: the group swaps (and, by ReLU, no more)."""
    params = {"w": jnp.ones(2)}
    symmetry = ob.discover(model, params, jnp.ones((3, 1)))
    assert [f.size for f in symmetry.factors] == [2]
    return symmetry


def gaussian(mean, std):
    return ob.Gaussian({"w": jnp.asarray(mean)}, {"w": jnp.asarray(std)})


@pytest.mark.parametrize(
    ("cost", "recovers"),
    [("wasserstein", True), ("kl", True), ("kl-reverse", True), ("kl-mean", False)],
)
def test_mirrored_gaussians(toy, cost, recovers):
    """Two Gaussians mirrored about y = x that differ in their spread only."""
    q0, q1 = gaussian([1.0, 1.0], [0.3, 1.2]), gaussian([1.0, 1.0], [1.2, 0.3])
    found = ob.align(toy, q1, to=q0, cost=cost)
    same = bool(jnp.allclose(found.params.std["w"], q0.std["w"]))
    assert same == recovers


def test_trace_term_depends_on_the_permutation():
    """Variances (1, 2) against (1, 2): the trace is 2 for the identity and 2.5 for the swap."""
    variances = np.array([1.0, 2.0])
    assert np.sum(variances / variances) == 2
    assert np.sum(variances[::-1] / variances) == 2.5


@pytest.mark.parametrize("cost", sorted(GAUSSIAN_COSTS))
def test_price_is_the_divergence(toy, cost):
    """The cost that is reported equals the divergence computed from its definition."""
    rng = np.random.default_rng(0)
    m0, m1 = rng.standard_normal((2, 2)).astype(np.float32)
    s0, s1 = np.exp(rng.standard_normal((2, 2))).astype(np.float32)
    channels = GAUSSIAN_COSTS[cost]([m0], [s0], [m1], [s1])
    pairing = Pairing(toy, channels.channels)
    for columns in ([0, 1], [1, 0]):
        state = State.identity(toy)
        state.permutations[next(iter(state.permutations))] = np.array(columns)
        m, s = m1[columns], s1[columns]
        forward = np.log(s0 / s) - 0.5 + (s**2 + (m - m0) ** 2) / (2 * s0**2)
        reverse = np.log(s / s0) - 0.5 + (s0**2 + (m - m0) ** 2) / (2 * s**2)
        expected = {
            "wasserstein": (m - m0) ** 2 + (s - s0) ** 2,
            "kl": forward,
            "kl-forward": forward,
            "kl-reverse": reverse,
            "kl-mean": (m - m0) ** 2 / (2 * s0**2),
        }[cost]
        price = channels.cost(pairing.objective(state))
        assert price == pytest.approx(float(np.sum(expected)), rel=1e-4, abs=1e-4)


def hidden(params, x):
    return jax.nn.relu(x @ params["w"] + params["b"]) @ params["v"]


@pytest.mark.parametrize("batch_size", [1000, 7])
def test_correlation_of_units_that_hardly_change(batch_size):
    """Deviations of 0.01 around 1,000, and a unit that never fires: squares would cancel."""
    rng = np.random.default_rng(0)
    bias = np.append(np.full(7, 1000.0), -1000.0)
    shapes = {"w": (4, 8), "v": (8, 2)}
    params = {k: jnp.asarray(0.01 * rng.normal(size=n), jnp.float32) for k, n in shapes.items()}
    params["b"] = jnp.asarray(bias, jnp.float32)
    inputs = jnp.asarray(rng.normal(size=(60, 4)), jnp.float32)
    symmetry = ob.discover(hidden, params, inputs)
    moving = symmetry.act(symmetry.random(jax.random.key(0)), params)
    found = ob.align(
        symmetry,
        moving,
        to=params,
        cost="correlation",
        apply_fn=hidden,
        inputs=inputs,
        batch_size=batch_size,
    )
    assert jnp.allclose(found.params["w"], params["w"], rtol=1e-4, atol=1e-6)
    assert found.cost_before > 1
    assert found.cost == pytest.approx(0, abs=0.01)


def test_gains_of_a_parent_are_what_the_objective_gains():
    """Pieces of a maxout stay at their places while whole units are exchanged."""

    def maxout(params, x):
        return (x @ params["w"]).reshape(-1, 5, 3).max(axis=-1) @ params["v"]

    rng = np.random.default_rng(0)
    pair = [[rng.normal(size=n).astype(np.float32) for n in ((5, 2), (4, 15))] for _ in range(2)]
    params = dict(zip(("v", "w"), pair[0], strict=True))
    symmetry = ob.discover(maxout, params, jnp.ones((3, 4)))
    (parent,) = (f.name for f in symmetry.factors if f.size == 5)
    pairing = Pairing(symmetry, weights(*pair).channels)
    state = State.random(symmetry, rng)
    (gains,) = pairing.gains(parent, state).values()
    found = []
    for _ in range(3):
        state.permutations[parent] = rng.permutation(5)
        predicted = gains[np.arange(5), state.permutations[parent]].sum()
        found.append(pairing.objective(state) - predicted)
    assert np.ptp(found) < 1e-4


def normal(seed, **shapes):
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return {
        n: jax.random.normal(k, shape) for k, (n, shape) in zip(keys, shapes.items(), strict=True)
    }


def test_the_certificate_says_what_a_cost_on_data_does_not_see():
    """No product reads the pieces of a maxout, which are compared where they are made."""

    def maxout(params, x):
        return (x @ params["w"]).reshape(-1, 5, 3).max(axis=-1) @ params["v"]

    pair = [normal(seed, w=(4, 15), v=(5, 2)) for seed in range(2)]
    inputs = normal(2, x=(30, 4))["x"]
    symmetry = ob.discover(maxout, pair[0], inputs)
    (piece,) = (f.name for f in symmetry.factors if f.size == 3)
    data = {"apply_fn": maxout, "inputs": inputs}
    found = ob.align(symmetry, pair[1], to=pair[0], cost="activations", **data)
    assert found.fallbacks == {piece: "where made"}
    assert str(found).splitlines()[-1] == f"not seen by activations alone: {piece} where made"
    made = ob.align(symmetry, pair[1], to=pair[0], cost="preactivations", **data)
    assert made.fallbacks == {}
    assert "not seen" not in str(made)
    assert ob.align(symmetry, pair[1], to=pair[0]).fallbacks == {}


def test_the_certificate_says_where_weights_decide():
    """Two units that no example excites are alike at work; all others are not."""

    def model(params, x):
        return jax.nn.relu(x @ params["w"] + params["b"]) @ params["v"]

    pair = [normal(seed, w=(3, 6), b=(6,), v=(6, 2)) for seed in range(2)]
    pair = [p | {"b": p["b"] + 3} for p in pair]
    inputs = normal(2, x=(30, 3))["x"]
    symmetry = ob.discover(model, pair[0], inputs)
    (unit,) = (f.name for f in symmetry.factors)
    data = {"cost": "activations", "apply_fn": model, "inputs": inputs, "scaling": None}
    assert ob.align(symmetry, pair[1], to=pair[0], **data).fallbacks == {}
    silent = [p | {"b": p["b"].at[:2].set(-100.0)} for p in pair]
    found = ob.align(symmetry, silent[1], to=silent[0], **data)
    assert found.fallbacks == {unit: "partly by weights"}
    assert f"not seen by activations alone: {unit} partly by weights" in str(found)


def test_a_model_is_read_once_for_all_pairs():
    traced = []

    def apply_fn(params, inputs):
        traced.append(inputs.shape)
        return jax.nn.relu(inputs @ params["w"]) @ params["v"]

    keys = jax.random.split(jax.random.key(0), 5)
    first, second = (
        {"w": jax.random.normal(a, (3, 6)), "v": jax.random.normal(b, (6, 2))}
        for a, b in (keys[:2], keys[2:4])
    )
    symmetry = ob.discover(apply_fn, first, jnp.ones((2, 3)))
    inputs = jax.random.normal(keys[4], (20, 3))

    def cost(data):
        return ob.align(
            symmetry, second, to=first, cost="activations", apply_fn=apply_fn, inputs=data
        ).cost

    found = cost(inputs)
    number = len(traced)
    # The program is kept, the data are not: activations grow with the inputs.
    np.testing.assert_allclose(cost(2 * inputs), 4 * found, rtol=1e-4)
    assert cost(inputs) == found
    assert len(traced) == number
    assert cost(inputs[:10]) < found
    assert len(traced) > number


def residual(params, x):
    h = x @ params["w"]
    h = h + jax.nn.relu(h @ params["a1"]) @ params["b1"]
    h = h + jax.nn.relu(h @ params["a2"]) @ params["b2"]
    return h @ params["o"]


def test_sweeps_by_contributions_never_lose_what_was_found():
    # A layer's contributions change with the matches of the next: sweeps alone go up and down.
    shapes = {"w": (16, 12), "a1": (12, 16), "b1": (16, 12), "a2": (12, 16), "b2": (16, 12)}
    shapes["o"] = (12, 10)
    rng = np.random.default_rng(0)
    two = [
        {name: jnp.float32(rng.normal(size=s) / s[0] ** 0.5) for name, s in shapes.items()}
        for _ in range(2)
    ]
    inputs = jnp.float32(rng.normal(size=(300, 16)))
    symmetry = ob.discover(residual, two[0], inputs[:2])
    cost = DataCost(symmetry, "contributions", residual, two[0], inputs, 100)
    objective = cost.objective(*two)
    start = State.identity(symmetry)
    found = [
        descend(objective, start, Assignment(), np.random.default_rng(1), max_sweeps=n)
        for n in (1, 2, 3, 5, 8, 30)
    ]
    values = [objective.objective(start), *(f.objective for f in found)]
    assert values == sorted(values)
    assert all(f.objective == objective.objective(f.state) for f in found)
    assert found[-1].sweeps < 30
    moved = ob.align(
        symmetry, two[1], to=two[0], cost="contributions", apply_fn=residual, inputs=inputs
    )
    assert ("did not come to rest" in str(moved)) == bool(found[-1].waiting)


@pytest.mark.parametrize("cost", ["weights", "activations"])
def test_a_gaussian_and_a_network_meet_at_its_mean(cost):
    params = normal(0, a=(3, 5), b=(5, 2))
    symmetry = ob.discover(layered, params, jnp.ones((2, 3)))
    moved = symmetry.act(symmetry.random(jax.random.key(3)), params)
    data = {"apply_fn": layered, "inputs": jax.random.normal(jax.random.key(4), (40, 3))}
    found = ob.align(symmetry, ob.Gaussian(moved, 0.1), params, cost, **data)
    expected = ob.push_forward(symmetry, found.element, ob.Gaussian(moved, 0.1))
    back = ob.align(symmetry, moved, ob.Gaussian(params, 0.1), cost, **data)
    for near in (found.params.mean, back.params):
        for name in params:
            np.testing.assert_allclose(near[name], params[name], atol=1e-4)
    np.testing.assert_allclose(found.params.std["a"], expected.std["a"], rtol=1e-5)


def layered(params, x):
    return jax.nn.relu(x @ params["a"]) @ params["b"]


def in_half(dtype):
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), normal(0, a=(3, 5), b=(5, 2)))
    return params, ob.discover(layered, params, jnp.ones((2, 3), dtype))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize(
    "cost", ["weights", "wasserstein", "kl", "activations", "correlation", "preactivations"]
)
def test_half_precision_is_matched_in_single_and_stays_half(dtype, cost):
    params, symmetry = in_half(dtype)
    moved = symmetry.act(symmetry.random(jax.random.key(3), kinds=("permutation",)), params)
    inputs = jax.random.normal(jax.random.key(4), (40, 3), dtype)
    moving, reference = moved, params
    if cost in GAUSSIAN_COSTS:
        moving, reference = (ob.Gaussian(mean, 0.125) for mean in (moved, params))
    # Batches that have to be put together, as their sums in half precision could not be.
    found = ob.align(
        symmetry, moving, reference, cost, apply_fn=layered, inputs=inputs, batch_size=16
    )
    for got, expected in zip(*map(jax.tree.leaves, (found.params, reference)), strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, expected)


def test_nan_in_half_precision_is_seen():
    params, symmetry = in_half(jnp.bfloat16)
    bad = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), params)
    with pytest.raises(ValueError, match="NaN or infinite"):
        ob.align(symmetry, bad, to=params)
    inputs = jnp.full((2, 3), jnp.nan, jnp.bfloat16)
    with pytest.raises(ValueError, match="inputs hold NaN"):
        ob.align(symmetry, params, params, "activations", apply_fn=layered, inputs=inputs)
