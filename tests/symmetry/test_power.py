"""Wrong groups are refused where signals vanish, saturate or drown; what is not seen is said."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from zoo.case import Model, normal, plain

import onebasin as ob
from onebasin.symmetry.elements import Block

from .deep import DEEP, straight, transformer_of
from .models import still

Array = jax.Array
Params = dict[str, Any]


def moved_paths(sym: ob.Symmetry) -> list[str]:
    return list(dict.fromkeys(site.path for factor in sym.factors for site in factor.sites))


def makes_no_difference(path: str) -> bool:
    """A bias of all keys adds the same to all scores, which a softmax takes away."""
    return path.endswith("k_bias")


@pytest.mark.parametrize("name", DEEP)
def test_a_site_left_out_is_caught_at_any_depth(name: str) -> None:
    model = DEEP[name]()
    sym = ob.discover(*model)
    assert ob.check_symmetry(sym, *model) < 1e-9
    paths = [path for path in moved_paths(sym) if not makes_no_difference(path)]
    for path in [paths[n] for n in sorted({1, len(paths) // 2})]:
        with pytest.raises(ob.SymmetryError, match=r"does not hold|not proved"):
            ob.check_symmetry(still(sym, path), *model)


@pytest.mark.slow
def test_every_site_of_a_deep_net_is_caught() -> None:
    model = straight(45, jax.nn.relu)
    sym = ob.discover(*model)
    paths = moved_paths(sym)
    assert len(paths) == 91
    for path in paths:
        with pytest.raises(ob.SymmetryError, match=r"does not hold|not proved"):
            ob.check_symmetry(still(sym, path), *model)


def altered(sym: ob.Symmetry, path: str, change: Callable[[Block], Block]) -> ob.Symmetry:
    leaves = tuple(
        dataclasses.replace(leaf, blocks=tuple(map(change, leaf.blocks)))
        if leaf.path == path
        else leaf
        for leaf in sym.leaves
    )
    return dataclasses.replace(sym, leaves=leaves)


def twice_the_exponent(block: Block) -> Block:
    scalings = tuple(dataclasses.replace(w, exponent=2 * w.exponent) for w in block.scalings)
    return dataclasses.replace(block, scalings=scalings)


def other_axis(block: Block) -> Block:
    return dataclasses.replace(block, sides=block.sides[::-1])


def signs_as_scalings(sym: ob.Symmetry) -> ob.Symmetry:
    """The flips of an odd activation where there is a scale."""

    def flip(block: Block) -> Block:
        flips = tuple(dataclasses.replace(w, exponent=1.0) for w in block.scalings)
        return dataclasses.replace(block, scalings=(), signs=flips)

    leaves = tuple(
        dataclasses.replace(leaf, blocks=tuple(map(flip, leaf.blocks))) for leaf in sym.leaves
    )
    factors = tuple(
        dataclasses.replace(f, kinds=frozenset({"permutation", "sign"}), scalings=0, signs=1)
        for f in sym.factors
    )
    return dataclasses.replace(sym, leaves=leaves, factors=factors)


WRONG: dict[str, Callable[[ob.Symmetry], ob.Symmetry]] = {
    "exponent early": lambda sym: altered(sym, "3/w", twice_the_exponent),
    "exponent late": lambda sym: altered(sym, "40/b", twice_the_exponent),
    "axis early": lambda sym: altered(sym, "3/w", other_axis),
    "axis late": lambda sym: altered(sym, "40/w", other_axis),
    "sign": signs_as_scalings,
}


@pytest.mark.parametrize("kind", WRONG)
def test_other_wrong_groups_of_a_deep_net_are_caught(kind: str) -> None:
    model = straight(45, jax.nn.relu)
    with pytest.raises(ob.SymmetryError, match=r"does not hold|not proved"):
        ob.check_symmetry(WRONG[kind](ob.discover(*model)), *model)


def test_copies_that_are_not_independent_are_caught() -> None:
    """Heads that share their queries permute their dimensions together, deep in a net too."""

    def model_of(shared: bool) -> Model:
        def apply(params: list[Params], x: Array) -> Array:
            for layer in params:
                query = layer["q"].sum(1, keepdims=True) + 0 * layer["q"] if shared else layer["q"]
                h = jnp.einsum("bm,mhd->bhd", x, query)
                x = jnp.einsum("bhd,hdm->bm", jax.nn.relu(h), layer["v"])
            return x

        params = [
            {"q": 0.1 * normal(n, 5, 2, 3), "v": 0.1 * normal(n + 99, 2, 3, 5)} for n in range(30)
        ]
        return apply, params, normal(0, 6, 5)

    sym = ob.discover(*model_of(shared=False))
    assert {f.copies for f in sym.factors} >= {2}
    with pytest.raises(ob.SymmetryError, match=r"does not hold|not proved"):
        ob.check_symmetry(sym, *model_of(shared=True))


def masked(params: Params, x: Array) -> Array:
    h = jax.nn.relu(x @ params["w"]) @ params["v"]
    return x @ params["u"] + h * jnp.zeros(2)


MASKED = {"w": (3, 4), "v": (4, 2), "u": (3, 2)}


def test_a_factor_that_the_outputs_do_not_see_is_not_proved() -> None:
    model = plain(masked, MASKED, normal(0, 5, 3))
    with pytest.raises(ob.SymmetryError, match="not proved: the outputs do not see factor 'w'"):
        ob.check_symmetry(ob.discover(*model), *model)


def test_labels_prove_nothing_where_scores_would() -> None:
    def labels(params: Params, x: Array) -> Array:
        return (jnp.argmax(jax.nn.relu(x @ params["w"]) @ params["v"], -1) >= 0).astype(jnp.int32)

    model = plain(labels, {"w": (3, 4), "v": (4, 6)}, normal(0, 9, 3))
    with pytest.raises(ob.SymmetryError, match="scores instead of labels"):
        ob.check_symmetry(ob.discover(*model), *model)


def test_a_parameter_that_is_hardly_seen_is_named() -> None:
    """What adds less than the tolerance could be moved in any way."""

    def apply(params: Params, x: Array) -> Array:
        h = jax.nn.relu(x @ params["w"] + 1e-11 * params["b"])
        return h @ params["v"]

    model = plain(apply, {"w": (3, 4), "b": (4,), "v": (4, 2)}, normal(0, 5, 3))
    with pytest.raises(ob.SymmetryError, match="not proved: the outputs hardly see parameter 'b'"):
        ob.check_symmetry(ob.discover(*model), *model)


def test_what_makes_no_difference_is_no_lack_of_power() -> None:
    """Biases of keys; lengths of what is normalised, which a factor moves at one place alone."""
    model = transformer_of(1)
    sym = ob.discover(*model)
    assert any(makes_no_difference(path) for path in moved_paths(sym))
    assert ob.check_symmetry(sym, *model) < 1e-12

    def cosine(params: Params, x: Array) -> Array:
        v = params["v"] / jnp.linalg.norm(params["v"], axis=0)
        return jax.nn.gelu(x @ params["w"]) @ v

    other = plain(cosine, {"w": (3, 4), "v": (4, 2)}, normal(0, 5, 3))
    found = ob.discover(*other)
    assert any(len(factor.sites) == 1 for factor in found.factors)
    assert ob.check_symmetry(found, *other) < 1e-12
