"""Distances and pairs of networks on an engine: tiles and blocks as tasks."""

from pathlib import Path

import jax
import numpy as np
import pytest

import onebasin as ob
from onebasin._core.files import sha256_of
from onebasin.engine import TaskError, open_engine
from onebasin.evaluate import tiles
from onebasin.evaluate.metrics import pairs
from onebasin.store import Run


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "HEIGHT", 4)
    monkeypatch.setattr(pairs, "ROWS", 4)


def draws(count: int, shift: float = 0.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(count)
    shapes = {"a": (3, 50), "b": (21,)}
    return {k: (shift + rng.normal(size=(count, *s))).astype(np.float32) for k, s in shapes.items()}


def files(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in folder.rglob("*.safetensors")}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "rational-quadratic"])
def test_tiles_are_the_whole_matrix(kernel: str, tmp_path: Path) -> None:
    x, y = draws(9), draws(6, 0.2)
    # Two draws that are almost the same: their distance would cancel in a product.
    x["a"][8], x["b"][8] = x["a"][0] + 1e-4, x["b"][0]
    plain = ob.mmd(x, y, kernel=kernel, permutations=20)
    with open_engine("local", directory=tmp_path) as engine:
        found = ob.mmd(x, y, kernel=kernel, permutations=20, engine=engine)
        before = files(tmp_path)
        assert ob.mmd(x, y, kernel=kernel, engine=engine).value == found.value
        assert files(tmp_path) == before
    assert len(before) == 5 * 6 / 2
    np.testing.assert_allclose(found.bandwidths, plain.bandwidths, rtol=1e-4)
    np.testing.assert_allclose(found.values, plain.values, rtol=1e-3, atol=1e-6)
    assert found.p_value == plain.p_value


@pytest.mark.usefixtures("small_tiles")
def test_streams_are_read_where_they_lie(tmp_path: Path) -> None:
    x, y = draws(9), draws(6, 0.2)
    run = Run.create(tmp_path / "run", {})
    for part in (slice(0, 5), slice(5, 9)):
        with run.transaction() as t:
            t.append("x", {k: v[part] for k, v in x.items()})
    with open_engine("local", directory=tmp_path / "shared") as engine:
        found = ob.mmd(run.stream("x"), y, engine=engine)
    with open_engine("local", directory=tmp_path / "other") as engine:
        assert found.value == ob.mmd(x, y, engine=engine).value


@pytest.mark.usefixtures("small_tiles")
def test_what_is_not_finite_is_named(tmp_path: Path) -> None:
    x, y = draws(9), draws(6)
    y["b"][5, 3] = np.nan
    with (
        open_engine("local", directory=tmp_path, retries=0) as engine,
        pytest.raises(TaskError, match=r"y holds NaN .* draw 5 at leaf 'b'"),
    ):
        ob.mmd(x, y, engine=engine)


@pytest.mark.usefixtures("small_tiles")
def test_pairs_of_networks_in_blocks(tmp_path: Path) -> None:
    probs = jax.nn.softmax(jax.random.normal(jax.random.key(0), (10, 7, 3)))
    plain = ob.metrics.functional_collapse(probs)
    with open_engine("local", directory=tmp_path) as engine:
        found = ob.metrics.functional_collapse(probs, engine=engine)
    assert len(files(tmp_path)) == 3
    np.testing.assert_allclose(found, plain, atol=1e-6)
