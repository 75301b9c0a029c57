"""Numbers in network files: what is damaged or would come out as others is refused, and named."""

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import onebasin as ob
from onebasin.store import CheckpointError, load_params, open_torch, save_params

LIKE = {"w": np.ones((2, 3), np.float32), "step": np.int32(0), "flag": np.bool_(True)}
GOOD = {"w": np.ones((2, 3), np.float32), "step": np.int32(3), "flag": np.array(False)}
PLAIN = {"w": ob.store.TorchTensor("w", "same"), "step": "step", "flag": "flag"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "net.safetensors"


def both(path: Path) -> list[Any]:
    return [lambda: load_params(path, LIKE), lambda: open_torch(path, PLAIN, LIKE)]


def test_what_fits_is_read(path: Path) -> None:
    save_file({name: np.asarray(x) for name, x in GOOD.items()}, path)
    for read in both(path):
        found = read()
        assert found["w"].dtype == jnp.float32
        assert (int(found["step"]), bool(found["flag"])) == (3, False)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "truth values for weights": ({"w": np.ones((2, 3), bool)}, "'w' of type BOOL, expected float"),
    "integers for weights": ({"w": np.ones((2, 3), np.int64)}, "'w' of type I64, expected float"),
    "weights for a counter": ({"step": np.float32(3)}, "'step' of type F32, expected integers"),
    "a truth value for a counter": ({"step": np.array(True)}, "'step' of type BOOL, expected int"),
    "a counter for a truth value": ({"flag": np.int32(1)}, "'flag' of type I32, expected truth"),
    "beyond float32": ({"w": np.full((2, 3), -1e39)}, "'w' of type float64 with the value -1e+39"),
    "beyond int32": ({"step": np.int64(2**32 + 1)}, "the value 4294967297, which does not fit"),
    "beyond uint32": ({"step": np.uint64(2**40)}, "the value 1099511627776, which does not fit"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_come_out_as_another_number_is_refused(path: Path, case: str) -> None:
    change, said = REFUSED[case]
    save_file({name: np.asarray(x) for name, x in {**GOOD, **change}.items()}, path)
    for read in both(path):
        with pytest.raises(CheckpointError) as caught:
            read()
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


def test_double_precision_that_fits_is_rounded(path: Path) -> None:
    largest = float(np.finfo(np.float32).max)
    save_file({"w": np.array([1 / 3, largest, 1e-60])}, path)
    found = load_params(path, {"w": np.ones(3)})["w"]
    assert found.tolist() == [np.float32(1 / 3), largest, 0]


def test_values_that_are_no_numbers_are_noted_in_files_of_others(path: Path) -> None:
    weights = np.array([[1, np.nan, np.inf], [2, 3, 4]], np.float16)
    save_file({name: np.asarray(x) for name, x in {**GOOD, "w": weights}.items()}, path)
    for read in both(path):
        with pytest.warns(
            UserWarning, match=r"2 values that are NaN or infinite in the tensor 'w'"
        ):
            found = read()
        assert jnp.isnan(found["w"][0, 1])
    save_params(path, {"w": weights.astype(np.float32)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jnp.isnan(load_params(path, {"w": weights})["w"][0, 1])


def test_a_byte_that_changed_is_noticed(path: Path) -> None:
    save_params(path, GOOD)
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    for read in both(path):
        with pytest.raises(CheckpointError, match=r"has changed since it was written"):
            read()


@pytest.mark.parametrize("seed", range(5))
def test_no_file_that_was_damaged_is_read_silently(path: Path, seed: int) -> None:
    """What is read without an error is what was written."""
    chance = np.random.default_rng(seed)
    params = {"a": {"w": chance.normal(size=(4, 3)).astype(np.float32), "b": np.zeros(3)}}
    save_params(path, params)
    like, good = load_params(path, params), path.read_bytes()
    for _ in range(300):
        content = bytearray(good)
        for place in chance.integers(len(good), size=chance.integers(1, 4)):
            content[place] ^= 1 << chance.integers(8)
        path.write_bytes(content[: chance.integers(len(good)) if chance.random() < 0.1 else None])
        try:
            found = load_params(path, like)
        except CheckpointError:
            continue
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(like), strict=True):
            assert np.array_equal(ours, theirs)


def test_a_file_without_a_checksum_is_read(path: Path) -> None:
    save_params(path, {"w": np.ones(3, np.float32)})
    save_file(load_file(path), path, {"format": "onebasin-params", "version": "1"})
    assert load_params(path, {"w": np.ones(3)})["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("second", ["module.w", "model.net.w"])
def test_two_tensors_of_one_name_are_refused(path: Path, second: str) -> None:
    save_file({"w": np.zeros(3, np.float32), second: np.ones(3, np.float32)}, path)
    with pytest.raises(CheckpointError, match=rf"'w' and '{second}'|'{second}' and 'w'"):
        open_torch(path, {"w": "w"}, {"w": np.ones(3)})


def test_stacked_networks_of_unequal_number_are_refused(path: Path) -> None:
    save_file({"a": np.ones((4, 3), np.float32), "b": np.ones((5, 3), np.float32)}, path)
    like = {"a": np.ones(3), "b": np.ones(3)}
    with pytest.raises(CheckpointError, match="of different numbers of networks: 'a' has 4, 'b' h"):
        open_torch(path, {"a": "a", "b": "b"}, like)


def test_some_of_many_stacked_networks(path: Path) -> None:
    save_file({"a": np.arange(12, dtype=np.float32).reshape(6, 2)}, path)
    for draws in (slice(1, 3), slice(None, None, 2), slice(-2, None), slice(4, 1, -1)):
        found = open_torch(path, {"a": "a"}, {"a": np.ones(2)}, draws=draws)
        assert found.params["a"][:, 0].tolist() == list(range(0, 12, 2))[draws]
