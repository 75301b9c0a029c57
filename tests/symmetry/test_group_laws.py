"""The laws of a group, on groups of every shape that discovery makes."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zoo.case import as_float64

import onebasin as ob

from .models import MODELS

pytestmark = pytest.mark.usefixtures("float64")
every_model = pytest.mark.parametrize("name", MODELS)
some_models = pytest.mark.parametrize("name", ["relu", "packed", "scan", "batch norm", "nested"])
seeds = st.integers(0, 2**31 - 1)


class Subject(NamedTuple):
    sym: ob.Symmetry
    apply: Callable[[Any, Any], Any]
    params: Any
    inputs: Any

    def elements(self, seed: int, count: int) -> list[ob.Element]:
        return [self.random(key) for key in jax.random.split(jax.random.key(seed), count)]

    @property
    def random(self) -> Callable[..., ob.Element]:
        return _compiled(self.sym.random)

    @property
    def compose(self) -> Callable[..., ob.Element]:
        return _compiled(self.sym.compose)

    @property
    def inverse(self) -> Callable[..., ob.Element]:
        return _compiled(self.sym.inverse)


@functools.cache
def _compiled(method: Callable) -> Callable:
    return jax.jit(method)


@functools.cache
def subject(name: str) -> Subject:
    apply_fn, params, inputs = MODELS[name]()
    sym = ob.discover(apply_fn, params, inputs)
    return Subject(sym, jax.jit(apply_fn), as_float64(params), as_float64(inputs))


def assert_same(a: Any, b: Any, tolerance: float = 1e-12) -> None:
    first, second = jax.tree.structure(a), jax.tree.structure(b)
    assert str(first) == str(second)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def assert_same_function(s: Subject, params: Any) -> None:
    before, after = s.apply(s.params, s.inputs), s.apply(params, s.inputs)
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-9 * np.abs(before).max())


def test_the_models_have_groups_of_every_shape() -> None:
    groups = [subject(name).sym for name in MODELS]
    factors = [factor for sym in groups for factor in sym.factors]
    kinds = frozenset(["permutation", "scaling", "sign"])
    assert any(factor.kinds == kinds for factor in factors)
    assert any(factor.scalings > 1 for factor in factors)
    assert any(factor.signs > 1 for factor in factors)
    assert any(len(factor.index) > 2 for factor in factors)
    blocks = [block for sym in groups for leaf in sym.leaves for block in leaf.blocks]
    assert any(pick is not None for block in blocks for pick in block.picks)
    assert max(len(leaf.blocks) for sym in groups for leaf in sym.leaves) > 2


@every_model
@given(seed=seeds)
def test_composition_is_associative(name: str, seed: int) -> None:
    s = subject(name)
    g, h, k = s.elements(seed, 3)
    assert_same(s.compose(s.compose(g, h), k), s.compose(g, s.compose(h, k)))


@some_models
@given(seed=seeds)
def test_identity(name: str, seed: int) -> None:
    s = subject(name)
    (g,) = s.elements(seed, 1)
    assert_same(s.compose(s.sym.identity(), g), g, 0)
    assert_same(s.compose(g, s.sym.identity()), g, 0)


@every_model
@given(seed=seeds)
def test_inverse(name: str, seed: int) -> None:
    s = subject(name)
    g, h = s.elements(seed, 2)
    assert_same(s.compose(s.inverse(g), g), s.sym.identity())
    assert_same(s.compose(g, s.inverse(g)), s.sym.identity())
    assert_same(s.inverse(s.inverse(g)), g)
    assert_same(s.inverse(s.compose(g, h)), s.compose(s.inverse(h), s.inverse(g)))


@some_models
@given(seed=seeds)
def test_action_of_a_product_is_one_after_the_other(name: str, seed: int) -> None:
    s = subject(name)
    g, h = s.elements(seed, 2)
    once = s.sym.act(s.compose(g, h), s.params)
    assert_same(once, s.sym.act(g, s.sym.act(h, s.params)))
    assert_same(s.sym.act(s.inverse(g), s.sym.act(g, s.params)), s.params)
    assert_same_function(s, once)


@every_model
def test_identity_changes_nothing_at_all(name: str) -> None:
    s = subject(name)
    moved = s.sym.act(s.sym.identity(), s.params)
    for x, y in zip(jax.tree.leaves(s.params), jax.tree.leaves(moved), strict=True):
        np.testing.assert_array_equal(x, y)


@some_models
def test_random_elements_move_every_leaf_that_has_sites(name: str) -> None:
    s = subject(name)
    moved = s.sym.act(s.random(jax.random.key(0)), s.params)
    sites = {site.path for factor in s.sym.factors for site in factor.sites}
    assert sites == {path for path in s.params if np.any(moved[path] != s.params[path])}


@some_models
def test_long_products_stay_in_the_group(name: str) -> None:
    """A loop over elements: their arrays keep shape and type, their action keeps the function."""
    s = subject(name)
    elements = jax.vmap(s.sym.random)(jax.random.split(jax.random.key(3), 9))
    product, _ = jax.lax.scan(lambda g, h: (s.sym.compose(h, g), None), s.sym.identity(), elements)
    for permutation in product.permutations.values():
        n = permutation.shape[-1]
        np.testing.assert_array_equal(
            np.sort(permutation), np.broadcast_to(np.arange(n), permutation.shape)
        )
    assert_same_function(s, s.sym.act(product, s.params))


@pytest.mark.parametrize(
    ("kind", "kept"),
    [("permutation", np.sort), ("scaling", np.sign), ("sign", np.abs)],
)
@some_models
def test_kinds_do_what_they_say(name: str, kind: str, kept: Callable) -> None:
    s = subject(name)
    g = s.sym.random(jax.random.key(2), kinds=(kind,))
    moved = s.sym.act(g, s.params)
    for x, y in zip(jax.tree.leaves(s.params), jax.tree.leaves(moved), strict=True):
        np.testing.assert_allclose(kept(np.ravel(x)), kept(np.ravel(y)))
    changed = any(np.any(moved[path] != s.params[path]) for path in s.params)
    assert changed == any(kind in factor.kinds for factor in s.sym.factors)
    assert_same_function(s, moved)


@pytest.mark.parametrize("kinds", ["permutation", ("rotation",), ("sign", "flip")])
def test_kinds_that_are_not(kinds: Any) -> None:
    with pytest.raises(ValueError, match="kinds are a collection of permutation, scaling, sign"):
        subject("relu").sym.random(jax.random.key(0), kinds=kinds)


def test_spread_sets_the_size_of_scales() -> None:
    s = subject("batch norm")
    still = s.sym.random(jax.random.key(0), spread=0.0)
    assert all(not np.any(v) for v in still.log_scales.values())
    wide = jax.vmap(lambda key: s.sym.random(key, spread=2.0))(
        jax.random.split(jax.random.key(0), 500)
    )
    assert np.std(wide.log_scales["w"]) == pytest.approx(2.0, rel=0.1)


@some_models
def test_vmap_over_draws_and_elements(name: str) -> None:
    s = subject(name)
    keys = jax.random.split(jax.random.key(7), 3)
    elements = jax.vmap(s.sym.random)(keys)
    draws = jax.tree.map(lambda x: jnp.stack([x, 2 * x, -x]), s.params)
    g = jax.tree.map(lambda x: x[1], elements)
    both = jax.vmap(s.sym.act)(elements, draws)
    same = jax.vmap(s.sym.act, in_axes=(None, 0))(g, draws)
    many = jax.vmap(s.sym.act, in_axes=(0, None))(elements, s.params)
    assert_same(s.sym.act(g, draws), same)
    assert_same(jax.jit(s.sym.act)(g, draws), same)
    each = jax.vmap(s.sym.act, in_axes=(0, None))(elements, draws)
    assert_same(jax.tree.map(lambda x: x[1], each), same)
    for i in range(3):
        element, draw = (jax.tree.map(lambda x, i=i: x[i], tree) for tree in (elements, draws))
        for stacked, expected in (
            (both, s.sym.act(element, draw)),
            (same, s.sym.act(g, draw)),
            (many, s.sym.act(element, s.params)),
        ):
            assert_same(jax.tree.map(lambda x, i=i: x[i], stacked), expected)


@some_models
def test_another_element_compiles_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s = subject(name)
    sym = ob.Symmetry.from_json(s.sym.to_json())
    traced = []
    real = ob.Symmetry.act_on_leaves

    def counting(own: Any, g: ob.Element, leaves: list[Any], xp: Any = jnp) -> list[Any]:
        traced.extend([g] if xp is jnp else [])
        return real(own, g, leaves, xp)

    monkeypatch.setattr(ob.Symmetry, "act_on_leaves", counting)
    own = jax.jit(lambda g, params: sym.act(g, params))
    for g in s.elements(5, 4):
        sym.act(g, s.params)
    assert not traced
    for g in s.elements(6, 4):
        own(g, s.params)
    assert len(traced) == 1


@every_model
@given(seed=seeds)
def test_zeros_and_dead_units(name: str, seed: int) -> None:
    """Exact zeros stay exact zeros, wherever they go, and dead units do no harm."""
    s = subject(name)
    rng = np.random.default_rng(seed)
    sparse = jax.tree.map(lambda x: x * (rng.random(x.shape) < 0.5), s.params)
    first = next(iter(sparse))
    sparse[first] = jnp.zeros_like(sparse[first])
    (g,) = s.elements(seed, 1)
    moved = s.sym.act(g, sparse)
    for path, x in sparse.items():
        assert np.count_nonzero(x) == np.count_nonzero(moved[path])
        assert np.all(np.isfinite(moved[path]))
    np.testing.assert_allclose(
        s.apply(moved, s.inputs), s.apply(sparse, s.inputs), rtol=0, atol=1e-9
    )


@some_models
def test_numpy_acts_as_jax_does(name: str) -> None:
    """The proof acts with NumPy, users with JAX: the same code, the same result."""
    s = subject(name)
    g = s.random(jax.random.key(11))
    leaves, structure = s.sym.flatten(s.params)
    moved = s.sym.act_on_leaves(
        jax.tree.map(np.asarray, g), [np.asarray(leaf) for leaf in leaves], np
    )
    assert_same(
        jax.tree.unflatten(structure, moved), jax.tree.map(np.asarray, s.sym.act(g, s.params))
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_leaves_keep_their_precision(dtype: Any) -> None:
    s = subject("batch norm")
    params = jax.tree.map(lambda x: x.astype(dtype), s.params)
    moved = s.sym.act(s.random(jax.random.key(0)), params)
    assert {leaf.dtype for leaf in jax.tree.leaves(moved)} == {jnp.dtype(dtype)}


def test_log_copies_counts_the_elements() -> None:
    """4 units: 4! orders, times 2^4 flips for tanh; heads: 2! x (3! 2^3)^2 x (3! 2^3)^2."""
    assert subject("relu").sym.log_copies() == pytest.approx(np.log(24))
    assert subject("tanh").sym.log_copies() == pytest.approx(np.log(24 * 16))
    assert subject("heads").sym.log_copies() == pytest.approx(np.log(2 * (6 * 8) ** 4))
    assert subject("scan").sym.log_copies() == pytest.approx(np.log(24 * 2**4 * 6**2))
