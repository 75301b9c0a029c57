"""Networks whose layers a loop runs are aligned as those written out are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import onebasin as ob
from onebasin.align.match import objective_for
from onebasin.align.state import State, matches, num_roaming, paired, roaming

LAYERS, STREAM, HEADS, DIM, HIDDEN = 3, 6, 2, 4, 7
SHAPES = {
    "keys": (STREAM, HEADS, DIM),
    "queries": (STREAM, HEADS, DIM),
    "values": (STREAM, HEADS, DIM),
    "back": (HEADS, DIM, STREAM),
    "up": (STREAM, HIDDEN),
    "down": (HIDDEN, STREAM),
}
INPUTS = jax.random.normal(jax.random.key(9), (24, 5, 3))


def layer(stream, own):
    """Attention and a hidden layer, each added to the stream."""
    keys, queries, values = (
        jnp.einsum("bts,shd->bthd", stream, own[name]) for name in ("keys", "queries", "values")
    )
    scores = jax.nn.softmax(jnp.einsum("bthd,buhd->bhtu", queries, keys))
    stream += jnp.einsum("bhtu,buhd,hds->bts", scores, values, own["back"])
    return stream + jax.nn.relu(stream @ own["up"]) @ own["down"]


def scanned(params, x):
    stream, _ = lax.scan(lambda h, own: (layer(h, own), None), x @ params["in"], params["layers"])
    return stream.mean(1) @ params["out"]


def written_out(params, x):
    stream = x @ params["in"]
    for own in params["layers"]:
        stream = layer(stream, own)
    return stream.mean(1) @ params["out"]


def network(seed):
    keys = iter(jax.random.split(jax.random.key(seed), 2 + len(SHAPES)))
    ends = {
        n: jax.random.normal(next(keys), s) for n, s in (("in", (3, STREAM)), ("out", (STREAM, 2)))
    }
    layers = {n: 0.2 * jax.random.normal(next(keys), (LAYERS, *s)) for n, s in SHAPES.items()}
    return ends | {"layers": layers}


def apart(params):
    each = [jax.tree.map(lambda x, n=n: x[n], params["layers"]) for n in range(LAYERS)]
    return params | {"layers": each}


def together(params):
    return params | {"layers": jax.tree.map(lambda *x: jnp.stack(x), *params["layers"])}


@pytest.fixture(scope="module")
def groups():
    return ob.discover(scanned, network(0), INPUTS), ob.discover(
        written_out, apart(network(0)), INPUTS
    )


def test_both_forms_have_the_same_group(groups):
    assert groups[0].log_copies() == pytest.approx(groups[1].log_copies())
    assert groups[0].scaling_dimension() == groups[1].scaling_dimension()


@pytest.mark.parametrize("cost", ["weights", "activations", "correlation", "contributions"])
def test_both_forms_are_aligned_alike(groups, cost):
    """Two networks that have nothing to do with each other, where no match is perfect."""
    a, b = network(1), network(2)
    work = [
        {} if cost == "weights" else {"apply_fn": f, "inputs": INPUTS}
        for f in (scanned, written_out)
    ]
    loop = ob.align(groups[0], b, to=a, cost=cost, **work[0])
    plain = ob.align(groups[1], apart(b), to=apart(a), cost=cost, **work[1])
    assert loop.cost_before == pytest.approx(plain.cost_before, rel=1e-4)
    # Both descend in an order of their own: neither has to find the other's optimum, only as low a
    # one, give or take what their starts make.
    assert loop.cost == pytest.approx(plain.cost, rel=0.03)
    moved = together(plain.params)
    np.testing.assert_allclose(
        scanned(loop.params, INPUTS), scanned(moved, INPUTS), rtol=2e-3, atol=2e-3
    )


def test_layers_stay_where_they_are(groups):
    """Heads roam in their layer: no product of one layer's units with another's is asked for."""
    symmetry = groups[0]
    (dims,) = {
        f.name
        for f in symmetry.factors
        if f.size == DIM and f.copies == LAYERS * HEADS and "values" in str(f.sites)
    }
    heads = symmetry.parents[dims][1]
    assert roaming(symmetry, dims) == (heads,)
    assert roaming(symmetry, heads) == ()
    assert num_roaming(symmetry, dims) == HEADS
    a, b = network(1), network(2)
    objective, *_ = objective_for(symmetry, b, a, "weights", None, None, 100)
    state = State.identity(symmetry)
    for gains in objective.outer_gains(dims, state).values():
        assert gains.shape == (LAYERS * HEADS, HEADS, DIM, DIM)
    rng = np.random.default_rng(0)
    order = rng.permuted(state.permutations[heads], axis=-1)
    state.permutations[heads] = order
    assert np.array_equal(matches(symmetry, dims, state), order)
    full = np.arange(LAYERS * HEADS * HEADS).reshape(LAYERS * HEADS, HEADS)
    assert np.array_equal(paired(symmetry, heads, full, state), full.reshape(LAYERS, HEADS, HEADS))


def test_units_that_only_a_condition_sees_are_out_of_reach():
    def model(params, x):
        def inner(h):
            return jax.nn.relu(h @ params["up"]) @ params["down"]

        return lax.cond(x.sum() > 0, inner, lambda h: h @ params["skip"], x) @ params["out"]

    shapes = {"up": (3, 5), "down": (5, 4), "skip": (3, 4), "out": (4, 2)}
    keys = jax.random.split(jax.random.key(0), 4)
    params = {n: jax.random.normal(k, shapes[n]) for n, k in zip(shapes, keys, strict=True)}
    inputs = jax.random.normal(jax.random.key(1), (8, 3))
    symmetry = ob.discover(model, params, inputs)
    assert {f.size for f in symmetry.factors if "permutation" in f.kinds} == {5, 4}
    with pytest.raises(ValueError, match=r"inside a `cond` or a `while`.*use cost='weights'"):
        ob.align(symmetry, params, to=params, cost="activations", apply_fn=model, inputs=inputs)


@pytest.mark.parametrize("reverse", [False, True])
def test_loops_in_loops(reverse):
    """Steps of a recurrent layer inside a stack of layers."""

    def recurrent(h, own):
        def step(state, x):
            state = jnp.tanh(x @ own["w"] + state @ own["u"])
            return state, state

        start = jnp.zeros((h.shape[1], HIDDEN))
        _, states = lax.scan(step, start, h, reverse=reverse)
        return h + states @ own["v"], None

    def model(params, x):
        h, _ = lax.scan(recurrent, jnp.swapaxes(x, 0, 1) @ params["in"], params["layers"])
        return h[-1] @ params["out"]

    shapes = {"w": (STREAM, HIDDEN), "u": (HIDDEN, HIDDEN), "v": (HIDDEN, STREAM)}
    keys = iter(jax.random.split(jax.random.key(0), 5))
    params = {
        "in": jax.random.normal(next(keys), (3, STREAM)),
        "layers": {n: 0.5 * jax.random.normal(next(keys), (2, *s)) for n, s in shapes.items()},
        "out": jax.random.normal(next(keys), (STREAM, 2)),
    }
    symmetry = ob.discover(model, params, INPUTS)
    assert sorted(f.size * f.copies for f in symmetry.factors) == [STREAM, HIDDEN, HIDDEN]
    moving = symmetry.act(symmetry.random(jax.random.key(3)), params)
    for cost in ("activations", "contributions", "preactivations"):
        found = ob.align(
            symmetry, moving, to=params, cost=cost, apply_fn=model, inputs=INPUTS
        ).params
        for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(found), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)
