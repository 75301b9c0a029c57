"""Whatever a loop does in its body, costs on data see the network that is written out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import onebasin as ob
from onebasin.infer.dropout import hidden_units

LAYERS, STREAM, HIDDEN, GROUPS = 3, 5, 6, 2
COSTS = ("activations", "correlation", "contributions", "preactivations")
INPUTS = jax.random.normal(jax.random.key(9), (12, 4))


class Form(NamedTuple):
    """One network twice: with a loop, and written out on parameters that `apart` makes."""

    loop: Callable[[Any, Any], Any]
    written: Callable[[Any, Any], Any]
    shapes: Any
    apart: Callable[[Any], Any]
    costs: tuple[str, ...] = COSTS


def drawn(shapes: Any, seed: int) -> Any:
    leaves, tree = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    pairs = zip(keys, leaves, strict=True)
    return jax.tree.unflatten(tree, [0.5 * jax.random.normal(k, shape) for k, shape in pairs])


def ends(layers: Any) -> Any:
    return {"in": (4, STREAM), "layers": layers, "out": (STREAM, 2)}


def each_layer(params: Any) -> Any:
    layers = [jax.tree.map(lambda x, n=n: x[n], params["layers"]) for n in range(LAYERS)]
    return params | {"layers": layers}


def written(layer: Any) -> Any:
    def apply(params: Any, x: Any) -> Any:
        h = x @ params["in"]
        for own in params["layers"]:
            h = layer(h, own)
        return h @ params["out"]

    return apply


def stacked(layer: Any, prepare: Any = lambda layers: layers, seen: Any = None) -> Any:
    """The same as a loop over layers that are prepared first; it may also return what is seen."""

    def apply(params: Any, x: Any) -> Any:
        def step(h: Any, own: Any) -> Any:
            return layer(h, own), None if seen is None else seen(params, h)

        return lax.scan(step, x @ params["in"], prepare(params["layers"]))[0] @ params["out"]

    return apply


def block(h: Any, own: Any) -> Any:
    return h + jax.nn.relu(h @ own["up"]) @ own["down"]


def turned_block(h: Any, own: Any) -> Any:
    """Weights as PyTorch has them."""
    return h + jax.nn.relu(h @ own["up"].T) @ own["down"].T


def normed(h: Any, own: Any) -> Any:
    """Gains and biases of each layer have signs for each unit of the stream."""
    centred = h - h.mean(-1, keepdims=True)
    h_normed = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return h + jax.nn.gelu((h_normed * own["gain"] + own["bias"]) @ own["up"]) @ own["down"]


def gated(h: Any, own: Any) -> Any:
    """The gate of each layer has a sign."""
    return h + own["gate"] * (jax.nn.gelu(h @ own["up"]) @ own["down"])


def grouped(h: Any, own: Any) -> Any:
    """Units in groups that trade places, in the stream as in the hidden layer's weights."""
    return h + jnp.einsum(
        "bgj,gji->bgi", jnp.tanh(jnp.einsum("bgi,gij->bgj", h, own["a"])), own["b"]
    )


def grouped_scanned(params: Any, x: Any) -> Any:
    start = jnp.einsum("ba,agi->bgi", x, params["in"])
    h, _ = lax.scan(lambda h, own: (grouped(h, own), None), start, params["layers"])
    return jnp.einsum("bgi,gio->bo", h, params["out"])


def grouped_written(params: Any, x: Any) -> Any:
    h = jnp.einsum("ba,agi->bgi", x, params["in"])
    for own in params["layers"]:
        h = grouped(h, own)
    return jnp.einsum("bgi,gio->bo", h, params["out"])


def recurrent(params: Any, x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        return jnp.tanh(x[:, None] @ params["w"].T + state @ params["u"].T), None

    start = jnp.zeros((len(x), HIDDEN))
    return lax.scan(step, start, x.T)[0] @ params["out"]


def recurrent_written(params: Any, x: Any) -> Any:
    state = jnp.zeros((len(x), HIDDEN))
    for n in range(x.shape[1]):
        state = jnp.tanh(x[:, n, None] @ params["w"].T + state @ params["u"].T)
    return state @ params["out"]


def attention(params: Any, h: Any) -> Any:
    """Products of data with data, by the same weights in every layer."""
    q, k, v = (h[:, :, None] * params[name] for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("btd,bud->btu", q, k))
    return h + jnp.einsum("btu,bud,d->bt", scores, v, params["o"])


def shared(params: Any, x: Any) -> Any:
    return lax.scan(lambda h, _: (attention(params, h), None), x, None, length=LAYERS)[0]


def shared_written(params: Any, x: Any) -> Any:
    for _ in range(LAYERS):
        x = attention(params, x)
    return x


def concatenated(params: Any, x: Any) -> Any:
    layers = jax.tree.map(lambda *x: jnp.concatenate(x), params["first"], params["layers"])
    return stacked(block)(params | {"layers": layers}, x)


def in_line(params: Any) -> Any:
    first = jax.tree.map(lambda x: x[0], params["first"])
    return {**params, "layers": [first, *each_layer(params)["layers"]]}


def in_pairs(params: Any) -> Any:
    layers = [jax.tree.map(lambda x, n=n: x[n // 2, n % 2], params["layers"]) for n in range(4)]
    return params | {"layers": layers}


PLAIN = {"up": (LAYERS, STREAM, HIDDEN), "down": (LAYERS, HIDDEN, STREAM)}
NORMED = {**PLAIN, "gain": (LAYERS, STREAM), "bias": (LAYERS, STREAM)}
TURNED = {"up": (LAYERS, HIDDEN, STREAM), "down": (LAYERS, STREAM, HIDDEN)}
PAIRED = {"up": (2, 2, STREAM, HIDDEN), "down": (2, 2, HIDDEN, STREAM)}
GROUPED = {
    "in": (4, GROUPS, 3),
    "layers": {"a": (LAYERS, GROUPS, 3, 4), "b": (LAYERS, GROUPS, 4, 3)},
    "out": (GROUPS, 3, 2),
}
FORMS = {
    "weights transposed in the body": Form(
        stacked(turned_block), written(turned_block), ends(TURNED), each_layer
    ),
    "one weight, transposed in the body": Form(
        recurrent,
        recurrent_written,
        {"w": (HIDDEN, 1), "u": (HIDDEN, HIDDEN), "out": (HIDDEN, 2)},
        lambda params: params,
        ("activations", "contributions", "preactivations"),
    ),
    "results that nobody reads": Form(
        stacked(block, seen=lambda params, h: jnp.sort(h) @ params["out"]),
        written(block),
        ends(PLAIN),
        each_layer,
    ),
    "layers by two": Form(
        stacked(block, lambda layers: jax.tree.map(lambda x: x.reshape(4, *x.shape[2:]), layers)),
        written(block),
        ends(PAIRED),
        in_pairs,
    ),
    "layers in pieces": Form(
        concatenated,
        written(block),
        {**ends(PLAIN), "first": {"up": (1, STREAM, HIDDEN), "down": (1, HIDDEN, STREAM)}},
        in_line,
    ),
    "signs of units in each layer": Form(
        stacked(normed), written(normed), ends(NORMED), each_layer
    ),
    "a sign of each layer": Form(
        stacked(gated), written(gated), ends({**PLAIN, "gate": (LAYERS,)}), each_layer
    ),
    "groups in each layer": Form(grouped_scanned, grouped_written, GROUPED, each_layer),
    "data times data": Form(
        shared,
        shared_written,
        dict.fromkeys("qkvo", (7,)),
        lambda params: params,
        ("activations", "contributions", "preactivations"),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_loops_are_seen_as_written_out(name: str) -> None:
    form = FORMS[name]
    a, b = drawn(form.shapes, 1), drawn(form.shapes, 2)
    np.testing.assert_allclose(form.loop(a, INPUTS), form.written(form.apart(a), INPUTS), rtol=1e-4)
    looped = ob.discover(form.loop, a, INPUTS)
    plain = ob.discover(form.written, form.apart(a), INPUTS)
    for cost in form.costs:
        one = ob.align(looped, b, to=a, cost=cost, apply_fn=form.loop, inputs=INPUTS, batch_size=5)
        two = ob.align(
            plain, form.apart(b), to=form.apart(a), cost=cost, apply_fn=form.written, inputs=INPUTS
        )
        assert one.cost_before == pytest.approx(two.cost_before, rel=1e-3), cost
        if looped.log_copies() == pytest.approx(plain.log_copies()):
            assert one.cost <= 1.1 * two.cost, cost
        np.testing.assert_allclose(
            form.loop(one.params, INPUTS), form.loop(b, INPUTS), rtol=1e-2, atol=1e-3
        )


@pytest.mark.parametrize("name", FORMS)
def test_what_was_moved_is_brought_back(name: str) -> None:
    form = FORMS[name]
    params = drawn(form.shapes, 1)
    symmetry = ob.discover(form.loop, params, INPUTS)
    moved = symmetry.act(symmetry.random(jax.random.key(5)), params)
    for cost in form.costs:
        back = ob.align(
            symmetry, moved, to=params, cost=cost, apply_fn=form.loop, inputs=INPUTS
        ).params
        for found, expected in zip(jax.tree.leaves(back), jax.tree.leaves(params), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=cost)


def test_units_behind_transposed_weights_can_be_dropped() -> None:
    form = FORMS["one weight, transposed in the body"]
    net = ob.Net(lambda key, x: drawn(form.shapes, 1), form.loop)
    assert hidden_units(net, drawn(form.shapes, 1), INPUTS).count == HIDDEN
