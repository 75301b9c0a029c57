"""Round trips through a file, and what each wrong file says."""

import os
import stat
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import onebasin as ob
from onebasin.store import CheckpointError, load_params, save_params

PARAMS: dict[str, Any] = {
    "Dense_0": {"kernel": jnp.arange(6.0).reshape(3, 2), "bias": jnp.array([0.5, -1.0])},
    "Dense_1": {"kernel": jnp.ones((2, 2))},
    "step": jnp.array(7),
}


def same(a: Any, b: Any) -> bool:
    structures: list[Any] = [jax.tree.structure(a), jax.tree.structure(b)]
    return structures[0] == structures[1] and all(
        x.dtype == y.dtype and jnp.array_equal(x, y)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.safetensors"


@pytest.mark.parametrize(
    "params",
    [
        PARAMS,
        jnp.arange(3.0),
        [jnp.zeros((2, 0)), (jnp.ones(()),)],
        eqx.filter(eqx.nn.Linear(2, 3, key=jax.random.key(0)), eqx.is_array),
    ],
    ids=["dict", "array", "list", "equinox"],
)
def test_a_network_comes_back(path: Path, params: Any) -> None:
    save_params(path, params)
    assert same(load_params(path, params), params)
    shapes = jax.eval_shape(lambda: params)
    assert same(load_params(str(path), shapes), params)


def test_keys_are_the_names_of_the_symmetry(path: Path) -> None:
    def model(params: Any, x: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"])
        return hidden @ params["Dense_1"]["kernel"]

    save_params(path, PARAMS)
    symmetry = ob.discover(model, PARAMS, jnp.ones((1, 3)))
    assert set(load_file(path)) == {leaf.path for leaf in symmetry.leaves}
    with safe_open(path, "np") as file:
        said = file.metadata()
    assert said.keys() == {"format", "version", "sha256"}
    assert (said["format"], said["version"]) == ("onebasin-params", "2")


@pytest.mark.parametrize("count", [1, 4])
def test_a_population_comes_back(path: Path, count: int) -> None:
    draws = ob.Draws.stack([jax.tree.map(lambda x, i=i: x + i, PARAMS) for i in range(count)])
    save_params(path, draws)
    again = load_params(path, PARAMS)
    assert isinstance(again, ob.Draws)
    assert same(again.params, draws.params)
    with safe_open(path, "np") as file:
        assert file.metadata()["draws"] == str(count)


def test_dots_and_foreign_metadata_are_read(path: Path) -> None:
    tensors = {
        "Dense_0.kernel": np.ones((3, 2), np.float32),
        "Dense_0.bias": np.zeros(2, np.float32),
    }
    save_file(tensors, path, {"format": "pt"})
    like = {"Dense_0": PARAMS["Dense_0"]}
    assert jnp.array_equal(load_params(path, like)["Dense_0"]["kernel"], jnp.ones((3, 2)))
    dotted = {"Dense_0.kernel": like["Dense_0"]["kernel"], "Dense_0.bias": jnp.zeros(2)}
    assert set(load_params(path, dotted)) == set(dotted)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_read_as_float32(path: Path, dtype: Any) -> None:
    params = {"w": jnp.array([1.5, -2.25], dtype)}
    save_params(path, params)
    assert load_file(path)["w"].dtype == dtype
    assert same(load_params(path, params), {"w": jnp.array([1.5, -2.25], jnp.float32)})


def test_double_precision_is_kept_where_jax_has_it(path: Path, float64: None) -> None:
    params = {"w": jnp.array([1 / 3])}
    assert params["w"].dtype == jnp.float64
    save_params(path, params)
    assert same(load_params(path, params), params)


def test_memory_order_does_not_matter(path: Path) -> None:
    params = {"w": np.arange(6.0, dtype=np.float32).reshape(2, 3).T}
    save_params(path, params)
    assert np.array_equal(load_params(path, params)["w"], params["w"])


def test_a_file_is_replaced_whole_and_readable_as_others_are(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_params(path, PARAMS)
    (path.parent / "other").touch()
    modes = {stat.S_IMODE(os.stat(file).st_mode) for file in path.parent.iterdir()}
    assert len(modes) == 1

    def cut_off(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = path.read_bytes()
    monkeypatch.setattr("onebasin.store.checkpoint.write_sealed", cut_off)
    with pytest.raises(CheckpointError, match=r"net\.safetensors cannot be written \(No space"):
        save_params(path, {"w": jnp.ones(3)})
    assert path.read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["net.safetensors", "other"]


def test_a_link_is_replaced_and_what_it_leads_to_is_left_alone(path: Path) -> None:
    save_params(path, PARAMS)
    before = path.read_bytes()
    link = path.with_name("link")
    link.symlink_to(path)
    save_params(link, {"w": jnp.ones(3)})
    assert path.read_bytes() == before
    assert not link.is_symlink()
    assert set(load_file(link)) == {"w"}


GOOD = {"a/w": np.ones((2, 3), np.float32), "a/b": np.zeros(3, np.float32)}
LIKE = {"a": {"w": jnp.ones((2, 3)), "b": jnp.zeros(3)}}
FILES: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "missing": ({"a/w": GOOD["a/w"]}, "has no tensor 'a/b':"),
    "renamed": ({"a/w": GOOD["a/w"], "a/bias": GOOD["a/b"]}, "no tensor 'a/b', but has 'a/bias'"),
    "unexpected": ({**GOOD, "a/c": GOOD["a/b"]}, "has a tensor 'a/c'"),
    "twice": ({**GOOD, "a.b": GOOD["a/b"]}, "has a tensor 'a.b'"),
    "shape": ({**GOOD, "a/w": np.ones((3, 2))}, "'a/w' of shape (3, 2), and the model expects"),
    "half stacked": ({**GOOD, "a/w": np.ones((5, 2, 3))}, "'a/w' of shape (5, 2, 3)"),
    "uneven": (
        {"a/w": np.ones((5, 2, 3)), "a/b": np.ones((4, 3))},
        "'a/w' of shape (5, 2, 3), and the model expects (4, 2, 3)",
    ),
    "empty": ({"a/w": np.ones((0, 2, 3)), "a/b": np.ones((0, 3))}, "holds an empty population"),
    "integers": ({**GOOD, "a/b": np.ones(3, np.int8)}, "'a/b' of type I8, expected floating"),
    "complex": ({**GOOD, "a/b": np.ones(3, np.complex64)}, "'a/b' of type C64"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_of_another_model_names_the_tensor(path: Path, case: str) -> None:
    tensors, said = FILES[case]
    save_file(tensors, path)
    with pytest.raises(CheckpointError) as caught:
        load_params(path, LIKE)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_checkpoint_is_said_so(path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no file .*net\.safetensors"):
        load_params(path, LIKE)
    with pytest.raises(CheckpointError, match="is a folder"):
        load_params(path.parent, LIKE)
    save_params(path, LIKE)
    whole = path.read_bytes()
    for content in (whole[:-5], whole[:20], b"", b"not a safetensors file at all"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"\({len(content)} bytes\) is not a safetens"):
            load_params(path, LIKE)
    save_file(GOOD, path, {"format": "onebasin-params", "version": "9"})
    with pytest.raises(CheckpointError, match="has version '9' of its format"):
        load_params(path, LIKE)


def test_what_cannot_be_saved_is_named(path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no folder"):
        save_params(path / "inside" / "net.safetensors", LIKE)
    with pytest.raises(CheckpointError, match="'key', which is a random key"):
        save_params(path, {"key": jax.random.key(0)})
    with pytest.raises(CheckpointError, match="'name', which is of type <U3"):
        save_params(path, {"name": "net"})
    with pytest.raises(CheckpointError, match="both called 'a/b'"):
        save_params(path, {"a/b": jnp.ones(1), "a": {"b": jnp.ones(1)}})
    with pytest.raises(CheckpointError, match="no leaves"):
        save_params(path, {})
    assert not path.exists()
