"""Many draws on an engine: the same end, whatever the blocks."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin._core.files import sha256_of
from onebasin.engine import open_engine

NET = ob.nets.mlp(hidden=(6, 5), outputs=3, activation="tanh")
SHALLOW = ob.nets.mlp(hidden=(7,), outputs=3)
INPUTS = jax.random.normal(jax.random.key(5), (12, 4))


def population(net: ob.Net, count: int = 7) -> tuple[ob.Symmetry, ob.Draws]:
    """Noisy copies of one network, each moved by an element of its own."""
    params = net.init(jax.random.key(0), INPUTS)
    symmetry = ob.discover(net.apply, params, INPUTS[:2])
    noise = jax.random.normal

    def copy(key):
        for_noise, for_move = jax.random.split(key)
        keys = jax.random.split(for_noise, len(jax.tree.leaves(params)))
        keys = jax.tree.unflatten(jax.tree.structure(params), list(keys))
        near = jax.tree.map(lambda x, k: x + 0.05 * noise(k, x.shape), params, keys)
        kinds = ("permutation", "sign")
        return symmetry.act(symmetry.random(for_move, kinds=kinds), near)

    return symmetry, ob.Draws(jax.vmap(copy)(jax.random.split(jax.random.key(1), count)))


def files(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in folder.rglob("*.safetensors")}


def _groups(params, x):
    units = jnp.tanh(jax.nn.relu(x @ params["group"])[..., None] * params["unit"])
    return jnp.einsum("bgn,gno->bo", units, params["out"])


def _group_weights(key, x):
    shapes = {"group": (x.shape[-1], 3), "unit": (3, 4), "out": (3, 4, 2)}
    keys = jax.random.split(key, 3)
    return {
        name: jax.random.normal(k, shape)
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


CASES = {
    "rows": (SHALLOW, {}),
    "chains": (ob.Net(_group_weights, _groups), {}),
    "visits": (NET, {}),
    "leave-one-out": (NET, {"reference": "leave-one-out"}),
    "first": (NET, {"reference": "first"}),
    "contributions": (
        SHALLOW,
        {"cost": "contributions", "apply_fn": SHALLOW.apply, "inputs": INPUTS},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_blocks_end_where_all_at_once_do(case: str, tmp_path: Path) -> None:
    net, options = CASES[case]
    symmetry, draws = population(net)
    plain = ob.align_many(symmetry, draws, **options)
    ends = []
    for size in (3, 7):
        with open_engine("local", directory=tmp_path / str(size), networks_per_task=size) as engine:
            found = ob.align_many(symmetry, draws, engine=engine, **options)
            before = files(tmp_path / str(size))
            again = ob.align_many(symmetry, draws, engine=engine, **options)
            assert files(tmp_path / str(size)) == before
            assert again.history == found.history
        ends.append(found)
        # Planted permutations: there is one right answer, and sums differ by rounding alone.
        for name, permutation in plain.elements.permutations.items():
            np.testing.assert_array_equal(found.elements.permutations[name], permutation)
        # Here the mean may follow within a round: rounds differ, their end does not.
        np.testing.assert_allclose(found.history[-1], plain.history[-1], rtol=1e-4)
        assert found.moved == plain.moved
    assert len(files(tmp_path / "3")) == 3 * len(plain.moved)
    for a, b in zip(*(jax.tree.leaves(end.draws.params) for end in ends), strict=True):
        np.testing.assert_array_equal(a, b)


def test_gaussians_in_blocks(tmp_path: Path) -> None:
    symmetry, draws = population(NET, 4)
    mixture = ob.Mixture([ob.Gaussian(params, 0.1 * (1 + i)) for i, params in enumerate(draws)])
    plain = ob.align_many(symmetry, mixture, cost="wasserstein")
    with open_engine("local", directory=tmp_path, networks_per_task=3) as engine:
        found = ob.align_many(symmetry, mixture, cost="wasserstein", engine=engine)
    for name, permutation in plain.elements.permutations.items():
        np.testing.assert_array_equal(found.elements.permutations[name], permutation)
    np.testing.assert_allclose(found.history, plain.history, rtol=1e-4)


def test_a_compact_posterior_hands_the_engine_on(tmp_path: Path) -> None:
    symmetry, draws = population(SHALLOW, 8)
    mixture = ob.Mixture([ob.Gaussian(params, 0.1) for params in draws])
    with open_engine("local", directory=tmp_path, networks_per_task=4) as engine:
        found = ob.compact(symmetry, draws, engine=engine).posterior
        plain = ob.compact(symmetry, draws).posterior
        for a, b in zip(*(jax.tree.leaves(q.mean) for q in (found, plain)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
        kept = len(files(tmp_path))
        assert kept
        ob.compact(symmetry, mixture, engine=engine)
        assert len(files(tmp_path)) > kept


def test_diagnostics_hand_the_engine_on(tmp_path: Path) -> None:
    symmetry, draws = population(SHALLOW, 8)
    draws = ob.Draws(draws.params, mode=jnp.arange(8) // 4)
    with open_engine("local", directory=tmp_path, networks_per_task=4) as engine:
        found = ob.rhat(draws, symmetry=symmetry, engine=engine)
        assert files(tmp_path)
    plain = ob.rhat(draws, symmetry=symmetry)
    np.testing.assert_allclose(found.median, plain.median, rtol=1e-4)
