"""Posteriors in one file, and as ArviZ reads them."""

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.store import Run, StoreError, load, save, save_params, to_datatree
from onebasin.store.posteriors import parts_of
from onebasin.store.tensors import write_tensors

MEAN = {"a": [jnp.arange(3.0), jnp.array(2.0)], "b": jnp.ones((2, 2))}
FACTOR = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), MEAN)
STATISTICS = {
    "accepted": np.array([True, False, True]),
    "key": jax.random.split(jax.random.key(0), 3),
}
FORMS: dict[str, tuple[Any, Any]] = {
    "bare draws": (ob.Draws(jnp.ones((4, 2))), jnp.ones(2)),
    "draws": (
        ob.Draws(
            jax.tree.map(lambda x: jnp.stack([x] * 3), MEAN),
            jnp.array([2, 0, 2]),
            np.arange(3.0),
            STATISTICS,
        ),
        MEAN,
    ),
    "diagonal": (ob.Gaussian(MEAN, 0.5), MEAN),
    "low rank": (ob.Gaussian(MEAN, 0.5, FACTOR), MEAN),
    "double": (ob.Gaussian({"w": np.array([1 / 3])}, {"w": np.array([0.1])}), {"w": np.ones(1)}),
    "mixture": (
        ob.Mixture([ob.Gaussian(MEAN, 0.5, FACTOR), ob.Gaussian(MEAN, 1.0)], [0.2, 0.8]),
        MEAN,
    ),
    "many": (ob.Mixture([ob.Gaussian(jnp.full(2, float(k)), 1.0) for k in range(12)]), jnp.ones(2)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_posterior_comes_back(tmp_path: Path, form: str) -> None:
    posterior, like = FORMS[form]
    path = tmp_path / "posterior.safetensors"
    save(path, posterior)
    again = load(path, like)
    structures: list[Any] = [jax.tree.structure(posterior), jax.tree.structure(again)]
    assert structures[0] == structures[1]
    for old, new in zip(jax.tree.leaves(posterior), jax.tree.leaves(again), strict=True):
        assert old.dtype == new.dtype
        if not jax.dtypes.issubdtype(old.dtype, jax.dtypes.prng_key):
            assert np.asarray(old).tobytes() == np.asarray(new).tobytes()
    assert repr(load(path)) == repr(posterior)


@pytest.mark.parametrize("form", FORMS)
def test_a_byte_that_changed_is_noticed(tmp_path: Path, form: str) -> None:
    path = tmp_path / "posterior.safetensors"
    save(path, FORMS[form][0])
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"posterior.safetensors has changed since .* sha256"):
        load(path)
    if form == "diagonal":
        assert isinstance(load(path, check=False), ob.Gaussian)


def test_a_file_without_a_checksum_is_read(tmp_path: Path) -> None:
    path = tmp_path / "posterior.safetensors"
    arrays, metadata = parts_of(ob.Gaussian(MEAN, 0.5), "the file")
    with path.open("wb") as file:
        write_tensors(file, arrays, {**metadata, "version": "1"})
    assert repr(load(path)) == repr(ob.Gaussian(MEAN, 0.5))
    with path.open("wb") as file:
        write_tensors(file, arrays, metadata)
    with pytest.raises(StoreError, match="has changed since it was written"):
        load(path)


def test_what_is_known_of_the_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "posterior.safetensors"
    save(path, ob.Gaussian(MEAN, 0.5, info={"loss": np.array([2.0, 1.0]), "seconds": 3.5}))
    assert load(path).info == {"loss": [2.0, 1.0], "seconds": 3.5}


def test_what_is_no_posterior_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    with pytest.raises(StoreError, match="got dict, expected one of Draws, Gaussian, Mixture"):
        save(path, MEAN)
    with pytest.raises(StoreError, match=r"file\.safetensors cannot be read"):
        load(path)
    save_params(path, {"w": jnp.ones(2)})
    with pytest.raises(StoreError, match="holds no posterior that onebasin saved"):
        load(path)
    path.write_bytes(b"text")
    with pytest.raises(StoreError, match=r"4 bytes\) is not a safetensors file"):
        load(path)
    save(path, FORMS["diagonal"][0])
    with pytest.raises(StoreError, match=r"mean of the file .* has no leaf 'other'"):
        load(path, {"other": jnp.ones(2)})
    with pytest.raises(StoreError, match="cannot be written"):
        save(tmp_path / "none" / "file", FORMS["diagonal"][0])


def test_arviz_reads_the_draws(tmp_path: Path) -> None:
    arviz_stats = pytest.importorskip("arviz_stats")
    values = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    mode = np.arange(100) % 2
    draws = ob.Draws(
        {"Dense_0": {"kernel": values}}, mode, values[:, 0], {"accepted": values[:, 1] > 0}
    )
    run = Run.create(tmp_path / "run", {})
    with run.transaction() as t:
        t.append("draws", draws[:30])
        t.append("draws", draws[30:])
    tree = run.to_datatree()
    kernel = tree["posterior"]["Dense_0.kernel"]
    assert kernel.dims == ("chain", "draw", "Dense_0.kernel_dim_0")
    assert np.array_equal(kernel[1], values[1::2])
    assert np.array_equal(tree["sample_stats"]["lp"], [values[::2, 0], values[1::2, 0]])
    assert tree["sample_stats"]["accepted"].dtype == bool
    rhat = arviz_stats.rhat(tree)["Dense_0.kernel"]
    chains = np.stack([values[::2], values[1::2]])
    expected = arviz_stats.base.array_stats.rhat(chains, chain_axis=0, draw_axis=1)
    assert np.allclose(rhat, expected)


def test_a_datatree_needs_even_chains_and_xarray(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xarray")
    draws = ob.Draws({"w": np.zeros((3, 2))}, np.array([4, 4, 7]))
    with pytest.raises(StoreError, match=r"mode 4 has 2, mode 7 has 1: .*of_mode\(4\)\[:1\]"):
        to_datatree(draws)
    assert set(to_datatree(draws[:2]).children) == {"posterior"}
    with pytest.raises(StoreError, match="got dict, expected Draws"):
        to_datatree({"w": np.zeros((3, 2))})
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(StoreError, match=r"pip install 'onebasin\[arviz\]'"):
        to_datatree(draws)


@pytest.mark.parametrize(
    "posterior",
    [
        ob.Draws({"w": np.zeros((3, 2), np.float32)}),
        ob.Gaussian({"w": np.zeros(2, np.float32)}, 1.0),
        ob.Gaussian({"w": np.zeros(2, np.float32)}, 1.0, {"w": np.ones((4, 2), np.float32)}),
    ],
    ids=["draws", "diagonal", "low rank"],
)
def test_a_posterior_of_a_model_of_another_size_is_refused(tmp_path: Path, posterior) -> None:
    save(tmp_path / "q.safetensors", posterior)
    load(tmp_path / "q.safetensors", like={"w": np.zeros(2)})
    with pytest.raises(StoreError, match=r"'w' of shape \(2,\), and the model expects \(3,\)"):
        load(tmp_path / "q.safetensors", like={"w": np.zeros(3)})
