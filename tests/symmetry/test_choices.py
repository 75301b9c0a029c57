"""Routers, codebooks and sparse codes choose by value: their places can be permuted."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from zoo.case import Factor, Model, as_float64, factor, normal, plain

import onebasin as ob
from onebasin.symmetry.choices import without_indices
from onebasin.symmetry.program import evaluate, trace

Array = jax.Array
Params = dict[str, Array]

EXPERTS = {"router": (3, 4), "in": (4, 3, 5), "out": (4, 5, 2)}
HALVES = {"router": (3, 4), "in": (4, 3, 10), "out": (4, 5, 2)}
CODE = {"encoder": (3, 2), "code": (6, 2), "decoder": (2, 2)}
SPARSE = {"encoder": (3, 6), "bias": (6,), "decoder": (6, 2)}

EXPERT, UNITS = factor(4, "p"), factor(5, "ps", copies=4)
FEATURES = (factor(6, "p"), factor(1, "s"))


def _all_experts(params: Params, x: Array, gates: Array) -> Array:
    h = jax.nn.relu(jnp.einsum("td,edu->teu", x, params["in"]))
    return jnp.einsum("teu,euo,te->to", h, params["out"], gates)


def gated(params: Params, x: Array) -> Array:
    """The two best experts, weighted; all of them are computed."""
    chances = jax.nn.softmax(x @ params["router"])
    best, which = lax.top_k(chances, 2)
    return _all_experts(params, x, (jax.nn.one_hot(which, 4) * best[..., None]).sum(1))


def gates_put(params: Params, x: Array) -> Array:
    """The same, with gates put where they belong."""
    chances = jax.nn.softmax(x @ params["router"])
    best, which = lax.top_k(chances, 2)
    gates = jnp.zeros_like(chances).at[jnp.arange(len(x))[:, None], which].set(best)
    return _all_experts(params, x, gates)


def masked(params: Params, x: Array) -> Array:
    """The second best: the best cannot be chosen."""
    logits = x @ params["router"]
    logits = jnp.where(logits == logits.max(-1, keepdims=True), -jnp.inf, logits)
    return _all_experts(params, x, jnp.arange(4) == jnp.argmax(logits, -1, keepdims=True))


def dispatched(params: Params, x: Array) -> Array:
    """Each expert gets the first two examples that are sent to it."""
    chances = jax.nn.softmax(x @ params["router"])
    sent = jax.nn.one_hot(jnp.argmax(chances, -1), 4)
    turn = jnp.cumsum(sent, 0) * sent - 1
    slots = jax.nn.one_hot(turn.astype(int), 2) * sent[..., None]
    inner = jnp.einsum("tes,td->esd", slots, x)
    h = jax.nn.relu(jnp.einsum("esd,edu->esu", inner, params["in"]))
    return jnp.einsum("esu,euo,tes,te->to", h, params["out"], slots, chances)


def picked(params: Params, x: Array) -> Array:
    """Weights of the best experts are fetched."""
    best, which = lax.top_k(jax.nn.softmax(x @ params["router"]), 2)
    h = jax.nn.relu(jnp.einsum("td,tkdu->tku", x, params["in"][which]))
    return jnp.einsum("tku,tkuo,tk->to", h, params["out"][which], best)


def picked_and_summed(params: Params, x: Array) -> Array:
    """The same, with one sum over experts and units."""
    best, which = lax.top_k(jax.nn.softmax(x @ params["router"]), 2)
    h = jax.nn.relu(jnp.einsum("td,tkdu->tku", x, params["in"][which])) * best[..., None]
    return jnp.einsum("tku,tkuo->to", h, params["out"][which])


def picked_and_split(params: Params, x: Array) -> Array:
    """Fetched experts whose weights have two halves."""
    best, which = lax.top_k(jax.nn.softmax(x @ params["router"]), 2)
    halves = jnp.split(jnp.einsum("td,tkdu->tku", x, params["in"][which]), 2, axis=-1)
    h = jax.nn.silu(halves[0]) * halves[1]
    return jnp.einsum("tku,tkuo,tk->to", h, params["out"][which], best)


def picked_in_vmap(params: Params, x: Array) -> Array:
    def one(x: Array) -> Array:
        which = jnp.argmax(x @ params["router"])
        return jax.nn.relu(x @ params["in"][which]) @ params["out"][which]

    return jax.vmap(one)(x)


def second_best(params: Params, x: Array) -> Array:
    """The two best, the first one masked out before the second is chosen."""
    chances = jax.nn.softmax(x @ params["router"])
    first = jax.nn.one_hot(jnp.argmax(chances, -1), 4)
    rest = chances * (1 - first)
    second = jax.nn.one_hot(jnp.argmax(rest, -1), 4)
    return _all_experts(params, x, chances * first + rest * second)


def picked_one_by_one(params: Params, x: Array) -> Array:
    def one(x: Array) -> Array:
        which = jnp.argmax(x @ params["router"])
        return jax.nn.relu(x @ params["in"][which]) @ params["out"][which]

    return lax.map(one, x)


def codebook(params: Params, x: Array) -> Array:
    z = jnp.tanh(x @ params["encoder"])
    nearest = jnp.argmin(((z[:, None] - params["code"]) ** 2).sum(-1), axis=-1)
    return (z + lax.stop_gradient(params["code"][nearest] - z)) @ params["decoder"]


def sparse(use: Callable[[Params, Array, Array, Array], Array]) -> Callable[[Params, Array], Array]:
    def apply(params: Params, x: Array) -> Array:
        h = x @ params["encoder"] + params["bias"]
        return use(params, h, *lax.top_k(h, 3))

    return apply


def decoded(params: Params, h: Array, best: Array, which: Array) -> Array:
    return jnp.einsum("tk,tko->to", best, params["decoder"][which])


def put(params: Params, h: Array, best: Array, which: Array) -> Array:
    return jnp.zeros_like(h).at[jnp.arange(len(h))[:, None], which].set(best) @ params["decoder"]


def put_each(params: Params, h: Array, best: Array, which: Array) -> Array:
    place = jax.vmap(lambda best, which: jnp.zeros(6).at[which].set(best))
    return place(best, which) @ params["decoder"]


def added(params: Params, h: Array, best: Array, which: Array) -> Array:
    return jnp.zeros_like(h).at[jnp.arange(len(h))[:, None], which].add(best) @ params["decoder"]


def overwritten(params: Params, h: Array, best: Array, which: Array) -> Array:
    """Examples put their best into one row, each over those before it."""
    return jnp.zeros(6).at[which].set(best) * h @ params["decoder"]


def put_sorted(params: Params, x: Array) -> Array:
    h = x @ params["encoder"] + params["bias"]
    which = jnp.argsort(h, axis=-1)[:, -3:]
    kept = jnp.take_along_axis(h, which, -1)
    rows = jnp.arange(len(h))[:, None]
    return jnp.zeros_like(h).at[rows, which].set(kept) @ params["decoder"]


def best_overwritten(params: Params, x: Array) -> Array:
    """Seven examples put their best of seven features, each over those before it."""
    h = jnp.concatenate([x @ params["encoder"] + params["bias"], x[:, :1]], -1)
    best, which = lax.top_k(h, 7)
    return (jnp.zeros(7).at[which[:, 0]].set(best[:, 0]) * h)[:, :6] @ params["decoder"]


def taken(params: Params, h: Array, best: Array, which: Array) -> Array:
    found = jnp.take_along_axis(jnp.tanh(h), which, axis=-1)
    return jnp.einsum("tk,tko->to", found, jnp.take(params["decoder"], which, axis=0, mode="clip"))


def ordered(params: Params, x: Array) -> Array:
    h = x @ params["encoder"] + params["bias"]
    which = jnp.argsort(h, axis=-1)[:, -3:]
    return jnp.einsum("tk,tko->to", jnp.take_along_axis(h, which, -1), params["decoder"][which])


def compared(
    places: Callable[[Array], Array], prepare: Callable[[Array], Array] = lambda h: h
) -> Callable[[Params, Array], Array]:
    """The best place, shown by comparing its number with others."""

    def apply(params: Params, x: Array) -> Array:
        h = prepare(x @ params["encoder"] + params["bias"])
        return places(jnp.argmax(h, axis=-1)).astype(h.dtype) @ params["decoder"]

    return apply


MODELS: dict[str, tuple[Any, dict[str, Any], tuple[Factor, ...]]] = {
    "gated": (gated, EXPERTS, (EXPERT, UNITS)),
    "gates put": (gates_put, EXPERTS, (EXPERT, UNITS)),
    "masked": (masked, EXPERTS, (EXPERT, UNITS, factor(1, "s"))),
    "dispatched": (dispatched, EXPERTS, (EXPERT, UNITS)),
    "picked": (picked, EXPERTS, (EXPERT, UNITS)),
    "picked and summed": (picked_and_summed, EXPERTS, (EXPERT, UNITS)),
    "picked and split": (picked_and_split, HALVES, (EXPERT, factor(5, "psf", copies=4))),
    "picked in vmap": (picked_in_vmap, EXPERTS, (EXPERT, UNITS, factor(1, "s"))),
    "second best": (second_best, EXPERTS, (EXPERT, UNITS)),
    "picked one by one": (picked_one_by_one, EXPERTS, (EXPERT, UNITS, factor(1, "s"))),
    "codebook": (codebook, CODE, (factor(2, "pf"), factor(6, "p"))),
    "decoded": (sparse(decoded), SPARSE, FEATURES),
    "put": (sparse(put), SPARSE, FEATURES),
    "put each": (sparse(put_each), SPARSE, FEATURES),
    "added": (sparse(added), SPARSE, FEATURES),
    "put, sorted": (put_sorted, SPARSE, FEATURES),
    "taken": (sparse(taken), SPARSE, FEATURES[:1]),
    "ordered": (ordered, SPARSE, FEATURES),
    "compared": (compared(lambda i: i[:, None] == jnp.arange(6)), SPARSE, FEATURES),
    "compared from the right": (compared(lambda i: jnp.arange(6) == i[:, None]), SPARSE, FEATURES),
    "first, and all": (
        compared(lambda i: (i[:, None] == 0) | (i[:, None] == jnp.arange(6))),
        SPARSE,
        (factor(5, "p"), factor(1, "s")),
    ),
    "all others": (compared(lambda i: i[:, None] != jnp.arange(6)), SPARSE, FEATURES),
}  # fmt: skip


def shown(i: Array) -> Array:
    return i[:, None] == jnp.arange(6)


# Each of these may give two places the same score, and the first of them is chosen.
TIED: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "relu in a loop": lambda h: lax.fori_loop(0, 2, lambda _, h: jax.nn.relu(h), h),
    "relu, scaled": lambda h: h.mean() * jax.nn.relu(h),
    "relu, normalised": lambda h: jax.nn.relu(h) / (jax.nn.relu(h).sum(-1, keepdims=True) + 1),
    "relu, and chances": lambda h: jax.nn.softmax(jax.nn.relu(h)),
    "relu, and more": lambda h: jax.nn.relu(h) + h[:, :1],
    "by a mask": lambda h: h * (h > 0),
    "above a threshold": lambda h: jnp.maximum(h, h.mean(-1, keepdims=True)),
    "masked on the wrong side": lambda h: jnp.where(h > 4, 1e9, h),
    "twice a relu": lambda h: h + jnp.abs(h),
    "what relu takes away": lambda h: h - jnp.where(h < 0, h, 0),
    "rounded": jnp.round,
    "clipped": lambda h: jnp.clip(h, 0, 1),
    "in few bits": lambda h: h.astype(jnp.bfloat16),
    "votes": lambda h: jnp.stack([h > 0, h > 1]).mean(0),
    "summed in a loop": lambda h: lax.map(jax.nn.relu, h),
}
APART: dict[str, tuple[Any, dict[str, Any]]] = {
    "overwritten": (sparse(overwritten), SPARSE),
    "best overwritten": (best_overwritten, SPARSE),
    "number itself": (compared(lambda i: i[:, None] * jnp.arange(6)), SPARSE),
    "backwards": (compared(lambda i: i[:, None] == jnp.arange(6)[::-1]), SPARSE),
    "next one": (compared(lambda i: i[:, None] + 1 == jnp.arange(6)), SPARSE),
    "below": (compared(lambda i: i[:, None] < jnp.arange(6)), SPARSE),
    "as floats": (compared(lambda i: i[:, None].astype(float) == jnp.arange(6.0)), SPARSE),
    **{name: (compared(shown, prepare), SPARSE) for name, prepare in TIED.items()},
}  # fmt: skip


def model(apply: Any, shapes: dict[str, Any]) -> Model:
    return plain(apply, shapes, normal(0, 7, 3))


@pytest.mark.parametrize("name", MODELS)
def test_places_that_are_chosen_can_be_permuted(name: str) -> None:
    apply, shapes, expected = MODELS[name]
    found = ob.discover(*model(apply, shapes))
    assert Counter((f.size, f.copies, f.kinds) for f in found.factors) == Counter(expected)


# Nothing in the program says that all entries are equal, and the first of them is chosen; only the
# proof tells.
ALL_TIED = compared(lambda i: i[:, None] == jnp.arange(6), lambda h: 0 * h)


@pytest.mark.parametrize("name", APART)
def test_numbers_that_are_used_as_numbers_tell_places_apart(name: str) -> None:
    found = ob.discover(*model(*APART[name]))
    assert all("permutation" not in f.kinds or f.size == 1 for f in found.factors)


@pytest.mark.parametrize("name", [*MODELS, *APART])
def test_without_indices_programs_compute_the_same(name: str) -> None:
    apply, shapes = (MODELS[name] if name in MODELS else APART[name])[:2]
    with jax.enable_x64(True):
        params, x = as_float64(model(apply, shapes)[1:])
        program = trace(apply, params, x)
        written = without_indices(program, set(map(id, program.inputs[: len(params)])))
        arguments = [*jax.tree.leaves(params), x]
        (expected,), (got,) = (evaluate(p, arguments, p.outputs) for p in (program, written))
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def test_ties_that_only_the_proof_sees_tell_places_apart() -> None:
    apply, params, x = model(ALL_TIED, SPARSE)
    sym = ob.discover(apply, params, x)
    assert all("permutation" not in f.kinds for f in sym.factors)


def test_costs_on_data_know_ties_too() -> None:
    def apply(params: Params, x: Array) -> Array:
        h = jax.nn.relu(x @ params["in"])
        return h @ params["out"] + ALL_TIED(params, x)

    _, params, x = model(apply, {**SPARSE, "in": (3, 5), "out": (5, 2)})
    sym = ob.discover(apply, params, x)
    moved = sym.act(sym.random(jax.random.key(1), kinds=("permutation",)), params)
    back = ob.align(sym, moved, to=params, cost="activations", apply_fn=apply, inputs=x)
    np.testing.assert_allclose(back.params["in"], params["in"], rtol=1e-5)


def test_padding_ties_all_experts() -> None:
    """Tokens of zeros have no best expert: what is found must hold on the inputs that are given."""

    def apply(params: Params, x: Array) -> Array:
        return params["out"][jnp.argmax(x @ params["router"], -1)]

    _, params, x = model(apply, {"router": (3, 4), "out": (4, 2)})
    assert {f.size for f in ob.discover(apply, params, x).factors} == {4, 1}
    padded = jnp.concatenate([x, jnp.zeros((2, 3))])
    assert {f.size for f in ob.discover(apply, params, padded).factors} == {1}


@pytest.mark.parametrize("name", ["picked", "picked in vmap", "codebook", "gated"])
@pytest.mark.parametrize("cost", ["activations", "contributions", "preactivations"])
def test_costs_on_data_see_what_is_fetched(name: str, cost: str) -> None:
    apply, shapes, _ = MODELS[name]
    apply, params, x = plain(apply, shapes, normal(0, 40, 3))
    sym = ob.discover(apply, params, x)
    moved = sym.act(sym.random(jax.random.key(1), kinds=("permutation",)), params)
    back = ob.align(sym, moved, to=params, cost=cost, apply_fn=apply, inputs=x)
    for leaf, expected in params.items():
        np.testing.assert_allclose(back.params[leaf], expected, rtol=1e-3, atol=1e-4)


def test_counting_for_long_takes_no_time() -> None:
    def apply(params: Params, x: Array) -> Array:
        count = jnp.arange(6)
        for _ in range(40):
            count = count + count
        return (jnp.argmax(x @ params["encoder"], -1)[:, None] == count) @ params["decoder"]

    ob.discover(*plain(apply, {"encoder": (3, 6), "decoder": (6, 2)}, normal(0, 7, 3)))


def test_experts_in_another_order_are_found() -> None:
    apply, params, x = model(gated, EXPERTS)
    sym = ob.discover(apply, params, x)
    moved = sym.act(sym.random(jax.random.key(1), kinds=("permutation", "scaling")), params)
    back = ob.align(sym, moved, to=params)
    for name, leaf in params.items():
        np.testing.assert_allclose(back.params[name], leaf, rtol=1e-3, atol=1e-4)


def test_a_temperature_is_no_score() -> None:
    def apply(params: Params, x: Array) -> Array:
        which = jnp.argmax(x @ params["router"] * params["temperature"], -1)
        return params["out"][which]

    shapes = {"router": (3, 4), "temperature": (), "out": (4, 2)}
    found = ob.discover(*model(apply, shapes))
    assert {f.size for f in found.factors if "permutation" in f.kinds} == {4}
