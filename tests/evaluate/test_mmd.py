import tracemalloc
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import cdist

import onebasin as ob
from onebasin.evaluate import distances
from onebasin.evaluate.populations import Population, blocks
from onebasin.evaluate.removal import COPIES, remove

RNG = np.random.default_rng(0)


def normal(count: int, size: int, shift: float = 0.0) -> Any:
    return (RNG.standard_normal((count, size)) + shift).astype(np.float32)


def plain(x: Any, y: Any, kernel: str, widths: Any, unbiased: bool) -> float:
    """The definition, pair by pair."""
    metric = "cityblock" if kernel == "laplace" else "sqeuclidean"
    means = []
    for a, b in ((x, x), (y, y), (x, y)):
        far = cdist(a.astype(float), b.astype(float), metric)[..., None]
        shapes = {
            "gaussian": np.exp(-far / (2 * widths**2)),
            "rational-quadratic": 1 / (1 + far / (2 * widths**2)),
            "laplace": np.exp(-far / widths),
        }
        found = shapes[kernel].mean(-1)
        if unbiased and a is b:
            found = found[~np.eye(len(a), dtype=bool)]
        means.append(found.mean())
    return float(means[0] + means[1] - 2 * means[2])


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "rational-quadratic"])
@pytest.mark.parametrize("unbiased", [True, False])
def test_blocks_give_the_dense_value(kernel: str, unbiased: bool) -> None:
    x, y = normal(30, 700, 5.0), normal(21, 700, 5.1)
    far = cdist(*[np.concatenate([x, y])] * 2, "cityblock" if kernel == "laplace" else "euclidean")
    widths = np.geomspace(far[far > 0].min() / 2, far.max() * 2, 10)
    expected = plain(x, y, kernel, widths, unbiased)
    least = 8 * 5 * 51**2 + 51 * 4 * 128 + 8 * 51 * distances.STRIP * (kernel == "laplace")
    for memory in (2**30, least):
        found = ob.mmd(x, y, kernel=kernel, unbiased=unbiased, memory=memory)
        np.testing.assert_allclose(found.bandwidths, widths, 1e-5)
        np.testing.assert_allclose(float(found), expected, atol=1e-6)
        np.testing.assert_allclose(found.values.mean(), found.value)


def test_several_tiles_and_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "TILE", 16)
    monkeypatch.setattr(distances, "STRIP", 32)
    rows = normal(50, 83)
    found = distances.manhattan(lambda: iter([rows[:, :70], rows[:, 70:]]), 50)
    np.testing.assert_allclose(found, cdist(rows, rows, "cityblock"), 1e-5)


def test_rows_that_are_close_do_not_cancel() -> None:
    rows = normal(6, 300, 100.0)
    rows[1] = rows[0]
    rows[3] = rows[2] + 1e-4
    rows -= rows.mean(0)
    found = distances.squared_euclidean(lambda: iter([rows]), 6)
    expected = cdist(rows.astype(float), rows.astype(float), "sqeuclidean")
    np.testing.assert_allclose(found, expected, 1e-5, 1e-12)
    assert found[0, 1] == 0


def test_unbiased_estimate_is_unbiased() -> None:
    """Against E k of two Gaussians, which is known."""
    size, shift, width = 3, 0.5, 1.5
    peak = (width**2 / (width**2 + 2)) ** (size / 2)
    expected = 2 * peak * (1 - np.exp(-size * shift**2 / (2 * (width**2 + 2))))
    many = [
        float(ob.mmd(normal(8, size), normal(6, size, shift), bandwidths=width))
        for _ in range(1000)
    ]
    error = np.std(many) / np.sqrt(len(many))
    assert abs(np.mean(many) - expected) < 3.5 * error
    assert min(many) < 0


def test_false_alarms_and_power() -> None:
    def alarms(shift: float, times: int) -> float:
        found = [
            ob.mmd(normal(15, 5), normal(12, 5, shift), permutations=99).p_value
            for _ in range(times)
        ]
        return float(np.mean(np.array(found) <= 0.1))

    # 0.1 exactly, as the permutations and the draws are exchangeable: 400 trials have std 0.015.
    assert abs(alarms(0.0, 400) - 0.1) < 3.5 * 0.015
    power = [alarms(shift, 60) for shift in (0.2, 0.5, 0.9)]
    assert power[0] < power[1] < power[2]
    assert power[2] > 0.9


def test_streams_are_read_in_blocks(tmp_path: Path) -> None:
    sides = [{"a": normal(40, 900).reshape(40, 30, 30), "b": normal(40, 50)} for _ in range(2)]
    run = ob.store.Run.create(tmp_path / "run", {})
    for start in range(0, 40, 15):
        with run.transaction() as t:
            for name, side in zip("xy", sides, strict=True):
                part = jax.tree.map(lambda leaf, s=start: leaf[s : s + 15], side)
                mode = np.zeros(len(part["b"]), int)
                t.append(name, {"params": part, "mode": mode})
    streams = [run.stream(name) for name in "xy"]
    expected = ob.mmd(*sides)
    tracemalloc.start()
    # Two sides of 40 x 950 floats are 304,000 bytes, and the distances 256,000.
    memory = 400_000
    found = ob.mmd(*streams, memory=memory)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < memory
    np.testing.assert_allclose(float(found), float(expected), atol=1e-7)
    mixed = ob.mmd(streams[0], ob.Draws(jax.tree.map(jnp.asarray, sides[1])))
    np.testing.assert_allclose(float(mixed), float(expected), atol=1e-7)


@pytest.fixture(scope="module")
def networks() -> tuple[ob.Symmetry, Any, Any]:
    """A group, and two populations of one distribution in which every draw has other labels."""
    net = ob.nets.mlp(hidden=(6,), outputs=2)
    params = net.init(jax.random.key(0), jnp.ones((1, 3)))
    symmetry = ob.discover(net.apply, params, jnp.ones((1, 3)))
    q = ob.Gaussian(jax.tree.map(lambda x: x + 1.0, params), 0.05)
    sides = []
    for seed, spread in ((1, 0.1), (2, 1.0)):
        elements = jax.vmap(lambda key, s=spread: symmetry.random(key, spread=s))(
            jax.random.split(jax.random.key(10 + seed), 30)
        )
        draws = q.sample(jax.random.key(seed), 30)
        sides.append(symmetry.act_many(elements, draws.params))
    return symmetry, *sides


@pytest.mark.parametrize("removal", ["sort", "match", None])
def test_symmetry_is_removed(networks: Any, removal: str | None) -> None:
    symmetry, x, y = networks
    raw = ob.mmd(x, y, permutations=99)
    assert raw.p_value == 0.01
    found = ob.mmd(x, y, permutations=99, symmetry=symmetry, removal=removal)
    assert found.p_value is not None
    assert found.p_value > 0.05


@pytest.mark.parametrize("removal", ["sort", "match"])
def test_symmetry_is_removed_in_blocks_through_files(networks: Any, removal: str) -> None:
    symmetry, x, y = networks
    options = {"reference": jax.tree.map(lambda leaf: leaf[0], x)} if removal == "match" else {}
    sides = [Population(x, "x"), Population(y, "y")]
    tables = []
    for memory in (2**30, 7 * COPIES * 8 * sides[0].num_weights):
        found = remove(symmetry, sides, removal, memory, options)
        assert isinstance(jax.tree.leaves(found[0].rows(slice(3)))[0], np.memmap) == (
            memory < 2**30
        )
        tables.append(np.concatenate(list(blocks(found, 1000, np.float32))))
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-5)
    reference = remove(symmetry, sides, removal, 7 * COPIES * 8 * sides[0].num_weights, {})
    assert reference[0].num_draws == 30


X, Y = normal(6, 5), normal(4, 5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ob.mmd(X, Y, kernel="gauss"), "did you mean 'gaussian'"),
        (lambda: ob.mmd(X, Y[:1]), "y has one draw"),
        (lambda: ob.mmd(X, Y[:0]), "y holds 0 draws"),
        (lambda: ob.mmd(X, Y[:, :3]), "different models: leaf 'params'"),
        (lambda: ob.mmd({"a": X}, {"b": X}), "leaf 'a', x has it with shape .5,., y has not"),
        (lambda: ob.mmd(X, np.where(Y > 1, np.nan, Y)), "y holds NaN"),
        (lambda: ob.mmd(X, Y, memory=4000), "4,000 bytes is too little for one block"),
        (lambda: ob.mmd(X, Y, bandwidths=[1, -1]), "positive numbers"),
        (lambda: ob.mmd(X, Y, removal="sort"), "pass symmetry="),
        (lambda: ob.mmd(X, Y, removal="shuffle"), "no removal 'shuffle'"),
        (lambda: ob.mmd(X, Y, permutations=-1), "a positive number"),
        (lambda: ob.mmd({"a": X, "b": Y}, X), "differ in their number of draws"),
        (lambda: ob.mmd(np.float32(1.0), X), "a leading axis of draws"),
    ],
)
def test_bad_input_is_said(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        call()
    assert "\n" not in str(error.value)


def test_draws_may_be_lists_of_numbers() -> None:
    expected = ob.mmd(X, Y)
    assert float(ob.mmd(X.tolist(), Y.tolist())) == pytest.approx(float(expected), rel=1e-5)
    with pytest.raises(ValueError, match="lists of numbers of different lengths in y"):
        ob.mmd(X, [[1.0, 2.0], [3.0]])


def test_distributions_are_sampled_first() -> None:
    gaussian = ob.Gaussian(normal(5, 3), 0.1)
    for form in (gaussian, ob.Mixture([gaussian, gaussian])):
        for pair in ((form, form), (normal(5, 3), form)):
            with pytest.raises(TypeError, match="expected draws: those of its method sample"):
                ob.mmd(*pair)


def test_options_belong_to_a_removal(networks: Any) -> None:
    symmetry, x, y = networks
    with pytest.raises(TypeError, match="order without symmetry="):
        ob.mmd(x, y, order="max")
    with pytest.raises(ValueError, match="too little for one block: moving one draw"):
        ob.mmd(x, y, symmetry=symmetry, removal="sort", memory=1000)


def test_identical_points_are_at_no_distance() -> None:
    found = ob.mmd(np.ones((3, 2)), np.ones((4, 2)), kernel="laplace", permutations=9)
    assert float(found) == 0
    assert found.p_value == 1
