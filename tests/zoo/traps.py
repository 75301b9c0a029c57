"""What a naive rule gets wrong: order, constants, unusual shapes, norms of weights, routing."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from .activations import H, Params, hidden, plain_case
from .case import Case, factor, normal, plain

Array = jax.Array


def ramp(h: Array) -> Array:
    return h * jnp.arange(1.0, 1.0 + h.shape[-1], dtype=h.dtype)


def gram(h: Array) -> Array:
    """Products of all pairs of units."""
    h = jax.nn.relu(h)
    return jnp.einsum("bi,bj->bij", h, h).reshape(h.shape[0], -1)


def unused(params: Params, x: Array) -> Array:
    _ = params["never"] * 2
    return jax.nn.relu(x @ params["w"]) @ params["v"]


def tiny_leaves(params: Params, x: Array) -> Array:
    """One hidden unit, a scalar factor, and weights that read no features at all."""
    h = x @ params["w"] + params["b"] + jnp.zeros((x.shape[0], 0)) @ params["empty"]
    return params["factor"] * (jax.nn.relu(h) @ params["v"])


def size_zero(params: Params, x: Array) -> Array:
    nothing = x[:, :0] @ params["empty"]
    return jax.nn.relu(x @ params["w"] + params["b"] + nothing) @ params["v"]


def clash(params: Params, x: Array) -> Array:
    """20 units, read as 4 x 5 by one map and as 5 x 4 by another; GELU keeps scalings out."""
    h = jax.nn.gelu(x @ params["w"])
    first = jax.nn.gelu(h.reshape(-1, 4, 5) @ params["first"])
    second = jax.nn.gelu(h.reshape(-1, 5, 4) @ params["second"])
    return first.sum(axis=1) @ params["v1"] + second.sum(axis=1) @ params["v2"]


def token_gram(params: Params, x: Array) -> Array:
    h = x @ params["w"]
    return jnp.einsum("bth,bsh->bts", h, h)


def weight_norm(params: Params, x: Array) -> Array:
    direction = params["w"] / jnp.linalg.norm(params["w"], axis=0)
    return jax.nn.relu(x @ (params["gain"] * direction) + params["b"]) @ params["v"]


def bilinear(params: Params, x: Array) -> Array:
    left, right = jax.nn.relu(x @ params["left"]), jnp.tanh(x @ params["right"])
    return jnp.einsum("bi,ijk,bj->bk", left, params["form"], right)


def cosine(activation: Callable[[Array], Array]) -> Callable[[Params, Array], Array]:
    def apply(params: Params, x: Array) -> Array:
        h = activation(x @ params["w"] + params["b"])
        h = h / jnp.linalg.norm(h, axis=-1, keepdims=True)
        classes = params["v"] / jnp.linalg.norm(params["v"], axis=0)
        return h @ classes

    return apply


def experts(params: Params, x: Array) -> Array:
    """Three experts, all computed, one kept: the mask stands along their axis."""
    h = jax.nn.relu(x @ params["w"] + params["b"])
    weights = jax.nn.softmax(h @ params["router"] + params["r"])
    mask = jax.nn.one_hot(jnp.argmax(weights, axis=-1), 3, dtype=h.dtype)
    units = jax.nn.relu(jnp.einsum("bi,eij->bej", h, params["up"]) + params["c"])
    outputs = jnp.einsum("bej,ejk->bek", units, params["down"])
    return jnp.sum((weights * mask)[..., None] * outputs, axis=1)


def experts_top_k(params: Params, x: Array) -> Array:
    """Two experts of three, their weights gathered for each example."""
    h = jax.nn.relu(x @ params["w"] + params["b"])
    weights, chosen = jax.lax.top_k(jax.nn.softmax(h @ params["router"] + params["r"]), 2)
    units = jax.nn.relu(jnp.einsum("bi,bkij->bkj", h, params["up"][chosen]) + params["c"][chosen])
    return jnp.einsum("bk,bkj,bkjo->bo", weights, units, params["down"][chosen])


EXPERTS = {
    "w": (3, 5),
    "b": (5,),
    "router": (5, 3),
    "r": (3,),
    "up": (3, 5, H),
    "c": (3, H),
    "down": (3, H, 2),
}
CLASH = {"w": (3, 20), "first": (5, 7), "second": (4, 11), "v1": (7, 2), "v2": (11, 2)}


CASES = (
    # Sorted values have no unit any more: the incoming weights permute on their own.
    Case(
        "sort",
        lambda: hidden(lambda h: jnp.sort(jax.nn.relu(h), axis=-1)),
        (factor(H, "p"), factor(1, "s")),
        1,
    ),
    Case(
        "cumsum",
        lambda: hidden(lambda h: jnp.cumsum(jax.nn.relu(h), axis=-1)),
        (factor(1, "s"),),
        1,
    ),
    Case(
        "roll",
        lambda: hidden(lambda h: jnp.roll(jax.nn.relu(h), 1, axis=-1)),
        None,
        H,
        note="All 7 units permute in truth, with different positions in w and in v. Cuts see "
        "(6, 'ps') and (1, 's'); pinning gives scalings alone. All are sound.",
    ),
    Case(
        "roll-and-add",
        lambda: hidden(lambda h: jax.nn.relu(h) + jnp.roll(jax.nn.relu(h), 1, axis=-1)),
        (factor(1, "s"),),
        1,
        note="Turning the ring of units, and mirroring it, are true and no symmetric group.",
    ),
    Case(
        "stride",
        lambda: hidden(lambda h: jax.nn.relu(h)[:, ::2], 4),
        None,
        4,
        note="Units 0, 2, 4, 6 permute and scale in truth: (4, 'ps'); units 1, 3, 5 are not seen, "
        "and what moves only them does not count. Cuts see (3, 'ps') and (1, 's'); pinning leaves "
        "four scalings.",
    ),
    # The constant lies between two GELUs: nothing can absorb it.
    Case("ramp-gelu", lambda: hidden(lambda h: jax.nn.gelu(ramp(jax.nn.gelu(h)))), (), 0),
    Case(
        "ramp-relu",
        lambda: hidden(lambda h: ramp(jax.nn.relu(h))),
        (factor(H, "s"),),
        H,
        note="Permutations that rescale v by ratios of the constants are true, and not claimed.",
    ),
    plain_case("unused", unused, {"w": (3, 5), "v": (5, 2), "never": (4,)}, (factor(5, "ps"),), 5),
    plain_case(
        "tiny-leaves",
        tiny_leaves,
        {"w": (3, 1), "b": (1,), "v": (1, 2), "empty": (0, 1), "factor": ()},
        (factor(1, "s"), factor(1, "sf")),
        2,
    ),
    plain_case(
        "size-zero",
        size_zero,
        {"w": (3, 5), "b": (5,), "v": (5, 2), "empty": (0, 5)},
        (factor(5, "ps"),),
        5,
    ),
    plain_case(
        "product-clash",
        clash,
        CLASH,
        (factor(7, "p"), factor(11, "p")),
        0,
        note="Reversing all 20 units keeps both shapes: true, and no symmetric group.",
    ),
    Case(
        "gram-of-tokens",
        lambda: plain(token_gram, {"w": (3, 5)}, normal(0, 2, 4, 3)),
        (factor(5, "pf"),),
        0,
    ),
    Case(
        "gram-of-units",
        lambda: hidden(gram, H * H),
        (factor(H, "ps"),),
        H,
        note="One index set twice along one axis of v. v may also swap its rows (i, j) and (j, i).",
    ),
    # The norm of w is free; gain and bias against v; w and gain flip.
    plain_case(
        "weight-norm",
        weight_norm,
        {"w": (3, 5), "gain": (5,), "b": (5,), "v": (5, 2)},
        (factor(5, "psf"),),
        10,
    ),
    plain_case(
        "bilinear",
        bilinear,
        {"left": (3, 5), "right": (3, 7), "form": (5, 7, 2)},
        (factor(5, "ps"), factor(7, "pf")),
        5,
    ),
    # Each class has a free length, and so has the whole hidden layer.
    plain_case(
        "cosine-head",
        cosine(jax.nn.leaky_relu),
        {"w": (3, 5), "b": (5,), "v": (5, 4)},
        (factor(5, "p"), factor(4, "s"), factor(1, "s")),
        5,
    ),
    plain_case(
        "cosine-head-tanh",
        cosine(jnp.tanh),
        {"w": (3, 5), "b": (5,), "v": (5, 4)},
        (factor(5, "pf"), factor(4, "s")),
        4,
    ),
    plain_case(
        "experts-argmax",
        experts,
        EXPERTS,
        (factor(3, "p"), factor(5, "ps"), factor(H, "ps", copies=3)),
        5 + 3 * H,
    ),
    plain_case(
        "experts-top-k",
        experts_top_k,
        EXPERTS,
        (factor(3, "p"), factor(5, "ps"), factor(H, "ps", copies=3)),
        5 + 3 * H,
    ),
)
