from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob


@pytest.fixture(scope="module")
def moved(scrambled: Any) -> ob.Gaussian:
    """The posterior with low rank and a longer mean, in another basin."""
    p = scrambled.posterior
    factor = jax.tree.map(lambda x: 0.1 * jnp.stack([x, jnp.ones_like(x)]), p.mean)
    q = ob.Gaussian(jax.tree.map(lambda x: 1.05 * x, p.mean), p.std, factor)
    element = scrambled.symmetry.random(jax.random.key(5), kinds=("permutation",))
    return ob.push_forward(scrambled.symmetry, element, q)


def test_spread_is_carried_along(scrambled: Any, moved: ob.Gaussian) -> None:
    p = scrambled.posterior
    found = ob.compare(scrambled.symmetry, p, moved, scaling=None)
    home = jax.tree.map(lambda x: 1.05 * x, p.mean)
    np.testing.assert_allclose(ravel(found.moved.mean), ravel(home), atol=1e-5)
    np.testing.assert_allclose(found.after.wasserstein, ob.wasserstein(p, found.moved))
    assert found.after.wasserstein < 0.3 * found.before.wasserstein
    assert found.after.kl < 0.1 * found.before.kl
    assert found.after.mmd is not None
    assert found.before.mmd is not None
    assert float(found.after.mmd) < float(found.before.mmd)
    assert len(str(found).splitlines()) == 5
    distance = f"{found.before.wasserstein:.6g}"
    assert repr(found).startswith(f"Comparison(Wasserstein-2 {distance} as they are")


def test_draws_are_compared_as_their_moments(scrambled: Any) -> None:
    symmetry, draws = scrambled.symmetry, scrambled.draws
    first, second = draws.of_mode(0), draws.of_mode(1)
    found = ob.compare(symmetry, first, second)
    assert isinstance(found.moved, ob.Draws)
    assert found.after.wasserstein < 0.2 * found.before.wasserstein
    plain = ob.compare(symmetry, ob.moments(first), ob.moments(second), num_samples=0)
    assert plain.after.mmd is None
    np.testing.assert_allclose(plain.after.wasserstein, found.after.wasserstein, 1e-4)


def ravel(tree: Any) -> Any:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def test_bad_input_is_said(scrambled: Any) -> None:
    p = scrambled.posterior
    with pytest.raises(TypeError, match="q is a dict, expected a Gaussian or Draws"):
        ob.compare(scrambled.symmetry, p, p.mean)
    with pytest.raises(ValueError, match="none or at least two"):
        ob.compare(scrambled.symmetry, p, p, num_samples=1)
    other = ob.Gaussian({"w": jnp.zeros(3)}, 1.0)
    with pytest.raises(ValueError, match="not of the model"):
        ob.compare(scrambled.symmetry, p, other)


Q = ob.Gaussian(
    {"a": jnp.array([[4.0, -3.0], [0.0, 1.0]]), "b": jnp.array([5.0])},
    {"a": jnp.array([[0.4, 0.1], [0.2, 0.5]]), "b": jnp.array([0.3])},
)


def test_prune_keeps_the_surest_weights() -> None:
    by_std = ob.prune(Q, 0.6)
    assert by_std.params["a"].tolist() == [[0, -3], [0, 0]]
    assert by_std.mask["a"].tolist() == [[False, True], [True, False]]
    assert by_std.params["b"].tolist() == [5]
    assert repr(by_std) == "Pruned(3 of 5 weights kept)"
    # |mean| / std: 10, 30, 0, 2 and 16.7.
    by_signal = ob.prune(Q, 0.6, by="signal")
    assert by_signal.mask["a"].tolist() == [[True, True], [False, False]]
    assert ob.prune(Q, 1e-9).kept == 1


def test_one_posterior_prunes_another() -> None:
    draws = ob.Draws(jax.tree.map(lambda x: jnp.stack([x, 2 * x]), Q.mean), mode=jnp.arange(2))
    pruned = ob.prune(Q, 0.2, target=draws).params
    assert pruned.params["a"].tolist() == [[[0, -3], [0, 0]], [[0, -6], [0, 0]]]
    assert pruned.mode.tolist() == [0, 1]
    low = ob.Gaussian(Q.mean, Q.std, jax.tree.map(lambda x: x[None], Q.mean))
    cut = ob.prune(Q, 0.2, target=low).params
    assert cut.std["b"].tolist() == cut.factor["b"].ravel().tolist() == [0]
    # Moments of draws decide as a Gaussian does.
    assert ob.prune(draws, 0.2).mask["a"].tolist() == [[False, False], [True, False]]


def test_curve() -> None:
    curve = ob.prune_curve(lambda p: jnp.sum(p["a"]) + p["b"][0], Q)
    assert curve.keep[0] == 1
    assert curve.keep[-1] == 0.01
    assert curve.score[0] == 7
    assert curve.score[-1] == -3
    assert len(str(curve).splitlines()) == 13


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ob.prune(Q, 0), "above 0 and up to 1"),
        (lambda: ob.prune(Q, 50), "above 0 and up to 1"),
        (lambda: ob.prune(Q, 0.5, by="mean"), "no rule 'mean'"),
        (lambda: ob.prune(Q, 0.5, target={"a": jnp.zeros((2, 2))}), "the target has no leaf 'b'"),
        (lambda: ob.prune(ob.Draws({"a": jnp.zeros((1, 2))}), 0.5), "no spread"),
        (lambda: ob.prune(ob.Gaussian(jnp.array([jnp.nan]), 1.0), 0.5), "NaN"),
    ],
)
def test_bad_pruning_is_said(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        call()
    assert "\n" not in str(error.value)
